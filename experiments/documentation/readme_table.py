"""The table of results in the README, made from the records.

  python -m experiments.documentation.readme_table

writes it between its two comments. Each row names the places of its two
numbers, so that none is written by hand; the test of the README compares.
"""

import pathlib
import re
from typing import NamedTuple

from experiments.documentation.made_tables import fill

__all__ = ['value', 'with_table']

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_RESULTS = 'docs/results'
_NUMBER = re.compile(r'\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?')
# Columns of the tables that runs write.
_ESS = 'ESS (min, med, max)'
_PER_GRADIENT = 'ESS/gradient (min, med)'
_PER_SECOND = 'Sampling alone: ESS/s (min, med)'
_WITH_ADAPTATION = 'Min ESS/s (1 st.d.), median'
_RHAT = 'R-hat (max, med)'
_MAX_RHAT = 1.01
_GYM = 'inference_gym/tables'
_GYM_GRADIENT = 'Min ESS per 1000 gradients'
_GYM_SECOND = 'Min ESS per second'


class _Row(NamedTuple):
  """A posterior, what was measured, and the library's number and a rival's."""

  posterior: str
  page: str
  measure: str
  record: str
  column: str
  # Name to show, and the first cells of the line.
  own: tuple
  rival: tuple
  heading: str = ''
  factor: float = 1.0
  fewer_is_better: bool = False
  # Column of R-hat; '' where the record has none.
  rhat: str = _RHAT
  # Whether the page says in words that the library's is above the bound.
  is_rough: bool = False


def _gym(posterior, target, per_second, own, rival):
  measure = 'per second, adaptation included' if per_second else _GRADIENTS
  heading = _GYM_SECOND if per_second else _GYM_GRADIENT
  return _Row(
    posterior, 'panel', measure, _GYM, target, own, rival, heading, rhat=''
  )


_GRADIENTS = 'per 1000 gradients'
_SECONDS = 'per second of sampling'
_MATRIX = ('HMC dense, L = 3', 'GSM HMC-3')
_MODEL = 'hamiltonian_models'
_SP500 = 'stochastic_volatility'
_ARROW = ('HMC, arrow', 'GSM HMC-4, arrow')
_BEST_NUTS = ('NUTS, non-centered', 'NUTS (windowed, non_centered)')
_MAP = ('HMC, RealNVP', 'RealNVP HMC-3')
_ROWS = (
  _Row(
    'Heart, d = 14', _MODEL, _SECONDS,
    'figure13_heart', _PER_SECOND, _MATRIX, ('HMC, L = 3', 'HMC-3'),
  ),
  _Row(
    'Heart, d = 14', _MODEL, _GRADIENTS,
    'figure13_heart', _PER_GRADIENT, _MATRIX, ('HMC, L = 3', 'HMC-3'),
    factor=1000,
  ),
  _Row(
    'S&P 500, d = 2519', _SP500, _SECONDS,
    _SP500, _PER_SECOND, _ARROW, _BEST_NUTS,
  ),
  _Row(
    'S&P 500, d = 2519', _SP500, 'per second, adaptation included',
    _SP500, _WITH_ADAPTATION, _ARROW, _BEST_NUTS,
  ),
  _Row(
    'S&P 500, 100 days', 'volatility_100_days', _GRADIENTS,
    'volatility_100_days', _PER_GRADIENT, ('MALA, learned', 'gadMALAf'),
    ('NUTS', 'NUTS'), factor=1000,
  ),
  _Row(
    'Cox process, 64 cells', _MODEL, _SECONDS,
    'figure18_cox_64', _PER_SECOND, ('HMC dense, L = 5', 'GSM HMC-5'),
    ('Riemannian HMC', 'RM-HMC-3'),
  ),
  _Row(
    'Cox process, 256 cells', _MODEL, _SECONDS,
    'figure19_cox_256', _PER_SECOND, ('HMC dense, L = 5', 'GSM HMC-5'),
    ('NUTS, unit mass', 'NUTS (N)'),
  ),
  _Row(
    'GP regression, d = 1001', 'latent_gaussian', 'of 5000 draws',
    'regression_noise_001', _ESS, ('mGrad', 'mGrad'), ('pCNL', 'pCNL'),
  ),
  _Row(
    'Banana, d = 2', 'figure6_banana', _GRADIENTS,
    'figure6_banana', _PER_GRADIENT, _MAP, ('HMC', 'HMC-3'), factor=1000,
  ),
  _Row(
    'Banana, d = 2', 'figure6_banana', _SECONDS,
    'figure6_banana', _PER_SECOND, _MAP, ('HMC', 'HMC-3'),
  ),
  _Row(
    'ABC, d = 10, no gradient', 'kernel_hamiltonian', 'per 1000 estimates',
    'figure4_skew_normal', 'per target call', ('kernel HMC', 'KMC finite'),
    ('random walk', 'RWM'), factor=1000, rhat='',  # Against exact draws.
  ),
  _Row(
    'Noisy likelihood, ten chains', 'kernel_hamiltonian',
    'per 1000 estimates', 'gp_wine', 'Min ESS per estimate',
    ('kernel HMC', 'KMC finite', '10'), ('random walk', 'Random walk', '10'),
    factor=1000, rhat='', is_rough=True,
  ),
  _Row(
    'Noisy likelihood, one chain', 'kernel_hamiltonian',
    'per 1000 estimates', 'gp_wine', 'Min ESS per estimate',
    ('kernel HMC', 'KMC finite', '1'), ('adaptive Metropolis', 'AM', '1'),
    factor=1000, rhat='',
  ),
  _Row(
    'Brownian motion, d = 32', 'brownian_motion',
    'gradients for one (fewer is better)', 'brownian_motion',
    'Gradients per min ESS',
    (
      'MALA, Fisher divergence',
      'Fisher-divergence MALA, dense, 10000 adaptation steps',
    ),
    ('nutpie, low rank', 'nutpie (low rank)'), fewer_is_better=True,
    rhat='largest R-hat',
  ),
  _gym(
    'Gym: ill-conditioned, d = 100', 'IllConditionedGaussian', False,
    ('HMC, dense', 'GSM HMC-5'), ('nutpie, low rank', 'nutpie (low rank)'),
  ),
  _gym(
    'Gym: German credit', 'logistic_regression_german', True,
    ('HMC, dense', 'GSM HMC-5'), ('SNAPER', 'SNAPER-HMC'),
  ),
  _gym(
    'Gym: heart', 'logistic_regression_heart', False,
    ('kernel HMC', 'KMC finite'), ('ChEES', 'BlackJAX ChEES'),
  ),
  _gym(
    'Gym: eight schools', 'EightSchools', True,
    ('HMC, diagonal', 'GSM HMC-5, diagonal'), ('SNAPER', 'SNAPER-HMC'),
  ),
  _gym(
    'Gym: banana', 'Banana', True,
    ('random walk', 'gadRWM'), ('ChEES', 'BlackJAX ChEES'),
  ),
)  # fmt: skip


def value(record, column, *line, heading='', index=0):
  """Returns a number of a cell of a record's table.

  Args:
    record: the file below docs/results, without its ending.
    column: the column's name.
    *line: the first cells of the line.
    heading: the heading that the table follows; the first table by default.
    index: which of the cell's numbers.

  Raises:
    ValueError: no such cell.
  """
  path = _ROOT / _RESULTS / f'{record}.md'
  text = path.read_text(encoding='utf-8')
  if heading:
    text = text.partition(f'## {heading}\n')[2].partition('\n## ')[0]
  header = None
  for cells in map(_cells, text.splitlines()):
    if column in cells and not header:
      header = cells
    elif header and tuple(cells[: len(line)]) == line:
      found = _NUMBER.findall(cells[header.index(column)])[index]
      return float(found.replace(',', ''))
  raise ValueError(f'{path}: no line {line} with the column {column!r}.')


def with_table(text):
  """Returns the README's text with the table between its comments."""
  return fill(text, 'readme_table', [_table()])


def _table():
  lines = [
    '| Posterior | Effective draws | tfp_adaptive | Rival | Ratio |',
    '|---|---|---|---|---|',
  ]
  entries = [
    (row, _shown(row, row.own), _shown(row, row.rival)) for row in _ROWS
  ]
  for row, own, rival in sorted(entries, key=_is_loss):
    link = f'[{row.posterior}]({_RESULTS}/{row.page}.md)'
    ratio = _ratio(row, own, rival)
    verdict = f'{ratio:.2g}' if ratio >= 1 else f'**{ratio:.2g}**'
    lines.append(
      f'| {link} | {row.measure} | {row.own[0]}: {_number(own)}'
      f'{_mark(row, row.own)} | {row.rival[0]}: {_number(rival)}'
      f'{_mark(row, row.rival)} | {verdict} |'
    )
  return '\n'.join(lines) + '\n'


def _shown(row, side):
  _, *line = side
  return row.factor * value(row.record, row.column, *line, heading=row.heading)


def _mark(row, side):
  """Returns a star where the record says that chains have not met."""
  _, *line = side
  if not row.rhat:
    return '\\*' if row.is_rough and side is row.own else ''
  try:
    rhat = value(row.record, row.rhat, *line)
  except IndexError:  # A dash.
    return ''
  return '\\*' if rhat > _MAX_RHAT else ''


def _ratio(row, own, rival):
  return rival / own if row.fewer_is_better else own / rival


def _is_loss(entry):
  return _ratio(*entry) < 1


def _number(number):
  return f'{number:.0f}' if number >= 100 else f'{number:.3g}'


def _cells(line):
  return [cell.strip(' *') for cell in line.strip().strip('|').split('|')]


if __name__ == '__main__':
  readme = _ROOT / 'README.md'
  table = with_table(readme.read_text(encoding='utf-8'))
  readme.write_text(table, encoding='utf-8')
