"""The papers' numbers beside ours: all there, no silent difference."""

import pathlib

import pytest

from experiments.report import papers as numbers

_ROOT = pathlib.Path(numbers.__file__).resolve().parents[3]
# Figures and tables of each paper, with its supplement.
_NUMBERS = {
  'gradient-based adaptive MCMC': (7, 7),
  'entropy-based adaptive HMC': (21, 2),
  'auxiliary gradient samplers': (8, 11),
  'gradient-free HMC': (4, 0),
}
_ENTRY = {
  'number': 'Table 3',
  'shows': 'GP classification, heart',
  'config': 'auxiliary_gradient/gp_heart',
  'record': 'gp_heart',
}


def _entry(**values):
  return numbers.Entry.model_validate({**_ENTRY, **values})


def test_every_figure_and_table_is_there():
  papers = [paper for paper, _ in numbers.load()]
  assert len(papers) == len(_NUMBERS)
  for paper, (title, counts) in zip(papers, _NUMBERS.items()):
    assert title in paper.title
    wanted = {
      f'{kind} {i + 1}'
      for kind, count in zip(('Figure', 'Table'), counts)
      for i in range(count)
    }
    assert {e.number.partition(',')[0] for e in paper.entries} == wanted


def test_configs_exist_and_records_are_of_them():
  for paper, _ in numbers.load():
    for entry in paper.entries:
      if entry.config:
        config = f'configs/{entry.config}.yaml'
        assert (_ROOT / config).is_file(), entry.number
      if entry.record:
        page = _ROOT / 'docs' / 'results' / f'{entry.record}.md'
        command = config if entry.config else entry.command
        assert command in page.read_text(), entry.number


def test_numbers_are_read_and_their_ratio_is_ours_over_the_papers():
  row = {
    'paper': 'mGrad',
    'ess': [100.0, 500.0, 1000.0],
    'ours': {'mGrad': 'x'},
  }
  (finding,) = numbers.found(_entry(rows=[row]), {'x': 'a reason'})
  assert finding.ours == (188.8, 587.3, 1061.2)
  assert finding.ratios == pytest.approx((1.888, 1.1746, 1.0612))
  assert finding.agrees == (False, True, True)
  assert finding.repeats == 10


def test_a_difference_without_a_reason_is_refused():
  row = {'paper': 'mGrad', 'delta': 10.0}
  with pytest.raises(ValueError, match='Table 3, mGrad.*add what explains it'):
    numbers.found(_entry(rows=[row]), {})
  named = dict(row, ours={'mGrad': 'few'})
  with pytest.raises(ValueError, match="not 'few'"):
    numbers.found(_entry(rows=[named]), {'other': 'a reason'})
  numbers.found(_entry(rows=[named]), {'few': 'a reason'})


@pytest.mark.parametrize('bound, agrees', [('above', True), ('below', False)])
def test_a_claim_holds_on_its_side_alone(bound, agrees):
  claim = {
    'says': 'mGrad over aGrad-z',
    'column': 'ess_min',
    'line': 'mGrad',
    'over': 'aGrad-z',
    bound: 1.0,
    'why': None if agrees else 'x',
  }
  (finding,) = numbers.found(_entry(claims=[claim]), {'x': 'a reason'})
  assert finding.ours == pytest.approx((188.8 / 63.4,))
  assert finding.agrees == (agrees,)
