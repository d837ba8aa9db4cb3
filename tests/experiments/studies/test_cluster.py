"""The study of sweeps in several processes counts what it says."""

import json
import pathlib

import pytest

from experiments.studies import cluster
from experiments.studies.cluster import Cell

RECORD = (
  pathlib.Path(__file__).resolve().parents[3]
  / 'docs'
  / 'results'
  / 'cluster.json'
)


def _cells(digests):
  return {
    name: Cell(digest, 2.0, 100.0 + 3.0 * i, False)
    for i, (name, digest) in enumerate(digests.items())
  }


def test_lost_cells_and_other_bits_are_counted():
  whole = {'a': 'x', 'b': 'y', 'c': 'z'}
  runs = {
    'one': {'cells': _cells(whole), 'seconds': 9.0, 'groups': []},
    'two': {
      'cells': _cells({'a': 'x', 'b': 'other'}),
      'seconds': 9.0,
      'groups': [],
      'more': {'killed_after': 4.0},
    },
  }
  one, two = cluster.summarize(runs)
  assert (one['num_lost'], one['num_same_bits']) == (0, 3)
  assert (two['num_lost'], two['num_same_bits']) == (1, 1)
  assert two['killed_after'] == 4.0
  assert 'seconds_between_cells' not in two


@pytest.mark.parametrize('num_workers', [1, 2])
def test_the_seconds_between_cells_are_those_of_a_worker(num_workers):
  # Each worker ends a cell of 2 s every 2.5 s, after some start of its own.
  cells = [
    Cell('', 2.0, 50.0 * worker / 100 + 2.5 * number, False)
    for worker in range(num_workers)
    for number in range(40)
  ]
  groups = [(cells, num_workers)]
  run = {
    'cells': dict(enumerate(cells)),
    'seconds': 0.0,
    'groups': groups,
  }
  (row,) = cluster.summarize({'one': run})
  assert abs(row['seconds_between_cells'] - 0.5) < 0.05


def test_the_record_has_no_cell_lost_or_changed():
  rows = {row['way']: row for row in json.loads(RECORD.read_text())}
  assert len(rows) == 4
  for row in rows.values():
    assert row['num_lost'] == 0
    assert row['num_same_bits'] == row['num_cells'] == 40
  killed = rows['two nodes, one killed']
  # Of the killed node: that its cell went on elsewhere.
  assert killed['num_continued'] == 1
  assert 0 < killed['finished_before'] < 40
