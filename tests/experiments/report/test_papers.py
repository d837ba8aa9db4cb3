"""The papers' numbers beside ours: no silent difference."""

import pytest

from experiments.report import papers as numbers

_ENTRY = {
  'number': 'Table 3',
  'shows': 'GP classification, heart',
  'config': 'auxiliary_gradient/gp_heart',
  'record': 'gp_heart',
}


def _entry(**values):
  return numbers.Entry.model_validate({**_ENTRY, **values})


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
  with pytest.raises(ValueError, match='Table 3, mGrad.*add a reason'):
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
