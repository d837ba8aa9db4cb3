"""The cases on laws that are known exactly, in float32.

What is made once for each kernel goes over `cases()`: the lowering for a GPU
and the check on a device. A density becomes a rotated Gaussian. A field is seen
in Gaussian noise, so that its posterior is Gaussian too. The prior of a
hierarchy has an amplitude, which is on a grid.
"""

import functools
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import cases as cases_lib
from experiments.targets.gaussians import gaussian_target
from experiments.targets.gaussians import rotated_covariance

SIZE = 6
VARIANCES = np.geomspace(0.1, 2.0, SIZE)
NOISE = 0.5
DATA = np.linspace(2.0, -1.0, SIZE)
_SPREAD = 0.6  # Of the log amplitude of a field.


class Law(NamedTuple):
  """What the kernel must leave invariant, of flat states [d]."""

  mean: np.ndarray  # [d]
  variances: np.ndarray  # [d]
  draw: Callable  # (num_draws, seed) -> [num_draws, d], float64.


class Case(NamedTuple):
  """A builder with its options on a law.

  Attributes:
    name: Name of the builder, and a label where it is not the default.
    build: Function (num_adaptation_steps, temper=1.0) -> kernel. At another
      temper the log density, or likelihood, is multiplied: another law.
    law: The law at temper 1.
    pack: Function of states [chains, d] to the state that the kernel takes.
  """

  name: str
  build: Callable[..., tfp.mcmc.TransitionKernel]
  law: Law
  pack: Callable[[tf.Tensor], Any]


def cases() -> Iterator[Case]:
  """Yields every case of the library that has such a law; names differ."""
  for case in (*cases_lib.CASES, *cases_lib.PARTS):
    law_of = _LAWS[case.problem.kind]
    # An estimate has the law of its density; another dtype has it anyway.
    is_plain = case.label not in ('estimates', 'single precision')
    is_ours = 'baselines' not in case.builder.__module__
    if is_ours and is_plain:
      yield law_of(case)


def _named(case, function, law, pack, **arguments):
  def build(num_adaptation_steps, temper=1.0):
    return case.build(
      lambda *state: temper * function(*state),
      num_adaptation_steps,
      SIZE,
      np.float32,
      **arguments,
    )

  label = '' if case.label == 'default' else f', {case.label}'
  return Case(f'{case.builder.__name__}{label}', build, law, pack)


@functools.cache
def _target():
  covariance = rotated_covariance(VARIANCES, 0)
  return gaussian_target('rotated', covariance, 'float32')


def _density(case):
  """Returns the case on a rotated Gaussian, of one part or of two."""
  target = _target()
  law = Law(target.mean, np.diag(target.covariance), target.exact_draws_fn)
  has_parts = isinstance(case.problem.start(), list)
  return _named(
    case,
    lambda *parts: target.target_log_prob_fn(tf.concat(parts, axis=-1)),
    law,
    _halves if has_parts else tf.identity,
  )


def _halves(flat):
  return [flat[:, : SIZE // 2], flat[:, SIZE // 2 :]]


def _field(case):
  """Returns the case on a field that is seen in Gaussian noise."""
  prior = case.problem.arguments(SIZE, np.float32)['prior']
  # A stationary field is sampled on a torus around the grid.
  size = int(np.prod(prior.event_shape))
  # Products are in the coordinates of the prior, whose origin is its mean.
  center = prior.from_coordinates(prior.params, tf.zeros([1, size]))
  rows = prior.to_coordinates(prior.params, center + tf.eye(size))
  rows = prior.covariance(prior.params).multiply(rows)
  covariance = prior.from_coordinates(prior.params, rows) - center
  mean, covariance = _posterior(np.float64(covariance), np.float64(center)[0])
  factor = np.linalg.cholesky(covariance)

  def draw(num_draws, seed):
    rng = np.random.default_rng(seed)
    return mean + rng.normal(size=(num_draws, size)) @ factor.T

  return _named(
    case,
    _log_likelihood,
    Law(mean, np.diag(covariance), draw),
    lambda flat: tf.reshape(flat, [flat.shape[0], *prior.event_shape]),
  )


def _log_likelihood(x):
  observed = tf.reshape(x, [x.shape[0], -1])[:, :SIZE]
  miss = tf.constant(DATA, tf.float32) - observed
  return -0.5 * tf.reduce_sum(miss**2, axis=-1) / NOISE


def _posterior(covariance, center=0.0):
  """Returns mean [..., d] and covariance [..., d, d] given the data."""
  seen = covariance[..., :SIZE, :]
  noisy = seen[..., :SIZE] + NOISE * np.eye(SIZE)
  gain = np.swapaxes(np.linalg.solve(noisy, seen), -1, -2)
  miss = DATA - np.broadcast_to(center, covariance.shape[-1:])[:SIZE]
  return center + gain @ miss, covariance - gain @ seen


def _hierarchy(case):
  """Returns the case on a field whose amplitude is sampled too."""
  covariance = rotated_covariance(VARIANCES, 1)

  def prior_fn(theta):
    amplitude = tf.exp(2.0 * theta)[..., tf.newaxis, tf.newaxis]
    return tfpa.gaussian_priors.spectral(
      amplitude * tf.constant(covariance, tf.float32)
    )

  return _named(
    case,
    _log_likelihood,
    _amplitude_law(),
    lambda flat: (flat[:, :SIZE], flat[:, SIZE]),
    prior_fn=prior_fn,
    hyperprior=tfp.distributions.Normal(0.0, _SPREAD),
  )


@functools.cache
def _amplitude_law():
  """Returns the `Law` of (x, theta): theta on a grid, x given it."""
  covariance = rotated_covariance(VARIANCES, 1)
  grid = np.linspace(-3.0, 3.0, 2001)
  of_grid = np.exp(2.0 * grid)[:, np.newaxis, np.newaxis] * covariance
  noisy = of_grid + NOISE * np.eye(SIZE)
  square = np.linalg.solve(noisy, np.tile(DATA[:, np.newaxis], (2001, 1, 1)))
  log_prob = -0.5 * (
    (square[..., 0] @ DATA)
    + np.linalg.slogdet(noisy)[1]
    + (grid / _SPREAD) ** 2
  )
  share = np.exp(log_prob - log_prob.max())
  share /= share.sum()
  means, covariances = _posterior(of_grid)
  values = np.column_stack([means, grid])
  mean = share @ values
  variances = share @ (values - mean) ** 2
  variances[:SIZE] += share @ np.diagonal(covariances, axis1=1, axis2=2)
  factors = np.linalg.cholesky(covariances)

  def draw(num_draws, seed):
    rng = np.random.default_rng(seed)
    place = rng.choice(len(grid), num_draws, p=share)
    noise = rng.normal(size=(num_draws, SIZE, 1))
    x = means[place] + (factors[place] @ noise)[..., 0]
    return np.column_stack([x, grid[place]])

  return Law(mean, variances, draw)


_LAWS = {'density': _density, 'field': _field, 'hierarchy': _hierarchy}
