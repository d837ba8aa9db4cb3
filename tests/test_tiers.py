"""An item above the limit of its tier by the record fails the tier's run."""

import json
import re

import pytest

from tests import tiers

_QUICK, _FULL = tiers.LIMITS['quick'], tiers.LIMITS['full']
_ITEM = 'tests/test_a.py::test_one[a b]'


def _judged(tier, recorded, now):
  return tiers.judge({_ITEM: recorded}, {_ITEM: now}, {_ITEM: tier})


@pytest.mark.parametrize(
  'keywords, expected',
  [
    ({'test_one', 'parametrize'}, 'quick'),
    ({'test_one', 'full'}, 'full'),
    ({'full', 'nightly'}, 'nightly'),
  ],
)
def test_the_tier_is_that_of_the_longest_mark(keywords, expected):
  assert tiers.tier(keywords) == expected


@pytest.mark.parametrize(
  'tier, limit, mark', [('quick', _QUICK, 'full'), ('full', _FULL, 'nightly')]
)
def test_an_item_above_its_limit_is_told_what_to_do(tier, limit, mark):
  (line,) = _judged(tier, limit + 0.1, limit + 0.2)
  assert line.startswith(f'{_ITEM}: {limit + 0.1:.1f} s')
  assert f'mark it `{mark}`, or make it smaller' in line


def test_items_at_their_limit_and_nightly_ones_are_left_alone():
  assert not _judged('quick', _QUICK, 100.0)
  assert not _judged('full', _QUICK + 1.0, 100.0)
  assert not _judged('full', _FULL, 100.0)
  assert not _judged('nightly', 1e4, 1e4)


def test_a_loaded_machine_fails_nothing():
  assert not _judged('quick', _QUICK - 0.1, 100.0)
  assert not tiers.judge({}, {_ITEM: 100.0}, {_ITEM: 'quick'})


def test_an_item_that_was_made_smaller_is_left_alone():
  assert not _judged('quick', 100.0, _QUICK)


def test_items_that_did_not_run_are_not_judged():
  assert not tiers.judge({_ITEM: 100.0}, {}, {})


def test_items_that_no_longer_exist_leave_the_record():
  record = {
    'tests/test_a.py::test_gone': 5.0,
    'tests/test_b.py::test_stays': 6.0,
    'tests/test_gone.py::test_one': 7.0,
    tiers.OTHERS: 8.0,
  }
  merged = tiers.merge(
    record, {_ITEM: 1.234}, lambda name: name != 'tests/test_gone.py'
  )
  assert merged == {
    _ITEM: 1.23,
    'tests/test_b.py::test_stays': 6.0,
    tiers.OTHERS: 8.0,
  }


def test_short_items_are_one_sum():
  seconds = {_ITEM: 0.3, 'tests/test_b.py::b': 0.2, 'tests/test_b.py::c': 0.05}
  merged = tiers.merge({_ITEM: 9.0, tiers.OTHERS: 9.0}, seconds, lambda _: True)
  assert merged == {_ITEM: 0.3, tiers.OTHERS: 0.25}


def test_a_record_has_sorted_items_one_a_line_and_is_read_back(tmp_path):
  record = {_ITEM: 1.5, tiers.OTHERS: 0.1, 'tests/test_0.py::z': 0.4}
  text = tiers.render(record)
  assert [line.split('"')[1] for line in text.splitlines()[1:-1]] == sorted(
    record
  )
  path = tmp_path / 'durations.json'
  assert tiers.read(path) == {}
  path.write_text(text)
  assert tiers.read(path) == record == json.loads(text)


def test_the_parts_of_the_full_tier_are_all_tests():
  text = (tiers.ROOT / 'Makefile').read_text()
  _, _, rest = text.partition('TEST_PARTS = ')
  parts = re.findall(r'tests/([\w*.]+)', rest.partition('\n\n')[0])
  folders = {
    path.name
    for path in (tiers.ROOT / 'tests').iterdir()
    if any(path.glob('**/test_*.py'))
  }
  assert len(parts) == len(set(parts))
  assert set(parts) == folders | {'test_*.py'}
