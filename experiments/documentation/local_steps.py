"""The tables of docs/results/local_steps.md, from the records.

  python -m experiments.documentation.local_steps

writes them between their comments, which a test compares.
"""

import numpy as np

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_lines

__all__ = ['with_tables']

_PAGE = page('local_steps')
_RECORDS = _PAGE.with_suffix('.jsonl')
_METHODS = {
  'one_size': 'steps of one size',
  'short': 'a fifth of the steps short',
  'local': 'local steps',
}
_SIZES = ('ess', 'ess_squared', 'ess_bulk', 'ess_tail')
_HEAD = (
  *('Target', 'HMC with', 'Gates passed', 'R-hat below 1.01'),
  *('Largest R-hat, median', 'Beyond 4 standard errors'),
  *('Min ESS per 1000 gradients', 'Range of leapfrog steps, median'),
  *('Accepted', 'Steps that are shorter'),
)
_FUNNEL_HEAD = (
  *('HMC with', 'Mean, truth 0', 'Root mean square error'),
  *('Deviation, truth 3', 'Root mean square error'),
  *('Share below -6, truth 0.0228', 'Root mean square error'),
)
_FUNNEL = (
  ('log_scale_mean', 0.0, 2),
  ('log_scale_deviation', 3.0, 2),
  ('share_in_neck', 0.02275, 4),
)


def with_tables(text):
  """Returns the page's text with the tables between their comments."""
  groups = {}
  for record in read_lines(_RECORDS):
    key = record['name'], record['method']
    groups.setdefault(key, []).append(record)
  rows = [_row(*key, runs) for key, runs in groups.items()]
  of_funnel = [
    _funnel_row(method, runs)
    for (name, method), runs in groups.items()
    if name == 'NealsFunnel'
  ]
  return fill(
    text, 'local_steps', [table(_HEAD, rows), table(_FUNNEL_HEAD, of_funnel)]
  )


def _row(name, method, runs):
  median = lambda key: np.median([run[key] for run in runs])
  fewest, most = np.median([run['num_leapfrog_steps'] for run in runs], axis=0)
  return [
    name.replace('_', ' '),
    _METHODS[method],
    f'{sum(not run["missed"] for run in runs)}/{len(runs)}',
    f'{sum("R-hat" not in run["missed"] for run in runs)}/{len(runs)}',
    f'{median("rhat"):.3f}',
    f'{sum(abs(run["worst_z"]) > 4.0 for run in runs)}',
    f'{np.median([_rate(run) for run in runs]):.3g}',
    f'{fewest:g} to {most:g}',
    f'{median("accept_rate"):.2f}',
    f'{median("share_shorter"):.2f}' if method == 'local' else '',
  ]


def _funnel_row(method, runs):
  cells = [_METHODS[method]]
  for key, truth, digits in _FUNNEL:
    found = np.array([run[key] for run in runs])
    error = np.mean((found - truth) ** 2) ** 0.5
    cells += [f'{np.mean(found):.{digits}f}', f'{error:.{digits}f}']
  return cells


def _rate(run):
  """Returns effective draws per 1000 gradients of all chains, the least."""
  thousands = run['num_chains'] * run['gradients_of_sampling'] / 1000.0
  return min(run[size] for size in _SIZES) / thousands


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
