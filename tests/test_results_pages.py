"""Tables that join several records hold the records' numbers."""

import json
import pathlib
import re

import pytest

from experiments.documentation import evaluation
from experiments.documentation import front_door
from experiments.documentation import geometry
from experiments.documentation import gpu
from experiments.documentation import local_steps
from experiments.documentation import many_chains
from experiments.documentation import outlook
from experiments.documentation import panel
from experiments.documentation import papers
from experiments.documentation import quickstart
from experiments.documentation import rivals
from experiments.documentation import tempering
from experiments.documentation import trajectory_length
from experiments.documentation.readme_table import value

RESULTS = pathlib.Path(__file__).resolve().parent.parent / 'docs' / 'results'
_GRADIENT = 'ESS/gradient (min, med)'
_SAMPLING = 'Sampling alone: ESS/s (min, med)'
_ADAPTING = 'Min ESS/s (1 st.d.), median'
_ESS = 'ESS (min, med, max)'
# By column: the record, and the line that each row shows.
_MODELS = {
  'figure13_heart': (
    'GSM HMC-3', 'GSM HMC-5, paper', '', 'NUTS (N)', 'NUTS (AN)', 'HMC-3',
  ),
  'figure16_german': (
    'GSM HMC-3', 'GSM HMC-5, paper', '', 'NUTS (N)', 'NUTS (AN)', 'HMC-3',
  ),
  'figure18_cox_64': (
    'GSM HMC-5', 'GSM HMC-5, paper', 'RM-HMC-3', 'NUTS (N)', '', 'HMC-1',
  ),
  'figure19_cox_256': (
    'GSM HMC-5', 'GSM HMC-5, paper', 'RM-MALA', 'NUTS (N)', '', 'HMC-1',
  ),
}  # fmt: skip
_LATENT = ('mGrad', 'aGrad-u', 'aGrad-z', 'pMALA', 'pCNL', 'Ellipt', 'pCN')

_CLASSIFIED = ('mGrad', 'aGrad-u', 'aGrad-z', 'pCNL')
_CRITERIA = (
  'GSM HMC-{}{}',
  'GSM HMC-{}{}, paper',
  'ESJD HMC-{}{}, paper',
  'L2HMC HMC-{}{}, paper',
)


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


def test_the_cells_of_classifiers_are_those_of_the_records():
  rows = _table('latent_gaussian', '| | mGrad | paper')
  assert len(rows) == 5
  for row in rows:
    record = re.search(r'gp_\w+', row[0])[0]
    for column, line in enumerate(_CLASSIFIED):
      for index, number in enumerate(_numbers(row[1 + 2 * column])):
        expected = value(record, _ESS, line, index=index)
        assert number == pytest.approx(expected, abs=0.51)


@pytest.mark.parametrize(
  'title, record, suffix',
  [
    ('correlated', 'table2_correlated', ''),
    ('ill-conditioned', 'table1_ill_conditioned', ', diagonal'),
  ],
)
def test_the_cells_of_criteria_are_those_of_the_records(title, record, suffix):
  heading = '5000 adapting and 5000 recorded steps'
  rows = _table('hamiltonian_gaussians', '| Target, L | default')
  rows = [row for row in rows if row[0].startswith(title)]
  assert len(rows) == 6
  for row in rows:
    length = '' if '1e5' in row[0] else heading
    steps = row[0].split('L = ')[1]
    for criterion, cell in zip(_CRITERIA, row[1:], strict=True):
      line = criterion.format(steps, suffix)
      expected = value(record, _ESS, line, heading=length)
      assert _numbers(cell)[0] == pytest.approx(expected, abs=0.51)


@pytest.mark.parametrize(
  'record, suffix',
  [('table2_correlated', ''), ('table1_ill_conditioned', ', diagonal')],
)
def test_what_is_left_of_conditions_is_that_of_the_records(record, suffix):
  rows = _table('hamiltonian_gaussians', '| Target (condition before)')
  name = 'correlated' if record.startswith('table2') else 'ill-conditioned'
  rows = [row for row in rows if row[0].startswith(name)]
  assert len(rows) == 4
  for row in rows:
    line = f'GSM HMC-{row[1]}{suffix}'
    heading = '5000 adapting and 5000 recorded steps'
    kept = {'heading': heading}
    left = value(record, 'Learned beta, condition', line, index=1, **kept)
    assert _numbers(row[2])[0] == pytest.approx(left, abs=0.006)
    assert _numbers(row[3])[0] == pytest.approx(
      value(record, _GRADIENT, line, **kept), abs=6e-4
    )
    assert _numbers(row[5])[0] == pytest.approx(
      value(record, 'Accept rate', line, **kept), abs=0.006
    )


# Of modules whose page has another name.
_PAGES = {'evaluation': '../evaluation'}


@pytest.mark.parametrize(
  'module, num_lines, changed',
  [
    (evaluation, 14, ('| sample_posterior | 10', '| sample_posterior | 11')),
    (front_door, 20, ('| 103 |', '| 104 |')),
    (geometry, 60, ('/10 |', '/11 |')),
    (gpu, 95, ('178 of 178', '177 of 178')),
    (local_steps, 12, ('| local steps |', '| steps |')),
    (many_chains, 20, ('| MALA | 10 |', '| MALA | 11 |')),
    (panel, 12, ('| all | ', '| all | 1')),
    (outlook, 20, ('| 3 to 5, 3 to 5, 3 to 5 |', '| 3 to 5, 3 to 5, 3 to 6 |')),
    (papers, 250, ('| 189, 593, 1097 |', '| 199, 593, 1097 |')),
    # Two posteriors, two samplers; the other table is that of the terminal.
    (quickstart, 6, ('NOT CONVERGED', 'converged')),
    (rivals, 60, ('| horseshoe | 103 |', '| horseshoe | 104 |')),
    (tempering, 10, ('| 10/10 |', '| 9/10 |')),
    (trajectory_length, 30, ('(L = 4)', '(L = 5)')),
  ],
)
def test_tables_that_are_made_are_those_of_their_records(
  module, num_lines, changed
):
  name = module.__name__.rpartition('.')[2]
  path = RESULTS / f'{_PAGES.get(name, name)}.md'
  text = path.read_text()
  assert text.count('\n| ') >= num_lines
  assert module.with_tables(text) == text
  # Power: another number is seen.
  other = text.replace(*changed, 1)
  assert other != text
  assert module.with_tables(other) == text


def test_the_worst_ratios_to_the_oracle_are_those_of_the_record():
  lines = (RESULTS / 'oracle.jsonl').read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  least = [min(r[key] for r in rows) for key in ('min_ratio', 'median_ratio')]
  said = re.search(
    r'is (\d\.\d+) for the minimum ESS and (\d\.\d+)\s+for the median',
    (RESULTS / 'oracle.md').read_text(),
  )
  assert said.groups() == tuple(f'{value:.2f}' for value in least)


def test_every_config_has_a_record():
  configs = RESULTS.parents[1] / 'configs'
  # The papers' page names commands of what was not run.
  pages = [p for p in RESULTS.glob('*.md') if p.stem != 'papers']
  text = ''.join(page.read_text() for page in pages)
  unrecorded = {
    path.relative_to(configs).with_suffix('').as_posix()
    for path in configs.rglob('*.yaml')
    if f'configs/{path.relative_to(configs).as_posix()}' not in text
  }
  assert not unrecorded
