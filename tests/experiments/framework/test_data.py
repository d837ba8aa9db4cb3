"""Data sets: a local copy first, one clear error without one."""

import io
import os
import pathlib
import socket
import tracemalloc
import zipfile

import numpy as np
import pytest

from experiments.framework import data
from experiments.framework import digit_data
from experiments.run.errors import DataError
from experiments.targets.log_gaussian_cox import read_counts


@pytest.fixture
def small(monkeypatch):
  """A data set of 4 rows by the name of ripley."""
  source = data.SOURCES['ripley']._replace(shape=(4, 2))
  monkeypatch.setitem(data.SOURCES, 'ripley', source)
  monkeypatch.delenv(data.DATA_DIR_VARIABLE, raising=False)
  inputs = np.arange(8.0).reshape(4, 2)
  return inputs, np.array([0, 1, 1, 0], np.int8)


def test_npz_is_read_from_the_folder_given(tmp_path, small):
  np.savez(tmp_path / 'ripley.npz', X=small[0], y=small[1])
  inputs, labels = data.load('ripley', tmp_path)
  np.testing.assert_array_equal(inputs, small[0])
  np.testing.assert_array_equal(labels, small[1])


def test_csv_is_read_from_the_environment_variable(
  tmp_path, small, monkeypatch
):
  table = np.column_stack(small)
  np.savetxt(
    tmp_path / 'ripley.csv', table, delimiter=',', header='a,b,y', comments=''
  )
  monkeypatch.setenv(data.DATA_DIR_VARIABLE, str(tmp_path))
  inputs, labels = data.load('ripley')
  np.testing.assert_array_equal(inputs, small[0])
  np.testing.assert_array_equal(labels, small[1])


def test_wrong_shape_and_wrong_labels_are_refused(tmp_path, small):
  np.savez(tmp_path / 'ripley.npz', X=small[0][:3], y=small[1][:3])
  with pytest.raises(DataError, match=r'\(3, 2\).*expected are \(4, 2\)'):
    data.load('ripley', tmp_path)
  np.savez(tmp_path / 'ripley.npz', X=small[0], y=small[1] + 1)
  with pytest.raises(DataError, match='labels must be 0 and 1'):
    data.load('ripley', tmp_path)


def test_a_damaged_file_is_refused_by_name(tmp_path, small):
  del small
  (tmp_path / 'ripley.npz').write_bytes(b'not a zip')
  with pytest.raises(DataError, match='ripley.npz cannot be read'):
    data.load('ripley', tmp_path)


LABELS = np.array([0, 1, 1, 0])


@pytest.mark.parametrize(
  'labels, word',
  [
    (LABELS * 0.7, 'labels must be 0 and 1'),
    (np.array([0, 1, 1, 1e-9]), 'labels must be 0 and 1'),
    (np.array([0, 1, 1, np.nan]), 'labels must be 0 and 1'),
    (LABELS * 0, 'labels must be 0 and 1'),
    (LABELS + 0j, 'complex'),
    (LABELS.astype(object), 'object'),
    (LABELS.astype(str), '<U'),
    (LABELS[:3], r'y has shape \(3,\)'),
    (np.append(LABELS, 1), r'y has shape \(5,\)'),
    (LABELS.reshape(2, 2), r'y has shape \(2, 2\)'),
  ],
)
def test_labels_that_are_not_one_of_two_for_each_row_are_refused(
  labels, word, tmp_path, small
):
  np.savez(tmp_path / 'ripley.npz', X=small[0], y=labels)
  with pytest.raises(DataError, match=word):
    data.load('ripley', tmp_path)


@pytest.mark.parametrize(
  'change, word',
  [
    (lambda x: x + 1j, 'complex'),
    (lambda x: x.astype(object), 'object'),
    (lambda x: x.astype(str), '<U'),
    (lambda x: x * np.nan, 'finite'),
    (lambda x: x * np.inf, 'finite'),
    (lambda x: x[None], r'\(1, 4, 2\)'),
    (lambda x: x.ravel(), r'\(8,\)'),
    (lambda x: x[:0], r'\(0, 2\)'),
    (lambda x: x.T, r'\(2, 4\)'),
  ],
)
def test_inputs_that_are_no_finite_table_are_refused(
  change, word, tmp_path, small
):
  with np.errstate(invalid='ignore'):
    np.savez(tmp_path / 'ripley.npz', X=change(small[0]), y=small[1])
  with pytest.raises(DataError, match=word):
    data.load('ripley', tmp_path)


def test_an_archive_that_unpacks_to_far_more_is_refused_unread(tmp_path, small):
  del small
  header = io.BytesIO()
  form = {'descr': '<f8', 'fortran_order': False, 'shape': (4, 25_000_000)}
  np.lib.format.write_array_header_1_0(header, form)
  path = tmp_path / 'ripley.npz'
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
    with archive.open('X.npy', 'w') as member:
      member.write(header.getvalue())
      for _ in range(200):
        member.write(bytes(10**6))
    np.savez(tmp_path / 'y.npz', y=LABELS)
    with zipfile.ZipFile(tmp_path / 'y.npz') as other:
      archive.writestr('y.npy', other.read('y.npy'))
  assert path.stat().st_size < 300_000
  tracemalloc.start()
  with pytest.raises(DataError, match='X unpacks to 2000001.. bytes'):
    data.load('ripley', tmp_path)
  assert tracemalloc.get_traced_memory()[1] < 10**7
  tracemalloc.stop()


@pytest.mark.parametrize('share', [0.0, 0.3, 0.6, 0.99])
def test_a_truncated_archive_is_refused(share, tmp_path, small):
  path = tmp_path / 'ripley.npz'
  np.savez_compressed(path, X=small[0], y=small[1])
  content = path.read_bytes()
  path.write_bytes(content[: int(share * len(content))])
  with pytest.raises(DataError, match='ripley.npz cannot be read'):
    data.load('ripley', tmp_path)


ROWS = ['a,b,y', '0,1,0', '2,3,1', '4,5,1', '6,7,0']


@pytest.mark.parametrize(
  'lines',
  [
    [],
    ROWS[:1],
    ROWS[1:],
    ROWS[:4],
    [*ROWS, '8,9,1'],
    [*ROWS[:4], '6,7'],
    [*ROWS[:4], '6,x,0'],
    [*ROWS[:4], '6,nan,0'],
    [*ROWS[:4], '6,7,0.7'],
    [*ROWS[:4], '6,1_0,0'],
    [*ROWS[:4], '6,' + '7' * 10**6 + ',0'],
    [line.replace(',', ';') for line in ROWS],
    [*ROWS[:4], '6,\0,0'],
  ],
)
def test_a_csv_of_other_rows_or_no_numbers_is_refused(lines, tmp_path, small):
  path = tmp_path / 'ripley.csv'
  path.write_text('\n'.join(ROWS))
  np.testing.assert_array_equal(data.load('ripley', tmp_path)[0], small[0])
  path.write_text('\n'.join(lines))
  with pytest.raises(DataError) as refused:
    data.load('ripley', tmp_path)
  assert 'ripley.csv' in str(refused.value)
  assert len(str(refused.value)) <= 600


@pytest.mark.parametrize(
  'change, word',
  [
    (dict(X=np.zeros([5, 784]) + 0j), 'complex'),
    (dict(X=np.full([5, 784], np.nan)), 'from 0 to 255'),
    (dict(X=np.full([5, 784], 256)), 'from 0 to 255'),
    (dict(X=np.zeros([5, 783])), '784'),
    (dict(X=np.zeros([0, 784]), y=np.zeros(0)), 'at least one row'),
    (dict(y=np.arange(4)), 'X has 5 rows, y 4'),
    (dict(y=np.arange(5) + 0.7), 'digits 0 to 9'),
    (dict(y=np.arange(5) + 8), 'digits 0 to 9'),
    (dict(y=np.array(list('abcde'))), 'digits 0 to 9'),
    (dict(y=np.arange(5).astype(object)), 'object'),
  ],
)
def test_what_is_no_image_with_its_digit_is_refused(change, word, tmp_path):
  arrays = {'X': np.zeros([5, 784]), 'y': np.arange(5), **change}
  np.savez(tmp_path / 'mnist.npz', **arrays)
  with pytest.raises(DataError, match=word):
    digit_data.load_digits('mnist', 3, str(tmp_path))


@pytest.mark.parametrize(
  'counts',
  [
    np.eye(3) + 0.5,
    -np.eye(3),
    np.eye(3) * np.nan,
    np.eye(3) + 0j,
    np.eye(3).astype(object),
    np.eye(3).astype(str),
    np.eye(3)[:2],
    np.eye(3)[None],
    np.zeros([0, 0]),
    np.eye(3) * 1e300,
  ],
)
def test_counts_that_are_no_square_of_whole_numbers_are_refused(
  counts, tmp_path
):
  path = tmp_path / 'counts.npy'
  np.save(path, np.eye(3))
  np.testing.assert_array_equal(read_counts(path), np.eye(3))
  with np.errstate(invalid='ignore'):
    np.save(path, counts)
  with pytest.raises(DataError, match='target.counts_file'):
    read_counts(path)


def test_published_counts_are_read_from_the_folder_or_asked_for(
  tmp_path, monkeypatch
):
  monkeypatch.delenv(data.DATA_DIR_VARIABLE, raising=False)
  monkeypatch.chdir(tmp_path)
  for folder in (None, tmp_path):
    with pytest.raises(DataError) as error:
      data.counts_path(folder)
    for word in ('cox_counts_64.npy', 'aGrad', '--data-dir', 'simulated'):
      assert word in str(error.value)
  np.save(tmp_path / 'cox_counts_64.npy', np.eye(4))
  monkeypatch.setenv(data.DATA_DIR_VARIABLE, str(tmp_path))
  np.testing.assert_array_equal(read_counts(data.counts_path()), np.eye(4))


@pytest.mark.parametrize('name', ['counts.npy', 'counts.csv'])
def test_an_empty_file_of_counts_is_refused(name, tmp_path):
  (tmp_path / name).write_bytes(b'')
  with pytest.raises(DataError, match='target.counts_file'):
    read_counts(tmp_path / name)


def _pipe(path):
  os.mkfifo(path)


def _device(path):
  path.symlink_to('/dev/zero')


@pytest.mark.parametrize('make', [pathlib.Path.mkdir, _pipe, _device])
@pytest.mark.parametrize('suffix', ['.npy', '.csv', '.npz'])
def test_what_is_no_regular_file_is_refused_at_once(make, suffix, tmp_path):
  path = tmp_path / f'ripley{suffix}'
  make(path)
  with pytest.raises(DataError, match='is a (folder|pipe or a device); write'):
    read_counts(path)
  if suffix != '.npy':
    with pytest.raises(DataError, match='is a (folder|pipe or a device); writ'):
      data.read_local('ripley', path)


@pytest.mark.full
def test_offline_without_a_copy_says_what_to_do(tmp_path, monkeypatch):
  def refuse(*args, **kwargs):
    raise OSError('no network')

  monkeypatch.setattr(socket.socket, 'connect', refuse)
  monkeypatch.setattr(socket, 'getaddrinfo', refuse)
  with pytest.raises(DataError) as error:
    data.load('heart', tmp_path, cache_dir=tmp_path / 'cache')
  for word in ('heart.npz', '--data-dir', data.DATA_DIR_VARIABLE, 'OpenML'):
    assert word in str(error.value)


def test_a_missing_folder_and_an_unknown_name_are_refused(tmp_path):
  with pytest.raises(DataError, match='does not exist'):
    data.load('heart', tmp_path / 'nowhere')
  with pytest.raises(DataError, match="did you mean 'heart'"):
    data.load('haert', tmp_path)


def test_a_set_that_openml_lacks_is_asked_for_by_its_command(tmp_path):
  with pytest.raises(DataError, match='python -m experiments data german'):
    data.load('german', tmp_path)


def test_pima_keeps_complete_rows_without_insulin():
  inputs = np.ones([3, 8])
  inputs[:, 4] = 0.0
  inputs[1, 3] = 0.0
  kept, labels = data.SOURCES['pima'].select(inputs, np.array(['a', 'b', 'c']))
  assert kept.shape == (2, 7)
  assert list(labels) == ['a', 'c']


def test_mnist_keeps_training_fives_and_sixes_in_unit_range():
  inputs = np.full([60001, 2], 255.0)
  labels = np.array(['5', '6', '7'] * 20000 + ['5'])
  kept, digits = data.SOURCES['mnist_5v6'].select(inputs, labels)
  assert kept.shape == (40000, 2)
  assert kept.max() == 1.0
  assert set(digits) == {'5', '6'}


def test_wine_is_bundled_and_needs_no_download(tmp_path, monkeypatch):
  monkeypatch.setattr(socket.socket, 'connect', lambda *_: pytest.fail())
  inputs, labels = data.load('wine', tmp_path)
  assert inputs.shape == (178, 9)
  # Alcohol of the first bottle; 71 of the 178 are of the second cultivar.
  assert inputs[0, 0] == 14.23
  assert labels.sum() == 71


def test_window_glass_is_told_from_the_rest():
  names = ['build wind float', 'vehic wind float', 'containers', 'headlamps']
  inputs = np.ones([4, 9])
  source = data.SOURCES['glass']
  _, labels = source.select(inputs, np.array(names))
  assert [label == source.positive for label in labels] == [1, 1, 0, 0]
