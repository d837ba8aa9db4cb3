"""One method on one target with one seed: run, measure, record."""

import time
import warnings
import zlib
from typing import Any
from typing import NamedTuple
from typing import Optional

import arviz_base
import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.papers import learned
from experiments.papers import shrinkage
from experiments.papers.measurements import measure
from experiments.papers.measurements import step_counts
from experiments.papers.starts import make_starts

# Most points of a curve that is kept only to be drawn.
_MAX_CURVE = 4000
_MAX_SNAPSHOTS = 60
# Larger factors are kept as images only.
MAX_STORED_FACTOR = 1000
_STATE = 'state'


class CellResult(NamedTuple):
  """What a finished cell leaves behind."""

  record: dict
  arrays: dict
  # (posterior, sample_stats) or None. Arrays are [num_draws, num_chains, ...].
  draws: Optional[Any]

  def tree(self) -> Any:
    """Returns the draws as an ArviZ DataTree, or `None`."""
    if self.draws is None:
      return None
    groups = {
      name: {key: np.swapaxes(value, 0, 1) for key, value in group.items()}
      for name, group in zip(('posterior', 'sample_stats'), self.draws)
      if group
    }
    return arviz_base.from_dict(groups)


def cell_seed(config, label, repeat):
  """Returns two seed words, which differ between methods and repeats."""
  entropy = [config.seed, repeat, zlib.crc32(label.encode())]
  words = np.random.SeedSequence(entropy).generate_state(2)
  return tuple(int(word & 0x7FFFFFFF) for word in words)


def run_cell(config, index, method, target, repeat, checkpoint_dir, progress):
  """Runs one method once and returns its `CellResult`.

  Args:
    repeat: Number of the repeat, which decides the seed and the starts.
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
    trace_fn=method.trace_fn if config.discard_adaptation else _state,
    jit_compile=config.jit_compile,
    progress=progress,
    checkpoint_dir=str(checkpoint_dir) if checkpoint_dir else None,
  )
  is_continued = checkpoint_dir is not None and any(
    checkpoint_dir.glob('*.npz')
  )
  start = time.perf_counter()
  # The record keeps warnings, because those on a terminal are lost.
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always', UserWarning)
    result = sample(method, **arguments)
  wall = time.perf_counter() - start
  result = result._replace(
    states=np.asarray(result.states),
    trace=_numpy(result.trace),
    adaptation_trace=_numpy(result.adaptation_trace),
  )
  if not config.discard_adaptation:
    result = _of_all_steps(result)
  if target.view is not None:
    result = result._replace(states=target.view(result.states))
  factor = learned.learned_factor(method, result, target.event_size)
  record, summary = measure(config, index, method, target, result, factor)
  record['seed_words'] = list(arguments['seed'])
  # The wall time is that of this session; the checkpoint adds other times up.
  record['seconds']['wall'] = wall
  record['is_continued'] = is_continued
  record['warnings'] = [
    str(w.message) for w in caught if issubclass(w.category, UserWarning)
  ]
  arrays = _curves(result, int(np.argmin(summary.ess)), factor)
  arrays.update(shrinkage.spectrum(target, result.states))
  draws = _draws(target, result) if config.save_draws else None
  return CellResult(record, arrays, draws)


def sample(method, **arguments):
  """Runs a method by its own `sample_fn` or by `tfpa.sample`."""
  if method.sample_fn is not None:
    return method.sample_fn(**arguments)
  return tfpa.sample(method.kernel, **arguments)


def _state(state, kernel_results):
  del kernel_results
  return {_STATE: state}


def _of_all_steps(result):
  """Returns a result whose draws and trace begin with the adapting steps."""
  first, last = result.adaptation_trace, result.trace
  adapting = first['extra'][_STATE]
  return result._replace(
    states=np.concatenate([adapting, result.states]),
    trace={
      name: np.concatenate([first[name], last[name]])
      for name in last
      if name != 'extra' and name in first
    },
    adaptation_trace={},
  )


def _curves(result, worst, factor):
  """Returns the small arrays that the figures are drawn from."""
  arrays = {'worst_trace': _thin(result.states[:, 0, worst])}
  for phase, trace in (
    ('adaptation', result.adaptation_trace),
    ('sampling', result.trace),
  ):
    if len(trace.get('target_log_prob', ())):
      values = trace['target_log_prob']
      arrays[f'{phase}_log_prob'] = _thin(values.reshape(len(values), -1)[:, 0])
      arrays[f'{phase}_num_steps'] = np.asarray(len(values))
  for name, values in result.adaptation_trace.items():
    if name != 'extra' and np.ndim(values) == 1:
      arrays[f'adaptation_{name}'] = _thin(values)
  extra = result.adaptation_trace.get('extra', {})
  if 'factor_diagonal' in extra:
    arrays['factor_diagonal'] = _thin(extra['factor_diagonal'], _MAX_SNAPSHOTS)
  if factor is not None:
    arrays.update(_factor_arrays(factor))
  return arrays


def _factor_arrays(factor):
  """Returns a small factor itself, and the images of any factor."""
  arrays = {}
  if len(factor) <= MAX_STORED_FACTOR:
    dense = np.diag(factor) if factor.ndim == 1 else factor
    arrays['factor'] = dense.astype(np.float32)
  try:
    arrays.update(learned.images(factor))
  except np.linalg.LinAlgError:  # The factor is singular.
    pass
  return arrays


def _draws(target, result):
  """Returns the posterior and sample_stats groups of the DataTree."""
  states = result.states
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
