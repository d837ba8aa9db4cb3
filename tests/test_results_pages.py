"""Tables that join several records hold the records' numbers."""

import pathlib
import re

import pytest

from experiments.documentation import geometry
from experiments.documentation.readme_table import value

RESULTS = pathlib.Path(__file__).resolve().parent.parent / 'docs' / 'results'
_GRADIENT = 'ESS/gradient (min, med)'
_SAMPLING = 'Sampling alone: ESS/s (min, med)'
_ADAPTING = 'Min ESS/s (1 st.d.), median'
_ESS = 'ESS (min, med, max)'
# By column: the record, and the line that each row shows.
_MODELS = {
  'figure13_heart': (
    'GSM HMC-3', 'GSM HMC-5, paper', '', 'NUTS (N)', 'NUTS (AN)', 'HMC-1',
  ),
  'figure16_german': (
    'GSM HMC-3', 'GSM HMC-5, paper', '', 'NUTS (N)', 'NUTS (AN)', 'HMC-5',
  ),
  'figure18_cox_64': (
    'GSM HMC-5', 'GSM HMC-5, paper', 'RM-HMC-3', 'NUTS (N)', '', 'HMC-1',
  ),
  'figure19_cox_256': (
    'GSM HMC-5', 'GSM HMC-5, paper', 'RM-MALA', 'NUTS (N)', '', 'HMC-1',
  ),
}  # fmt: skip
_LATENT = ('mGrad', 'aGrad-u', 'aGrad-z', 'pMALA', 'pCNL', 'Ellipt', 'pCN')


def _table(page, first):
  """Returns the cells of the table whose header starts so, without it."""
  lines = (RESULTS / f'{page}.md').read_text().splitlines()
  start = next(i for i, line in enumerate(lines) if line.startswith(first))
  rows = []
  for line in lines[start + 2 :]:
    if not line.startswith('|'):
      return rows
    rows.append([cell.strip() for cell in line.strip('|').split('|')])
  return rows


def _numbers(cell):
  found = re.findall(r'\d+(?:\.\d+)?(?:e-\d+)?', cell.replace('*', ''))
  return [float(number) for number in found]


@pytest.mark.parametrize('column', range(4))
def test_the_cells_of_hmc_on_models_are_those_of_the_records(column):
  record, lines = list(_MODELS.items())[column]
  rows = _table('hamiltonian_models', '| Method | Heart')
  assert len(rows) == len(lines)
  for row, line in zip(rows, lines):
    cell = row[column + 1]
    if not line:
      assert not cell
      continue
    per_gradient, *others = _numbers(cell)
    expected = 1000 * value(record, _GRADIENT, line)
    assert per_gradient == pytest.approx(expected, rel=0.01, abs=0.51)
    # The paper's settings were run on another day's core.
    assert bool(others) != line.endswith('paper')
    if others:
      second = _ADAPTING if 'with adaptation' in cell else _SAMPLING
      expected = value(record, second, line)
      assert others[0] == pytest.approx(expected, rel=0.005, abs=0.5)


@pytest.mark.parametrize(
  'column, record, num_chains',
  [(1, 'gp_heart', 1), (3, 'regression_noise_001', 1), (5, 'cox_64', 4)],
)
def test_the_cells_of_latent_samplers_are_those_of_the_records(
  column, record, num_chains
):
  rows = _table('latent_gaussian', '| | GP classification')
  assert len(rows) == len(_LATENT)
  for row, line in zip(rows, _LATENT):
    for index, number in enumerate(_numbers(row[column])):
      expected = value(record, _ESS, line, index=index) / num_chains
      assert number == pytest.approx(expected, abs=0.51)
    for number in _numbers(row[column + 1]):
      expected = value(record, 'Learned delta', line)
      assert number == pytest.approx(expected, rel=0.07)  # One digit.


def test_the_table_of_geometry_is_that_of_its_records():
  text = (RESULTS / 'geometry.md').read_text()
  assert text.count('\n| ') > 20
  assert geometry.with_tables(text) == text
  # Power: a number more is seen.
  assert geometry.with_tables(text.replace('/10 |', '/11 |', 1)) == text
