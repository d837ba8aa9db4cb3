"""The table of docs/results/tempering.md, from the records.

  python -m experiments.documentation.tempering

writes it between its two comments, which a test compares.
"""

import numpy as np

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_lines

__all__ = ['with_tables']

_PAGE = page('tempering')
_RECORDS = _PAGE.with_suffix('.jsonl')
_METHODS = {
  'tempered': 'replica exchange, HMC',
  'tempered_langevin': 'replica exchange, MALA',
  'alone': 'HMC alone',
}
_HEAD = (
  *('Target', 'Method', 'Budget', 'Gates passed', 'Largest R-hat, median'),
  *('Beyond 4 standard errors', 'Min ESS per 1000 gradients'),
  *('Gradients of a chain, thousands: adapting + sampling', 'Replicas'),
  *('Barrier', 'Round trips of a chain'),
)


def with_tables(text):
  """Returns the page's text with the table between its comments."""
  groups = {}
  for record in read_lines(_RECORDS):
    key = record['name'], record['method'], record['budget']
    groups.setdefault(key, []).append(record)
  # A target after the other, its methods and budgets in order.
  names, methods = list(dict.fromkeys(key[0] for key in groups)), [*_METHODS]
  order = sorted(
    groups,
    key=lambda key: (names.index(key[0]), methods.index(key[1]), key[2]),
  )
  rows = [_row(*key, groups[key]) for key in order]
  return fill(text, 'tempering', [table(_HEAD, rows)])


def _row(name, method, multiple, runs):
  passing = [run for run in runs if not run['missed']]
  rates = [_min_ess(run) / _thousands(run) for run in passing]
  median = lambda key: np.median([run[key] for run in runs])
  is_tempered = method != 'alone'
  return [
    name.replace('_', ' '),
    _METHODS[method],
    f'x{multiple}',
    f'{len(passing)}/{len(runs)}',
    f'{median("rhat"):.3f}',
    f'{sum(abs(run["worst_z"]) > 4.0 for run in runs)}',
    f'{np.median(rates):.3g}' if rates else '-',
    _spent(runs),
    f'{runs[0]["num_replicas"]}',
    f'{median("barrier"):.1f}' if is_tempered else '',
    f'{median("num_restarts") / runs[0]["num_chains"]:.0f}'
    if is_tempered
    else '',
  ]


def _min_ess(run):
  return min(run[key] for key in ('ess', 'ess_squared', 'ess_bulk', 'ess_tail'))


def _spent(runs):
  """Returns the median gradients of both phases, of all replicas together."""
  phases = ('gradients_of_adaptation', 'gradients_of_sampling')
  spent = (np.median([run[phase] for run in runs]) / 1e3 for phase in phases)
  return ' + '.join(f'{thousands:.3g}' for thousands in spent)


def _thousands(run):
  """Returns the gradients of all chains while sampling, in thousands."""
  return run['num_chains'] * run['gradients_of_sampling'] / 1000.0


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
