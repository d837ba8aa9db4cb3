"""Cells as a run leaves them, in small and made up."""

import numpy as np

__all__ = ['write_cells']


def write_cells(rng, folder, config):
  """Writes every cell of a config into the `RunFolder`."""
  for index, label in enumerate(config.labels()):
    for repeat in range(config.num_repeats):
      arrays = {
        'worst_trace': rng.normal(size=20),
        'factor': np.eye(2) + 0.1 * rng.normal(size=(2, 2)),
        'adaptation_num_steps': np.asarray(10),
      }
      record = _record(rng, label, repeat)
      record['seed'] = [config.seed, repeat]
      folder.write_cell(index, label, repeat, record, arrays)


def _record(rng, label, repeat):
  """Returns what a finished cell leaves, in small."""
  spread = {'min': rng.uniform(5, 9), 'median': 10.5, 'max': 12.25}
  return {
    'status': 'finished',
    'method': 'mala',
    'label': label,
    'repeat': repeat,
    'seed': [1, repeat],
    'num_chains': 2,
    'num_adaptation_steps': 10,
    'num_results': 20,
    'seconds': {'compile': 1.5, 'adaptation': 0.5, 'sampling': rng.uniform()},
    'calls': {'adaptation': {'target': 20, 'gradient': 20}, 'sampling': None},
    'accept_rate': rng.uniform(),
    'ess': spread,
    'ess_squared': spread,
    'ess_bulk': spread,
    'ess_tail': spread,
    'ess_log_prob': 7.5,
    'rhat_max': 1.01,
    'rhat_median': 1.0,
    'min_ess_per_second': rng.uniform(1, 2),
    'worst_coordinate': 0,
    'is_continued': False,
    'warnings': ['None, really.'],
    'moments': {},
  }
