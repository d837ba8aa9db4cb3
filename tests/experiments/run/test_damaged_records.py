"""A damaged folder of records is read without what is lost, or refused."""

import numpy as np
import pytest
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from experiments.run import errors
from experiments.run import store

RECORDS = [
  store.Record('small', case, seed, 'k', 'finished', {'x': 1.5, 'y': None})
  for case in ('a', 'é | b')
  for seed in (0, 1)
]
REFUSED = (errors.ConfigError, errors.StorageError)
ARRAYS = {'factor': np.eye(3), 'steps': np.arange(5)}


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """Returns a folder of records, and the bytes of its two kinds of files."""
  folder = tmp_path_factory.mktemp('run')
  store.append(folder, *RECORDS)
  store.write_arrays(folder, RECORDS[0], ARRAYS)
  (archive,) = folder.rglob('*.npz')
  return folder, folder / 'records.jsonl', archive


def _cut(content, share):
  return content[: int(share * len(content))]


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1))
@example(0.0)
@example(0.99999)
@example(1.0)
def test_a_file_that_was_cut_gives_its_whole_lines_and_no_others(whole, share):
  folder, path, _ = whole
  content = path.read_bytes()
  try:
    path.write_bytes(_cut(content, share))
    found = store.read(folder)
    assert found == RECORDS[: len(found)]
    # A line may be whole and lack only its end.
    assert len(found) - path.read_bytes().count(b'\n') in (0, 1)
  finally:
    path.write_bytes(content)


def _turned(content, place, bit):
  content = bytearray(content)
  content[place % len(content)] ^= 1 << bit
  return bytes(content)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 5000), st.integers(0, 7))
def test_a_turned_bit_costs_one_record_at_most_or_is_refused(whole, place, bit):
  folder, path, _ = whole
  content = path.read_bytes()
  try:
    path.write_bytes(_turned(content, place, bit))
    found = store.read(folder)
  except REFUSED as error:
    assert path.name in str(error) and len(str(error)) <= 600
  else:
    assert len(found) >= len(RECORDS) - 2
    assert all(record.status in store.STATUSES for record in found)
    assert sum(record in RECORDS for record in found) >= len(RECORDS) - 2
  finally:
    path.write_bytes(content)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 5000), st.integers(0, 7), st.floats(0, 1))
def test_damaged_arrays_are_refused_or_are_what_was_written(
  whole, place, bit, share
):
  folder, _, path = whole
  content = path.read_bytes()
  for damaged in (_turned(content, place, bit), _cut(content, share)):
    try:
      path.write_bytes(damaged)
      found = store.read_arrays(folder, RECORDS[0])
    except REFUSED as error:
      assert len(str(error)) <= 600
    else:
      assert set(found) == set(ARRAYS)
      for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
    finally:
      path.write_bytes(content)
