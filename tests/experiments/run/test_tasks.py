"""Which cells a run has, which are missing, and who takes which."""

import pathlib

import pytest

from experiments.run import find
from experiments.run import store
from experiments.run import tasks
from experiments.run.errors import ConfigError
from experiments.run.study import Settings
from experiments.run.study import Study

TINY = str(pathlib.Path(__file__).with_name('tiny.py'))


def _cells(num_cases=2, num_seeds=3):
  return [
    tasks.Cell('s', f'c{case}', seed, 'k')
    for case in range(num_cases)
    for seed in range(num_seeds)
  ]


def _latest(cells, status='finished', written='now'):
  records = [
    store.Record(*cell[:4], status, {}, written=written) for cell in cells
  ]
  return {record.cell: record for record in records}


@pytest.mark.parametrize('process', ['run', 'case', 'cell'])
@pytest.mark.parametrize('count', [1, 2, 3, 7, 40])
def test_every_cell_is_in_one_shard(count, process):
  cells = _cells(4, 5)
  taken = []
  for index in range(count):
    groups = tasks.units(cells, process, tasks.Shard(index, count))
    taken += [cell for group in groups for cell in group]
  assert sorted(taken) == sorted(cells)


def test_redo_takes_a_status_and_what_is_missing():
  cells = _cells()
  done = _latest(cells[:2]) | _latest(cells[2:4], 'failed')
  left = tasks.missing(cells, done, ['failed'])
  assert [cell[:4] for cell in left] == [cell[:4] for cell in cells[2:]]
  assert [cell.seen for cell in left] == ['now', 'now', None, None]
  with pytest.raises(ConfigError, match=r"did you mean 'failed'"):
    tasks.check_statuses(['faild'])


def test_a_refused_case_is_missing_for_no_seed():
  cells = _cells()
  done = _latest(cells[:1], 'refused')
  assert tasks.missing(cells, done) == cells[3:]
  assert len(tasks.missing(cells, done, ['refused'])) == 6


def test_seeds_are_numbers_and_ranges():
  assert tasks.parse_seeds(['0:3', '2', '5']) == (0, 1, 2, 5)
  for text in ('', '-1', '3:3', '1.5', '0:9999999'):
    with pytest.raises(ConfigError, match='--seeds.*0:10'):
      tasks.parse_seeds([text])
  for text in ('', '1', '2/2', '0/0', 'a/b'):
    with pytest.raises(ConfigError, match='--shard.*i from 0 to'):
      tasks.parse_shard(text)


def test_patterns_keep_the_order_and_exact_names_are_no_patterns():
  names = ['b [1]', 'a', 'b 1']
  assert tasks.matching(names, []) == names
  assert tasks.matching(names, ['a', 'b*']) == names
  assert tasks.matching(names, ['b [1]']) == ['b [1]']
  with pytest.raises(ConfigError, match="--only: 'c'.*there are"):
    tasks.matching(names, ['c'])


def _found(version=1, scale=1.0, key=None):
  class Some(Settings):
    scale: float = 1.0

  cases = {'a': 1, 'b': 2}
  study = Study(
    lambda _: cases, lambda *_: {}, Some, version=version, case_key=key
  )
  return find.Found('s', study, Some(scale=scale))


def test_a_key_changes_with_all_that_decides_the_numbers():
  a, b = tasks.cells(_found())
  assert a.key == b.key
  assert a.key == tasks.cells(_found(scale=1))[0].key
  changed = [_found(version=2), _found(scale=2.0), _found(key=lambda c: c)]
  keys = {a.key, *(tasks.cells(found)[0].key for found in changed)}
  assert len(keys) == 4
  # A change of one case leaves the records of the others.
  one, two = tasks.cells(_found(key=lambda case: case))
  assert one.key != two.key
  again = tasks.cells(_found(key=lambda case: min(case, 1)))
  assert again[0] == one and again[1].key == one.key
