"""One method on one target with one seed: run, measure, record."""

import time
import warnings
import zlib
from typing import Any
from typing import NamedTuple
from typing import Optional

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments import diagnostics
from experiments.starts import make_starts

__all__ = ['CellResult', 'cell_seed', 'run_cell', 'step_counts']

# Points kept of every curve that is only drawn.
_MAX_CURVE = 4000
_MAX_SNAPSHOTS = 60


class CellResult(NamedTuple):
  """What a finished cell leaves behind."""

  record: dict
  arrays: dict
  # (posterior, sample_stats) or None.
  draws: Optional[Any]


def cell_seed(config, label, repeat):
  """Returns two seed words: another seed for every method and repeat."""
  entropy = [config.seed, repeat, zlib.crc32(label.encode())]
  words = np.random.SeedSequence(entropy).generate_state(2)
  return tuple(int(word & 0x7FFFFFFF) for word in words)


def run_cell(config, index, method, target, repeat, checkpoint_dir, progress):
  """Runs one method once and returns its `CellResult`.

  Args:
    config: the `Config`.
    index: of the method in the config.
    method: the `Method` built from it.
    target: the `Target`.
    repeat: number of the repeat; decides seed and starts.
    checkpoint_dir: where `tfpa.sample` may keep its state.
    progress: whether `tfpa.sample` prints its own progress.
  """
  label = config.label(index)
  num_adaptation_steps, num_results = step_counts(config, index)
  arguments = dict(
    init_state=make_starts(config, target, repeat),
    num_results=num_results,
    num_burnin_steps=num_adaptation_steps,
    num_steps_between_results=config.num_steps_between_results,
    seed=cell_seed(config, label, repeat),
    block_size=config.block_size,
    trace_fn=method.trace_fn,
    jit_compile=config.jit_compile,
    progress=progress,
    checkpoint_dir=str(checkpoint_dir) if checkpoint_dir else None,
  )
  is_continued = checkpoint_dir is not None and checkpoint_dir.exists()
  start = time.perf_counter()
  # Kept for the record: a warning on a terminal is gone by tomorrow.
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always', UserWarning)
    result = _sample(method, arguments)
  wall = time.perf_counter() - start
  result = result._replace(
    trace=_numpy(result.trace),
    adaptation_trace=_numpy(result.adaptation_trace),
  )
  states = np.asarray(result.states)
  record, summary = _measure(config, index, method, target, result, states)
  record.update(label=label, repeat=repeat, seed=list(arguments['seed']))
  record['seconds']['wall'] = wall
  record['is_continued'] = is_continued
  if is_continued:
    # The times are those of the last session alone: no speed can be told.
    record['min_ess_per_second'] = None
  record['warnings'] = [
    str(w.message) for w in caught if issubclass(w.category, UserWarning)
  ]
  arrays = _curves(method, result, states, int(np.argmin(summary.ess)))
  draws = _draws(target, result, states) if config.save_draws else None
  return CellResult(record, arrays, draws)


def _sample(method, arguments):
  if method.sample_fn is not None:
    return method.sample_fn(**arguments)
  return tfpa.sample(method.kernel, **arguments)


def step_counts(config, index):
  """Returns (num_adaptation_steps, num_results) of one method."""
  method = config.methods[index]
  return tuple(
    getattr(config, name) if getattr(method, name) is None
    else getattr(method, name)
    for name in ('num_adaptation_steps', 'num_results')
  )  # fmt: skip


def _measure(config, index, method, target, result, states):
  """Returns the numbers of a cell, and the summary behind them."""
  num_adaptation_steps, num_results = step_counts(config, index)
  summary = diagnostics.summarize(states)
  seconds = {key: float(value) for key, value in result.seconds.items()}
  running = seconds['adaptation'] + seconds['sampling']
  num_sampling_steps = num_results * (config.num_steps_between_results + 1)
  calls = {
    'adaptation': _calls(
      method.adapting_cost,
      result.adaptation_trace,
      num_adaptation_steps,
      config.num_chains,
    ),
    'sampling': _calls(
      method.frozen_cost, result.trace, num_sampling_steps, config.num_chains
    ),
  }
  min_ess = float(summary.ess.min())
  gradients = calls['sampling']['gradient'] if calls['sampling'] else None
  record = {
    'status': 'finished',
    'method': config.methods[index].name,
    'num_chains': config.num_chains,
    'num_adaptation_steps': num_adaptation_steps,
    'num_results': num_results,
    'seconds': seconds,
    'calls': calls,
    'accept_rate': _mean(result.trace, 'is_accepted'),
    'ess': _spread(summary.ess),
    'ess_squared': _spread(summary.ess_squared),
    'ess_bulk': _spread(summary.ess_bulk),
    'ess_tail': _spread(summary.ess_tail),
    'rhat_max': _finite(np.nanmax(summary.rhat, initial=-np.inf)),
    'worst_coordinate': int(np.argmin(summary.ess)),
    'min_ess_per_second': _finite(min_ess / running if running > 0 else np.nan),
    'min_ess_per_gradient': min_ess / gradients if gradients else None,
    'num_diverging': _sum(result.trace, 'diverging'),
    'entropy_weight': _last(result.adaptation_trace, 'entropy_weight'),
  }
  record.update(_against_truth(target, states, summary))
  if method.is_adaptive:
    record.update(_learned(method, target, result))
  return record, summary


def _calls(cost, trace, num_steps, num_chains):
  """Returns calls summed over steps and chains; None where not known."""
  if num_steps == 0:
    return {'target': 0, 'gradient': 0, 'hessian_vector': 0}
  if cost is None:
    leapfrogs = trace.get('extra', {}).get('leapfrogs_taken')
    if leapfrogs is None:
      return None
    per_step = float(np.mean(leapfrogs))
    cost = (per_step, per_step, 0)
  names = ('target', 'gradient', 'hessian_vector')
  return {
    name: int(round(value * num_steps * num_chains))
    for name, value in zip(names, cost, strict=True)
  }


def _against_truth(target, states, summary):
  """Returns the worst error of the means, in its own standard errors."""
  if target.covariance is None:
    return {}
  variance = np.diag(target.covariance)
  error = np.abs(states.mean(axis=(0, 1), dtype=np.float64) - target.mean)
  standard_error = np.sqrt(variance / np.maximum(summary.ess, 1.0))
  return {'max_mean_z_score': _finite(np.max(error / standard_error))}


def _learned(method, target, result):
  """Returns how far C C^T is from a multiple of the true covariance."""
  if target.covariance is None:
    return {}
  factor = tfpa.learned_factor(method.kernel, result.final_kernel_results)
  whitened = np.linalg.solve(np.asarray(factor, np.float64), target.covariance)
  whitened = np.linalg.solve(np.asarray(factor, np.float64), whitened.T)
  eigenvalues = np.linalg.eigvalsh(0.5 * (whitened + whitened.T))
  return {'learned_condition_number': _finite(eigenvalues[-1] / eigenvalues[0])}


def _curves(method, result, states, worst):
  """Returns the small arrays that the figures are drawn from."""
  arrays = {'worst_trace': _thin(states[:, 0, worst])}
  for phase, trace in (
    ('adaptation', result.adaptation_trace),
    ('sampling', result.trace),
  ):
    if 'target_log_prob' in trace:
      values = trace['target_log_prob']
      arrays[f'{phase}_log_prob'] = _thin(values.reshape(len(values), -1)[:, 0])
      arrays[f'{phase}_num_steps'] = np.asarray(len(values))
  for name in ('mean_accept_prob', 'entropy_weight', 'log_scale'):
    if name in result.adaptation_trace:
      arrays[f'adaptation_{name}'] = _thin(result.adaptation_trace[name])
  extra = result.adaptation_trace.get('extra', {})
  if 'factor_diagonal' in extra:
    arrays['factor_diagonal'] = _thin(extra['factor_diagonal'], _MAX_SNAPSHOTS)
  if method.is_adaptive:
    factor = tfpa.learned_factor(method.kernel, result.final_kernel_results)
    arrays['factor'] = np.asarray(factor)
  return arrays


def _draws(target, result, states):
  """Returns the posterior and sample_stats groups of the DataTree."""
  posterior = {'unconstrained': states}
  if target.constrain is not None:
    posterior.update(target.constrain(states))
  stats = {
    name: value
    for name, value in result.trace.items()
    if name != 'extra' and np.shape(value)[:2] == states.shape[:2]
  }
  names = {'target_log_prob': 'lp'}
  return posterior, {names.get(key, key): v for key, v in stats.items()}


def _numpy(trace):
  return tf.nest.map_structure(np.asarray, dict(trace or {}))


def _thin(values, limit=_MAX_CURVE):
  stride = max(1, -(-len(values) // limit))
  return np.asarray(values)[::stride]


def _spread(values):
  functions = {'min': np.min, 'median': np.median, 'max': np.max}
  return {
    name: _finite(function(values)) for name, function in functions.items()
  }


def _finite(value):
  return float(value) if np.isfinite(value) else None


def _mean(trace, name):
  return _finite(np.mean(trace[name])) if name in trace else None


def _sum(trace, name):
  return int(np.sum(trace[name])) if name in trace else None


def _last(trace, name):
  values = trace.get(name, ())
  return _finite(np.ravel(values)[-1]) if len(values) else None
