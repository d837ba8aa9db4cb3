"""Data sets: a local copy first, one clear error without one."""

import socket

import numpy as np
import pytest

from experiments import data
from experiments.errors import DataError


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


def test_a_set_that_openml_lacks_says_where_it_is_published(tmp_path):
  with pytest.raises(DataError, match='german.data-numeric'):
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
