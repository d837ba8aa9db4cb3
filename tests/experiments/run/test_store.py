"""The store keeps every whole line and every whole file, and nothing else."""

import gzip
import json
import multiprocessing
import os

import numpy as np
import pytest
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from experiments.run import locks
from experiments.run import store
from experiments.run.errors import ConfigError
from experiments.run.errors import StorageError


def _record(case='a', seed=0, key='k', **changes):
  record = store.Record('s', case, seed, key, 'finished', {'x': 1.5})
  return record._replace(**changes)


def test_the_latest_line_of_a_cell_counts(tmp_path):
  first = [_record(), _record(seed=1), _record('b'), _record(key='other')]
  store.append(tmp_path, *first)
  again = _record(seed=1, status='failed', record={}, error='why')
  store.append(tmp_path, again)
  expected = [first[0], again, first[2], first[3]]
  assert store.read(tmp_path) == expected
  assert store.read(tmp_path / 'records.jsonl') == expected
  packed = tmp_path / 'packed.jsonl.gz'
  packed.write_bytes(gzip.compress((tmp_path / 'records.jsonl').read_bytes()))
  assert store.read(packed) == expected
  packed.write_bytes(packed.read_bytes()[:-9])
  with pytest.raises(ConfigError, match=r'packed\.jsonl\.gz cannot be read'):
    store.read(packed)


@pytest.mark.parametrize('size', [1, 30, -2])
def test_half_a_line_is_ignored_and_costs_no_other(size, tmp_path):
  path = tmp_path / 'records.jsonl'
  store.append(tmp_path, _record())
  reader = store.Reader(tmp_path)
  assert reader.update() == [_record()]
  line = path.read_bytes()
  path.write_bytes(line + line[:size])
  assert reader.update() == []
  assert store.read(tmp_path) == [_record()]
  store.append(tmp_path, _record('é', 1))
  assert store.read(tmp_path) == [_record(), _record('é', 1)]
  assert reader.update() == [_record('é', 1)]


def test_a_line_that_is_no_record_is_refused_by_its_number(tmp_path):
  path = tmp_path / 'records.jsonl'
  changes = ({'status': 'lost'}, {'record': 3}, {'seed': [0]}, {'extra': 1})
  for change in changes:
    path.unlink(missing_ok=True)
    store.append(tmp_path, _record())
    with path.open('a') as file:
      file.write(json.dumps(_record()._asdict() | change) + '\n')
    with pytest.raises(ConfigError, match='line 2, is not a record'):
      store.read(tmp_path)


_RECORDS = [
  _record(case, seed, record={'x': 1.5, 'y': None})
  for case in ('a', 'é | b')
  for seed in (0, 1)
]
_ARRAYS = {'factor': np.eye(3), 'steps': np.arange(5)}


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """Returns a folder of records, and the bytes of its two kinds of files."""
  folder = tmp_path_factory.mktemp('run')
  store.append(folder, *_RECORDS)
  store.write_arrays(folder, _RECORDS[0], _ARRAYS)
  return [(p, p.read_bytes()) for p in sorted(folder.rglob('*.*'))]


def _turned(content, place, bit):
  content = bytearray(content)
  content[place % len(content)] ^= 1 << bit
  return bytes(content)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1))
@example(0.0)
@example(0.99999)
@example(1.0)
def test_a_file_that_was_cut_gives_its_whole_lines_and_no_others(whole, share):
  path, content = whole[-1]
  path.write_bytes(content[: int(share * len(content))])
  found = store.read(path)
  assert found == _RECORDS[: len(found)]
  # A line may be whole and lack only its end.
  assert len(found) - path.read_bytes().count(b'\n') in (0, 1)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 5000), st.integers(0, 7), st.floats(0, 1))
def test_a_turned_bit_costs_one_record_at_most_or_is_refused(
  whole, place, bit, share
):
  (archive, packed), (path, content) = whole
  try:
    path.write_bytes(_turned(content, place, bit))
    found = store.read(path)
  except (ConfigError, StorageError) as error:
    assert path.name in str(error) and len(str(error)) <= 600
  else:
    assert all(record.status in store.STATUSES for record in found)
    assert sum(record in _RECORDS for record in found) >= len(_RECORDS) - 2
  # Arrays are refused, or are what was written.
  cut = packed[: int(share * len(packed))]
  for damaged in (_turned(packed, place, bit), cut):
    archive.write_bytes(damaged)
    try:
      found = store.read_arrays(path.parent, _RECORDS[0])
    except (ConfigError, StorageError) as error:
      assert len(str(error)) <= 600
    else:
      assert set(found) == set(_ARRAYS)
      for name, array in _ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)


def _append_many(folder, case):
  for seed in range(50):
    store.append(folder, _record(case, seed, record={'x': 'y' * 5000}))


def test_processes_that_append_at_once_lose_nothing(tmp_path):
  with multiprocessing.get_context('spawn').Pool(3) as pool:
    pool.starmap(_append_many, [(tmp_path, name) for name in 'abc'])
  found = {(r.case, r.seed) for r in store.read(tmp_path)}
  assert found == {(name, seed) for name in 'abc' for seed in range(50)}


def test_names_that_look_alike_have_files_of_their_own():
  names = ['a b', 'a_b', 'a/b', 'a | b', '..', '', '$x$', 'L=5', 'x' * 300]
  files = [store.file_name(name) for name in names]
  assert len(set(files)) == len(names)
  assert all('/' not in name and 0 < len(name) < 120 for name in files)
  assert not {'.', '..'} & set(files)
  assert store.file_name('NUTS, L=5') != 'NUTS, L=5'
  assert store.file_name('mala-5') == 'mala-5'


def test_arrays_and_draws_belong_to_their_record(tmp_path):
  import xarray

  record, draws = _record('a | b'), np.arange(6.0).reshape(1, 2, 3)
  store.write_arrays(tmp_path, record, {'x': np.arange(3)})
  dataset = xarray.Dataset({'x': (('chain', 'draw', 'i'), draws)})
  tree = xarray.DataTree.from_dict({'posterior': dataset})
  store.write_draws(tmp_path, record, tree)
  assert store.read_arrays(tmp_path, record)['x'].tolist() == [0, 1, 2]
  found = store.read_draws(tmp_path, record)
  assert np.array_equal(found['posterior']['x'].values, draws)
  assert not tree.attrs
  other = record._replace(key='other')
  for read in (store.read_arrays, store.read_draws):
    with pytest.raises(ConfigError, match='run with other settings'):
      read(tmp_path, other)
  # A run that leaves none takes the old ones away.
  store.write_arrays(tmp_path, other, {})
  store.write_draws(tmp_path, other, None)
  assert store.read_arrays(tmp_path, other) == {}
  assert store.read_draws(tmp_path, other) is None


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
  path = tmp_path / 'a.txt'
  store.write_text(path, 'before')

  def full(*_, **__):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(os, 'replace', full)
  with pytest.raises(StorageError, match='No space left.*make room'):
    store.write_text(path, 'after')
  with pytest.raises(StorageError, match='No space left'):
    store.write_arrays(tmp_path, _record(), {'x': np.ones(3)})
  assert path.read_text() == 'before'
  assert [p.name for p in tmp_path.rglob('*') if p.is_file()] == ['a.txt']


def test_a_lock_keeps_others_out_and_ends_with_its_holder(tmp_path):
  with locks.held(tmp_path, 'a', wait=False) as is_mine:
    assert is_mine
    assert locks.holder(tmp_path, 'a') == locks.me()
    with locks.held(tmp_path, 'a', wait=False) as is_free:
      assert not is_free
    with locks.held(tmp_path, 'b', wait=True) as is_other_free:
      assert is_other_free
  assert locks.holder(tmp_path, 'a') is None


def _die_with_lock(folder):
  with locks.held(folder, 'a', wait=True):
    os._exit(1)


def test_the_lock_of_a_dead_process_is_free_and_names_it(tmp_path):
  process = multiprocessing.get_context('fork').Process(
    target=_die_with_lock, args=(tmp_path,)
  )
  process.start()
  process.join()
  assert locks.holder(tmp_path, 'a') == locks.me(process.pid)
  with locks.held(tmp_path, 'a', wait=False) as is_free:
    assert is_free
