"""What is stored of a cell: small, and enough for every table of the page."""

import functools
import pathlib
import subprocess

import numpy as np

import tfp_adaptive as tfpa
from experiments.panel import accuracy
from experiments.panel import budget
from experiments.panel.truth import coordinates

__all__ = ['commit', 'failed_record', 'finished_record', 'head']

_MAX_TRACEBACK = 800


def head(panel, target_index, method_index, key):
  """Returns what all records of a pair begin with."""
  config = panel.config
  return {
    'target': config.target_label(target_index),
    'method': config.method_label(method_index),
    'method_name': config.methods[method_index].name,
    'is_peer': _is_peer(config.methods[method_index]),
    'key': key,
    'gates': panel.gates_digest,
    'gates_version': panel.gates.version,
    'library': tfpa.__version__,
    'commit': commit(),
    'dtype': panel.dtype(target_index),
    'num_chains': config.num_chains,
  }


def _is_peer(method):
  """Returns whether a method's sampler is not of this library."""
  module = type(method).__module__.rpartition('.')[2]
  return module in ('baselines', 'windowed') or module.startswith('peer')


def failed_record(status, error, trace=None):
  """Returns the record of a cell without numbers."""
  record = {'status': status, 'error': error[:_MAX_TRACEBACK]}
  if trace:
    record['traceback'] = trace[-_MAX_TRACEBACK:]
  return record


def finished_record(panel, result, target, truth):
  """Returns the record of a run that came to its end.

  Args:
    panel: the `Panel`.
    result: the `CellResult`.
    target: the `Target`.
    truth: the `Truth`, or None.
  """
  states = result.draws[0]['unconstrained']
  if not np.isfinite(states).all():
    share = 1 - float(np.isfinite(states).mean())
    return failed_record('failed', f'{share:.2%} of the draws are not finite.')
  # Samplers that do not thin may leave more than memory holds in float64.
  stride = -(-len(states) // panel.config.max_draws)
  full = result.record
  num_chains = full['num_chains']
  spent = budget.spent(full['calls'], num_chains)
  record = {
    'status': 'finished',
    'event_size': target.event_size,
    'num_adaptation_steps': full['num_adaptation_steps'],
    'num_results': full['num_results'],
    'calls': full['calls'],
    'gradients_per_chain': spent and spent._asdict(),
    'seconds': full['seconds'],
    'accept_rate': full['accept_rate'],
    'rhat_max': full['rhat_max'],
    'ess': full['ess'],
    'min_ess_squared': full['ess_squared']['min'],
    'min_ess_bulk': full['ess_bulk']['min'],
    'min_ess_tail': full['ess_tail']['min'],
    'num_diverging': full['num_diverging'],
    'warnings': [text[:200] for text in full['warnings'][:3]],
    **_against(truth, target, states[::stride], spent),
  }
  record['missed'] = _missed(panel.gates, record)
  record['is_biased'] = _is_biased(panel.gates, record)
  return record


def _against(truth, target, states, spent):
  """Returns b^2 by gradients spent and the worst z; None without a truth."""
  if truth is None:
    return {'truth': None, 'z': None, 'squared_bias': None}
  draws = coordinates(target, states)
  curve = accuracy.squared_bias_curve(draws, truth)
  gradients = None
  if spent is not None:
    per_draw = spent.sampling / len(draws)
    gradients = [
      round(spent.adaptation + k * per_draw) for k in curve.num_draws
    ]
  return {
    'truth': {
      'of': truth.source,
      'of_square': truth.square_source,
      'is_converged': truth.is_converged,
      'gym_z': truth.gym_z,
    },
    'z': accuracy.worst_z(draws, truth)._asdict(),
    'squared_bias': {'gradients': gradients, **curve._asdict()},
  }


def _missed(gates, record):
  """Returns the names of the gates that the run did not pass."""
  missed = []
  if record['rhat_max'] is None or record['rhat_max'] >= gates.max_rhat:
    missed.append('R-hat')
  # A coordinate that never moves has no R-hat, and no effective draw.
  sizes = [record['ess']['min']]
  sizes += [record[f'min_ess_{kind}'] for kind in ('squared', 'bulk', 'tail')]
  if any(size is None or size < gates.min_ess for size in sizes):
    missed.append('ESS')
  return missed


def _is_biased(gates, record):
  """Returns whether a run that passed is off the truth; None: not judged."""
  if record['missed'] or not (record['truth'] or {}).get('is_converged'):
    return None
  return abs(record['z']['worst']) > gates.max_abs_z


@functools.cache
def commit():
  """Returns the checkout's commit, None outside of one."""
  try:
    found = subprocess.run(
      ['git', 'describe', '--always', '--dirty'],
      cwd=pathlib.Path(__file__).parent,
      capture_output=True,
      text=True,
      check=True,
    )
  except (OSError, subprocess.CalledProcessError):
    return None
  return found.stdout.strip()
