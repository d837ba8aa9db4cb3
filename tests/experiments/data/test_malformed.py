"""A data file is read as it is, or refused in one sentence that names it."""

import io
import os
import pathlib
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from experiments.data import datasets
from experiments.data.sources import MNIST
from experiments.data.sources import SOURCES
from experiments.run.errors import DataError

INPUTS = np.arange(8.0).reshape(4, 2)
LABELS = np.array([0, 1, 1, 0])
CSV = 'a,b,y\n0,1,0\n2,3,1\n4,5,1\n6,7,0\n'
COUNTS = np.arange(9).reshape(3, 3)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Yields a folder for files of ripley, which has four rows here."""
  with pytest.MonkeyPatch.context() as patch:
    small = SOURCES['ripley'].model_copy(update={'shape': (4, 2)})
    patch.setitem(SOURCES, 'ripley', small)
    yield tmp_path_factory.mktemp('data')


def _npz(save=np.savez, **arrays):
  file = io.BytesIO()
  with np.errstate(invalid='ignore'):
    save(file, **{'X': INPUTS, 'y': LABELS, **arrays})
  return file.getvalue()


def _npy(array):
  file = io.BytesIO()
  np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
  return file.getvalue()


def _archive(**members):
  file = io.BytesIO()
  with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as archive:
    for name, content in members.items():
      archive.writestr(f'{name}.npy', content)
  return file.getvalue()


def _header(text):
  text = text.encode('latin1') + b'\n'
  return b'\x93NUMPY\x01\x00' + len(text).to_bytes(2, 'little') + text


def _read(folder, suffix, content):
  path = folder / f'ripley{suffix}'
  path.write_bytes(content)
  if suffix == '.npy':
    return datasets.read_counts(path)
  return datasets.read('ripley', path)


def _refused(folder, suffix, content):
  """Returns the message."""
  with pytest.raises(DataError) as refusal:
    _read(folder, suffix, content)
  message = str(refusal.value)
  assert f'ripley{suffix}' in message and len(message) <= 700
  assert '\n' not in message
  return message


@pytest.mark.parametrize(
  'suffix, content',
  [
    ('.npz', _npz(X=INPUTS.astype(np.float32), y=LABELS.astype(np.int8))),
    ('.npz', _npz(X=np.asfortranarray(INPUTS), y=LABELS[:, None])),
    ('.npz', _npz(X=INPUTS.astype('>f8'), y=LABELS.astype('>i4'))),
    ('.npz', _npz(np.savez_compressed, y=LABELS == 1, z=np.arange(3))),
    ('.csv', CSV.replace('\n', '\r\n').encode()),
    ('.csv', CSV.replace('2,3', '"2.0","3.0"').encode()),
    ('.csv', ('\ufeff' + CSV.replace('\n', '\n\n')).encode()),
    ('.csv', CSV.replace('6,7', '6e0, 7.000').encode()),
  ],
)
def test_the_same_numbers_are_read_from_every_form(suffix, content, folder):
  inputs, labels = _read(folder, suffix, content)
  np.testing.assert_array_equal(inputs, INPUTS)
  np.testing.assert_array_equal(labels, LABELS)
  assert (inputs.dtype, labels.dtype) == (np.float64, np.int64)


_NO_LABELS = (
  LABELS * 0.7, LABELS - 1, LABELS * 0, LABELS + 0j, LABELS.astype(object),
  np.array([0, 1, 1, np.nan]), np.array(['no', 'yes', 'yes', 'no']),
  np.array([0, 1, 1, 2**64 - 1], np.uint64), LABELS[:3], np.asarray(1),
)  # fmt: skip
_NO_INPUTS = (
  INPUTS + 1j, INPUTS.astype(str), INPUTS.astype('V8'), INPUTS * np.nan,
  INPUTS.ravel(), INPUTS[:0], INPUTS.T, np.asarray(3.0),
)  # fmt: skip
_HEADERS = (
  "{'descr': '<f8', 'fortran_order': False, 'shape': (4, -2), }",
  "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 10**9), }",
  '(' * 5000,
  "__import__('os').getcwd()",
)
_NO_ARCHIVES = (
  b'not a zip',
  _npy(INPUTS),
  _archive(X=_npy(INPUTS)),
  _archive(X=b'1,2\n', y=b'0\n'),
  *(_archive(X=_header(text), y=_npy(LABELS)) for text in _HEADERS),
)
_ROWS = CSV.splitlines()
_NO_TABLES = (
  '', _ROWS[0], '1,' * 10**6, CSV * 1000, CSV.replace(',', ';'),
  *('\n'.join(rows) for rows in (_ROWS[1:], _ROWS[:4], [*_ROWS, '8,9,1'])),
  *('\n'.join([*_ROWS[:4], row]) for row in (
    '6,7', '6,7,0,0', '6,x,0', '6,1e999,0', '6,,0', '6,7,2', '6,1_0,0',
    '6,(1+0j),0', '6,\0,0', '6,' + '7' * 10**6 + ',0')),
)  # fmt: skip
_NO_COUNTS = (
  np.eye(3) + 0.5, -np.eye(3), np.eye(3) * np.nan, np.eye(3) * 1e300,
  np.eye(3).astype(object), np.eye(3)[:2], np.asarray(3), np.zeros([0, 0]),
)  # fmt: skip


@pytest.mark.parametrize(
  'suffix, content',
  [
    *(('.npz', _npz(y=labels)) for labels in _NO_LABELS),
    *(('.npz', _npz(X=inputs)) for inputs in _NO_INPUTS),
    *(('.npz', content) for content in _NO_ARCHIVES),
    *(('.csv', text.encode()) for text in _NO_TABLES),
    ('.csv', CSV.encode('utf-16')),
    *(('.npy', _npy(counts)) for counts in _NO_COUNTS),
  ],
  ids=lambda value: value if isinstance(value, str) else '',
)
def test_other_numbers_and_other_files_are_refused(suffix, content, folder):
  _refused(folder, suffix, content)


def test_an_archive_that_unpacks_to_far_more_is_refused_unread(folder):
  header = io.BytesIO()
  form = {'descr': '<f8', 'fortran_order': False, 'shape': (4, 25_000_000)}
  np.lib.format.write_array_header_1_0(header, form)
  content = _archive(X=header.getvalue() + bytes(2 * 10**8), y=_npy(LABELS))
  assert len(content) < 300_000
  tracemalloc.start()
  message = _refused(folder, '.npz', content)
  assert tracemalloc.get_traced_memory()[1] < 10**7
  tracemalloc.stop()
  assert 'X unpacks to 2000001' in message


def test_what_is_no_image_with_its_digit_is_refused(tmp_path):
  for change, word in (
    (dict(X=np.full([5, 784], 256)), 'from 0 to 255'),
    (dict(X=np.zeros([5, 783])), '784'),
    (dict(y=np.arange(5) + 8), 'labels must be 0 to 9'),
  ):
    arrays = {'X': np.zeros([5, 784]), 'y': np.arange(5), **change}
    np.savez(tmp_path / 'mnist.npz', **arrays)
    with pytest.raises(DataError, match=word):
      datasets.load(MNIST, tmp_path)


def test_counts_are_read_from_text(tmp_path):
  path = tmp_path / 'counts.csv'
  path.write_text('# why\n1,2\n3,4\n')
  np.testing.assert_array_equal(datasets.read_counts(path), [[1, 2], [3, 4]])
  for text in ('', 'a,b\nc,d\n', '1,2\n3\n', '1,2\n3,-1', '1,2\n3,4\n5,6'):
    path.write_text(text)
    with pytest.raises(DataError, match='counts.csv'):
      datasets.read_counts(path)


def _device(path):
  path.symlink_to('/dev/zero')


@pytest.mark.parametrize('make', [pathlib.Path.mkdir, os.mkfifo, _device])
@pytest.mark.parametrize('suffix', ['.npy', '.csv', '.npz'])
def test_what_is_no_regular_file_is_refused_at_once(make, suffix, tmp_path):
  path = tmp_path / f'ripley{suffix}'
  make(path)
  with pytest.raises(DataError, match='is not a regular file'):
    datasets.read_counts(path)
  with pytest.raises(DataError, match='is not a regular file'):
    datasets.read('ripley', path)


CONTENTS = {
  '.npz': (_npz(), _npz(np.savez_compressed)),
  '.csv': (CSV.encode(), CSV.encode()),
  '.npy': (_npy(COUNTS), _npy(COUNTS.astype(np.float32))),
}


@st.composite
def _damaged(draw):
  """Returns (suffix, content) with bits turned, cut, or with bytes inserted."""
  suffix = draw(st.sampled_from(list(CONTENTS)))
  content = bytearray(draw(st.sampled_from(CONTENTS[suffix])))
  places = st.integers(0, len(content) - 1)
  for place, bit in draw(st.lists(st.tuples(places, st.integers(0, 7)))):
    content[place] ^= 1 << bit
  place = draw(places)
  content[place:place] = draw(st.binary(max_size=9))
  if draw(st.booleans()):
    del content[draw(places) :]
  return suffix, bytes(content)


@settings(max_examples=150, deadline=None)
@given(_damaged())
@example(('.npz', _npz()[:-1]))
@example(('.npz', _npz()[: len(_npz()) // 2] + _npz()))
@example(('.npy', _npy(COUNTS)[:-1]))
def test_a_damaged_file_is_refused_or_has_numbers_that_are_allowed(
  folder, damaged
):
  suffix, content = damaged
  try:
    found = _read(folder, suffix, content)
  except DataError:
    _refused(folder, suffix, content)
    return
  if suffix == '.npy':
    assert found.shape[0] == found.shape[1] and found.min() >= 0
  else:
    assert found[0].shape == (4, 2) and np.all(np.isfinite(found[0]))
    assert set(found[1]) == {0, 1}
