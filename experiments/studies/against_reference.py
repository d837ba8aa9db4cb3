"""How right and how fast draws are: of runs that kept all their states.

  KS       largest distance of the distribution functions of the first
           coordinate, and of the mean of all of them, from exact draws; its
           p-value counts as many draws as the effective sample size
  MMD      distance in all mixed moments up to order three of the first t
           states from exact draws, or from those of a reference run
  min ESS  per step and per call of the target (or estimate of it)
References: Strathmann et al. (2015), Figure 4,
https://arxiv.org/abs/1506.02564.
"""

import numpy as np
import scipy.stats

from experiments.framework.diagnostics import geyer_ess
from experiments.framework.errors import ConfigError
from experiments.framework.errors import shortened
from experiments.studies.mixed_moments import MomentDistance
from experiments.targets.base import BuildContext

__all__ = ['compare', 'kolmogorov_smirnov', 'reference_states', 'to_markdown']

_NUM_EXACT = 100000
_AT = (500, 1000, 2000, 3000, 4000, 6000, 10000)


def reference_states(folder):
  """Returns states [n, d] after adaptation of all cells of a run, pooled."""
  config = folder.config()
  states = []
  for index, label in enumerate(config.labels()):
    for repeat in range(config.num_repeats):
      record, kept = _read(folder, index, label, repeat)
      kept = kept[record['num_adaptation_steps'] :]
      states.append(kept.reshape(-1, kept.shape[-1]))
  return np.concatenate(states)


def _read(folder, index, label, repeat):
  """Returns (record, states) of a cell."""
  record = folder.read_cell(index, label, repeat)
  states = folder.read_arrays(index, label, repeat).get('states')
  if states is None or record['status'] != 'finished':
    path = folder.cell_path(index, label, repeat)
    raise ConfigError(
      f'{shortened(path, 160)} has no states; finish a run with '
      'keep_states: true.'
    )
  return record, states


def kolmogorov_smirnov(draws, exact):
  """Returns (distance, p-value) of chains [n, chains] from exact draws [k]."""
  distance = scipy.stats.ks_2samp(draws.ravel(), exact).statistic
  ess = min(geyer_ess(draws).sum(), draws.size)
  count = ess * len(exact) / (ess + len(exact))
  return float(distance), float(
    scipy.special.kolmogorov(np.sqrt(count) * distance)
  )


def compare(folder, reference=None, first=0, data_dir=None):
  """Returns rows, one dict for each method and repeat of a run.

  Args:
    folder: the `RunFolder` of a config with `keep_states: true`.
    reference: [n, d] of another run; None: exact draws of the target.
    first: steps left out of effective sample sizes, 0: the adapting ones. KS
      has none of those, MMD all steps.
    data_dir: where local copies of data sets are.

  Raises:
    ConfigError: if there is nothing to compare, or to compare with.
  """
  config = folder.config()
  target = config.target.build(BuildContext(config.dtype, data_dir))
  is_exact = reference is None
  if is_exact:
    if target.exact_draws_fn is None:
      raise ConfigError(
        f'{target.name} has no exact draws; name a reference, the folder of a '
        'run, with --reference.'
      )
    reference = target.exact_draws_fn(_NUM_EXACT, 0)
  distance = MomentDistance(reference)
  rows = []
  for index, label in enumerate(config.labels()):
    for repeat in range(config.num_repeats):
      record, states = _read(folder, index, label, repeat)
      rows.append(_row(record, states, reference, distance, first))
  return rows


def _row(record, states, reference, distance, first):
  num_steps, num_chains, _ = states.shape
  kept = states[max(first, record['num_adaptation_steps']) :]
  measured = states[first:] if first else kept
  ess = geyer_ess(measured).sum(axis=0)
  calls = record['calls']
  at = [count for count in _AT if count <= num_steps]
  per_step = calls['sampling']['target'] / (record['num_results'] * num_chains)
  steps = len(measured) * num_chains
  return {
    'label': record['label'],
    'repeat': record['repeat'],
    'accept_rate': record['accept_rate'],
    'min_ess': float(ess.min()),
    'min_ess_per_step': float(ess.min() / steps),
    'min_ess_per_call': float(ess.min() / steps / per_step),
    'num_simulations': record['num_simulations'],
    'num_calls': sum(phase['target'] for phase in calls.values()),
    'ks_first': kolmogorov_smirnov(kept[..., 0], reference[:, 0]),
    'ks_mean': kolmogorov_smirnov(kept.mean(axis=-1), reference.mean(axis=-1)),
    'mmd': dict(zip(at, distance.along(states, at).tolist(), strict=True)),
    'seconds': record['seconds']['adaptation'] + record['seconds']['sampling'],
  }


def to_markdown(rows):
  """Returns the table, means over repeats."""
  at = sorted(set.intersection(*(set(row['mmd']) for row in rows)))
  names = (
    'Method',
    'Acceptance',
    'Min ESS',
    'per step',
    'per target call',
    'Target calls',
    'Simulations',
    'KS of theta_1 (p)',
    'KS of the mean (p)',
    *(f'MMD at {count}' for count in at),
    'Seconds',
    'Repeats',
  )
  lines = [names, ['---'] * len(names)]
  for label in dict.fromkeys(row['label'] for row in rows):
    lines.append(_cells([r for r in rows if r['label'] == label], at))
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines) + '\n'


def _cells(rows, at):
  def mean(name):
    values = [row[name] for row in rows]
    return None if None in values else np.mean(values)

  def shown(name, form):
    return '-' if mean(name) is None else format(mean(name), form)

  distances = [np.mean([row['mmd'][count] for row in rows]) for count in at]
  return [
    rows[0]['label'],
    shown('accept_rate', '.3f'),
    shown('min_ess', '.1f'),
    shown('min_ess_per_step', '.5f'),
    shown('min_ess_per_call', '.5f'),
    shown('num_calls', '.0f'),
    shown('num_simulations', '.3g'),
    *(
      '{:.3f} ({:.2g})'.format(*np.mean([row[name] for row in rows], axis=0))
      for name in ('ks_first', 'ks_mean')
    ),
    *(f'{value:.2f}' for value in distances),
    shown('seconds', '.1f'),
    str(len(rows)),
  ]
