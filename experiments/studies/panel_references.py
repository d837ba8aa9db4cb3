"""Moments of the panel's targets, by quadrature or from a long run.

A record is a reference. `jq .record` of its line, written to `LABEL.json` in
the panel's folder of references, makes runs of that target judged by it.

The sampler is TFP's windowed NUTS, started as the panel starts. Where NUTS ends
in modes without mass, HMC runs in coordinates of the heaviest mode, started in
all modes that are not negligible (`num_climbs`). For plasma spectroscopy that
took a quarter of the time of NUTS for the same effective sample size.

A reference counts as converged if its largest R-hat is below 1.01, its smallest
effective sample size is ten times what the panel's gates ask for, and modes
without a chain have less than a thousandth of the mass. Otherwise the record
says so, and no run is judged by it.
"""

from typing import Any

import numpy as np
import pydantic
import tensorflow as tf

from experiments.papers import cell as cells
from experiments.papers import diagnostics
from experiments.papers.starts import make_starts
from experiments.run.errors import ConfigError
from experiments.run.study import Settings
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.samplers.base import BuildOptions
from experiments.samplers.tfp_kernels import Hmc
from experiments.samplers.windowed import WindowedNuts
from experiments.studies.panel import brownian
from experiments.studies.panel import volatility
from experiments.studies.panel.config import DEFAULT
from experiments.studies.panel.config import load_panel
from experiments.studies.panel.modes import find_modes
from experiments.studies.panel.modes import in_coordinates_of_the_heaviest
from experiments.studies.panel.truth import coordinates

__all__ = ['STUDY', 'by_quadrature', 'by_sampling']

# {label: function of nothing to exact moments}.
_EXACT = {
  'BrownianMotionUnknownScalesMissingMiddleObservations': (
    brownian.exact_moments
  ),
  'VectorizedStochasticVolatilitySP500Small': volatility.exact_moments,
  'stochastic_volatility_100_centered': volatility.exact_moments,
}
_MAX_RHAT = 1.01
_ESS_FACTOR = 10
# Largest share of the mass in modes without a chain.
_LEAST_SHARE = 1e-3
_NUM_LEAPFROG_STEPS = 10
_GRID_HALF_WIDTH = 8.0
_GRID_SIZE = 2001


class References(Settings):
  """How long the runs are; what is exact takes none."""

  panel: str = str(DEFAULT)
  num_adaptation_steps: int = pydantic.Field(2000, ge=40)
  num_results: int = pydantic.Field(10000, ge=4)
  # Starts from which modes are looked for; 0: windowed NUTS.
  num_climbs: int = pydantic.Field(0, ge=0)


def _cases(settings: References) -> dict[str, str]:
  return {label: label for label in load_panel(settings.panel).targets}


def _run(label: str, seed: int, work: Work) -> dict[str, Any]:
  """Returns the reference of one target."""
  settings = work.settings
  panel = load_panel(settings.panel)
  target, _ = panel.problem(label, work.data_dir)
  if label in _EXACT:
    moments = _EXACT[label]()
  elif target.event_size == 2:
    moments = by_quadrature(target)
  else:
    config = panel.pair_config(
      label,
      next(iter(panel.methods)),
      settings.num_adaptation_steps,
      settings.num_results,
    )
    moments = by_sampling(
      target, config, panel.gates, seed, settings.num_climbs
    )
  return {'target': label, **moments, **_against_gym(target, moments)}


def by_sampling(target, config, gates, seed, num_climbs=0):
  """Returns moments from a long run.

  Args:
    target: the `Target`.
    config: a `Config` with the numbers of chains, steps and results.
    gates: the panel's `Gates`.
    seed: int.
    num_climbs: 0 for windowed NUTS. Otherwise so many climbs find modes, and
      HMC runs in coordinates of the heaviest one.
  """
  if num_climbs:
    states, trace, found = _around_modes(target, config, seed, num_climbs)
  else:
    sampler = WindowedNuts(name='windowed_nuts')
    starts = make_starts(config, target, seed)
    states, trace = _sampled(sampler, target, config, starts, seed)
    found = {'sampler': 'TFP windowed NUTS'}
  moments = _moments(target, states)
  is_converged = (
    moments['max_rhat'] < _MAX_RHAT
    and moments['min_ess'] >= _ESS_FACTOR * gates.min_ess
    and found.get('share_without_chain', 0.0) < _LEAST_SHARE
  )
  return {
    'source': 'reference run',
    'is_converged': bool(is_converged),
    **found,
    'num_chains': config.num_chains,
    'num_adaptation_steps': config.num_adaptation_steps,
    'num_results': config.num_results,
    'seed': seed,
    'num_diverging': int(np.sum(trace['diverging'])),
    **moments,
  }


def _around_modes(target, config, seed, num_climbs):
  """Returns states, trace and what a reference tells about the modes."""
  modes = find_modes(target, num_climbs, seed)
  log_prob, to_x, to_z = in_coordinates_of_the_heaviest(target, modes)
  num_modes = min(modes.num_heavy(_LEAST_SHARE), config.num_chains)
  starts = to_z(modes.starts(config.num_chains, num_modes, seed))
  moved = target._replace(target_log_prob_fn=log_prob)
  sampler = Hmc(name='hmc', num_leapfrog_steps=_NUM_LEAPFROG_STEPS)
  states, trace = _sampled(sampler, moved, config, starts, seed)
  found = {
    'sampler': 'TFP HMC in coordinates of the heaviest mode',
    'num_leapfrog_steps': _NUM_LEAPFROG_STEPS,
    'modes': modes.summary(),
    'num_modes_with_chains': num_modes,
    'share_without_chain': float(modes.shares[num_modes:].sum()),
  }
  return to_x(states), trace, found


def _sampled(sampler, target, config, starts, seed):
  """Returns states and trace."""
  method = sampler.build(
    target,
    BuildOptions(
      config.num_adaptation_steps, config.num_chains, config.jit_compile
    ),
  )
  result = cells.sample(
    method,
    init_state=starts,
    num_results=config.num_results,
    num_burnin_steps=config.num_adaptation_steps,
    jit_compile=config.jit_compile,
    seed=(seed, 11),
  )
  return np.asarray(result.states), result.trace


def _moments(target, states):
  """Returns moments of a run's coordinates and how good they are."""
  summary = diagnostics.summarize(states)
  draws = coordinates(target, states)
  ess = np.maximum(diagnostics.geyer_ess(draws).sum(axis=0), 1.0)
  least = min(ess.min(), summary.ess_squared.min(), *_least_ranked(summary))
  deviation = draws.std(axis=(0, 1))
  return {
    'max_rhat': float(np.nanmax(summary.rhat)),
    'min_ess': float(least),
    'mean': draws.mean(axis=(0, 1)).tolist(),
    'deviation': deviation.tolist(),
    'standard_error': (deviation / np.sqrt(ess)).tolist(),
    'variance_of_square': np.square(draws).var(axis=(0, 1)).tolist(),
  }


def by_quadrature(target, size=_GRID_SIZE):
  """Returns moments of two coordinates by the trapezoidal rule.

  Args:
    target: a `Target` whose mass lies within 8 of the origin.
    size: points of a side of the grid, odd.

  Raises:
    ConfigError: if there is mass at the edge of the grid.
  """
  coarse, _ = _integrate(target, (size + 1) // 2)
  fine, edge = _integrate(target, size)
  if edge > 1e-9:
    raise ConfigError(
      f'{target.name} has a share {edge:.1e} of its mass at the edge of '
      f'[-{_GRID_HALF_WIDTH:g}, {_GRID_HALF_WIDTH:g}]^2; sample it instead.'
    )
  mean, second, fourth = fine
  return {
    'source': 'quadrature',
    'is_converged': True,
    'num_points': size**2,
    'mean': mean.tolist(),
    'deviation': np.sqrt(second - mean**2).tolist(),
    # What halving the spacing changed.
    'standard_error': np.abs(mean - coarse[0]).tolist(),
    'variance_of_square': (fourth - second**2).tolist(),
  }


def _integrate(target, size):
  """Returns E[x], E[x^2], E[x^4], [3, 2], and the mass at the edge."""
  line = np.linspace(-_GRID_HALF_WIDTH, _GRID_HALF_WIDTH, size)
  points = np.stack(np.meshgrid(line, line, indexing='ij'), axis=-1)
  states = tf.constant(points.reshape(-1, 2), target.dtype)
  log_probs = target.target_log_prob_fn(states).numpy().astype(np.float64)
  weights = np.exp(log_probs - log_probs.max()).reshape(size, size)
  weights /= weights.sum()
  edge = max(weights[0].sum(), weights[-1].sum())
  edge = max(edge, weights[:, 0].sum(), weights[:, -1].sum())
  values = coordinates(target, states.numpy()).reshape(size, size, 2)
  moments = [
    np.einsum('ij,ijk->k', weights, values**power) for power in (1, 2, 4)
  ]
  return np.stack(moments), edge


def _least_ranked(summary):
  return [np.nanmin(part) for part in (summary.ess_bulk, summary.ess_tail)]


def _against_gym(target, moments):
  """Returns how far the moments are from inference_gym's, {} without any."""
  if target.ground_truth is None:
    return {}
  names = sorted(target.ground_truth)
  mean, deviation, error = (
    np.concatenate([np.ravel(target.ground_truth[name][i]) for name in names])
    for i in range(3)
  )
  both = np.hypot(error, moments['standard_error'])
  z = (np.asarray(moments['mean']) - mean) / np.maximum(both, 1e-30)
  ratio = np.asarray(moments['deviation']) / deviation
  return {
    'worst_mean_z_against_gym': float(z[np.argmax(np.abs(z))]),
    'deviation_ratio_to_gym': [float(ratio.min()), float(ratio.max())],
  }


STUDY = Study(_cases, _run, settings=References, seeds=(1000,), process='cell')
