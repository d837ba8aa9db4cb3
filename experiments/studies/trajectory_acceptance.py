"""Would a trajectory on the surrogate be accepted: dimension over draws.

Gaussians whose eigenvalues are Gamma(1, 1) draws, randomly rotated: scales of
all sizes. The surrogate knows n exact draws; trajectories start at others, with
unit momenta, and every point of one has the acceptance it would have were it
the last, min(1, exp(H_0 - H_t)) with the true H. No chain is run.
References: Strathmann et al. (2015), Figure 2,
https://arxiv.org/abs/1506.02564.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.studies import plain_features
from experiments.studies.growing_history import fitter
from experiments.targets.gaussians import gaussian_target
from experiments.targets.gaussians import rotated_covariance

__all__ = ['Grid', 'follow', 'measure', 'to_markdown']

_NUM_STARTS = 50


class Grid(NamedTuple):
  """What is measured."""

  event_sizes: tuple = (2, 4, 8, 16, 32)
  # n, the number of features too.
  sizes: tuple = (100, 500, 2000)
  num_trials: int = 10
  step_size: float = 0.1
  num_leapfrog_steps: int = 50
  surrogates: tuple = ('HMC', 'KMC', 'KMC, plain features')


def measure(grid, report=print):
  """Returns rows, one dict for each dimension, n, surrogate and trial.

  Args:
    grid: `Grid`.
    report: called with one line of text for each dimension and n.
  """
  rows = []
  for event_size in grid.event_sizes:
    for size in grid.sizes:
      fits = _fits(grid, size)
      for trial in range(grid.num_trials):
        rows += _trial(grid, event_size, size, trial, fits)
      report(f'd = {event_size}, n = {size}: {_means(rows, event_size, size)}')
  return rows


def _fits(grid, size):
  """Returns {name: (draws, target, seed) -> score of states [k, d]}."""
  library = tfpa.surrogates.kernel_exponential_family_finite(size, size)
  # Each cell of the grid fits few times: too few to compile for.
  fit_library = fitter(library, jit_compile=False)
  score_library = tf.function(library.score, jit_compile=True, autograph=False)

  def learned(draws, precision, seed):
    del precision, seed
    params = fit_library(draws)
    return lambda x: score_library(params, tf.constant(x)).numpy()

  def plain(draws, precision, seed):
    del precision
    features = plain_features.fit(draws, size, seed)
    return lambda x: plain_features.score(features, x)

  fits = {
    'HMC': lambda draws, precision, seed: lambda x: -x @ precision,
    'KMC': learned,
    'KMC, plain features': plain,
  }
  return {name: fits[name] for name in grid.surrogates}


def _trial(grid, event_size, size, trial, fits):
  """Returns the rows of one spectrum, one rotation, one set of draws."""
  rng = np.random.default_rng([event_size, trial])
  covariance = rotated_covariance(rng.gamma(1.0, size=event_size), rng)
  target = gaussian_target('gamma_spectrum', covariance, 'float64')
  precision = np.linalg.inv(covariance)
  draws = target.exact_draws_fn(size, [2, event_size, size, trial])
  starts = target.exact_draws_fn(_NUM_STARTS, [3, event_size, trial])
  momenta = rng.normal(size=starts.shape)

  def energy(x, p):
    return 0.5 * np.sum((x @ precision) * x + p**2, axis=-1)

  rows = []
  for name, fit in fits.items():
    score = fit(draws, precision, [4, trial])
    energies = follow(
      score, energy, starts, momenta, grid.step_size, grid.num_leapfrog_steps
    )
    rates = np.exp(np.minimum(energies[0] - energies[1:], 0.0))
    rows.append(
      {
        'surrogate': name,
        'event_size': event_size,
        'size': size,
        'trial': trial,
        'along': float(rates.mean()),
        'end': float(rates[-1].mean()),
      }
    )
  return rows


def follow(score, energy, x, p, step_size, num_steps):
  """Returns energies along leapfrog trajectories, [num_steps + 1, chains].

  Args:
    score: (x [chains, d]) -> force of the surrogate, [chains, d].
    energy: (x, p) -> the true energy, [chains].
    x: starts, [chains, d].
    p: momenta, [chains, d].
    step_size: of the leapfrog steps.
    num_steps: number of them.
  """
  energies = [energy(x, p)]
  force = score(x)
  for _ in range(num_steps):
    half = p + 0.5 * step_size * force
    x = x + step_size * half
    force = score(x)
    p = half + 0.5 * step_size * force
    energies.append(energy(x, p))
  # A trajectory that diverged has an energy above all.
  return np.nan_to_num(np.stack(energies), nan=np.inf)


def _means(rows, event_size, size):
  values = {}
  for row in rows:
    if (row['event_size'], row['size']) == (event_size, size):
      values.setdefault(row['surrogate'], []).append(row['along'])
  return ', '.join(f'{k} {np.mean(v):.3f}' for k, v in values.items())


def to_markdown(rows):
  """Returns one table of means and their standard errors over trials."""
  sizes = sorted({row['size'] for row in rows})
  lines = [
    '| Surrogate | d | '
    + ' | '.join(f'n = m = {size}' for size in sizes)
    + ' |',
    '| --- | --- |' + ' --- |' * len(sizes),
  ]
  keys = dict.fromkeys((r['surrogate'], r['event_size']) for r in rows)
  for name, event_size in sorted(keys):
    cells = []
    for size in sizes:
      values = [
        row['along']
        for row in rows
        if (row['surrogate'], row['event_size'], row['size'])
        == (name, event_size, size)
      ]
      error = np.std(values) / np.sqrt(max(1, len(values) - 1))
      cells.append(f'{np.mean(values):.3f} ± {error:.3f}')
    lines.append(f'| {name} | {event_size} | {" | ".join(cells)} |')
  return '\n'.join(lines) + '\n'
