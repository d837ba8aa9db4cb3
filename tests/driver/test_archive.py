"""Files are looked at before they are read, and written beside no link."""

import io
import os
import pathlib
import struct
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest

from tfp_adaptive.driver import archive
from tfp_adaptive.driver import checkpoint as checkpoint_lib
from tfp_adaptive.driver import folder_lock

_ARRAYS = dict(
  a=np.arange(6.0).reshape(2, 3),
  scalar=np.float32(2.0),
  none=np.zeros([0, 3], np.int32),
  columns=np.asfortranarray(np.arange(6).reshape(2, 3)),
  words=np.array(['one', 'three']),
  flags=np.array([True, False]),
)


def _header(shape, dtype='<f8'):
  file = io.BytesIO()
  np.lib.format.write_array_header_1_0(
    file, dict(descr=dtype, fortran_order=False, shape=shape)
  )
  return file.getvalue()


def _compressed(path):
  np.savez_compressed(path, zeros=np.zeros(2**21))  # 16 MB in 16 kB.


def _a_large_shape(path):
  with zipfile.ZipFile(path, 'w') as file:
    file.writestr('zeros.npy', _header((2**40,)))


def _a_negative_shape(path):
  with zipfile.ZipFile(path, 'w') as file:
    file.writestr('zeros.npy', _header((-1, 8)) + bytes(64))


def _objects(path):
  np.savez(path, objects=np.array([dict(a=1)], object))


def _members_that_overlap(path):
  """Every entry of the directory is the same member."""
  content = _header((1000,)) + bytes(8000)
  with zipfile.ZipFile(path, 'w') as file:
    file.writestr('a000.npy', content)
  whole = path.read_bytes()
  start = whole.index(b'PK\x01\x02')
  end = whole.index(b'PK\x05\x06')
  entry, tail = whole[start:end], bytearray(whole[end:])
  tail[8:12] = struct.pack('<HH', 500, 500)
  tail[12:16] = struct.pack('<I', 500 * len(entry))
  path.write_bytes(whole[:start] + 500 * entry + bytes(tail))


def _a_larger_size(path):
  with zipfile.ZipFile(path, 'w') as file:
    file.writestr('zeros.npy', _header((8,)) + bytes(64))
  whole = bytearray(path.read_bytes())
  start = whole.index(b'PK\x01\x02')
  whole[start + 24 : start + 28] = struct.pack('<I', 2**31)
  path.write_bytes(whole)


def _a_folder(path):
  path.mkdir()


def _a_pipe(path):
  os.mkfifo(path)


def _a_device(path):
  path.symlink_to('/dev/zero')


_INFLATING = [
  _compressed, _a_large_shape, _a_negative_shape, _objects,
  _members_that_overlap, _a_larger_size,
]  # fmt: skip
_NO_FILES = [_a_folder, _a_pipe, _a_device]


def test_what_is_packed_comes_back(tmp_path):
  path = tmp_path / 'file'
  archive.write(path, archive.seal(dict(x=[1, 2]), _ARRAYS))
  header, arrays = archive.unseal(path)
  assert header == dict(x=[1, 2]) and list(arrays) == list(_ARRAYS)
  for name, array in _ARRAYS.items():
    np.testing.assert_array_equal(arrays[name], array)
    assert arrays[name].dtype == array.dtype


@pytest.mark.parametrize('make', _INFLATING + _NO_FILES)
def test_what_would_inflate_or_never_end_is_refused_unread(
  make, tmp_path, monkeypatch
):
  path = tmp_path / 'file.npz'
  make(path)

  def read(*args, **kwargs):
    raise AssertionError('it was read')

  monkeypatch.setattr(np, 'load', read)
  with pytest.raises(archive.Damaged):
    archive.unpack(path)


@pytest.mark.parametrize('make', [_compressed, *_NO_FILES])
@pytest.mark.parametrize('name', ['state.npz', 'block_000000.npz'])
def test_a_checkpoint_of_such_files_is_damaged(make, name, tmp_path):
  run = dict(start_program=None, step_program=None, start=[], settings={})
  checkpoint = checkpoint_lib.Checkpoint(tmp_path, run)
  checkpoint.save([np.zeros(2)], 1, [np.zeros(3)], {})
  (tmp_path / name).unlink()
  make(tmp_path / name)
  begin = time.monotonic()
  with pytest.raises(
    checkpoint_lib.CheckpointError, match=f'{name} is damaged: it'
  ):
    checkpoint_lib.Checkpoint(tmp_path, run).load()
  assert time.monotonic() - begin < 5.0


@pytest.mark.parametrize('kind', ['link', 'dangling link', 'left', 'folder'])
def test_a_file_is_never_written_through_what_has_its_temporary_name(
  kind, tmp_path
):
  path, other = tmp_path / 'file', tmp_path / 'other'
  temporary = tmp_path / 'file.tmp'
  if kind == 'link':
    other.write_text('mine')
  if 'link' in kind:
    temporary.symlink_to(other)
  elif kind == 'left':
    temporary.write_text('half')
  else:
    temporary.mkdir()
    with pytest.raises(OSError):
      archive.write(path, b'12345')
    return
  archive.write(path, b'12345')
  assert path.read_bytes() == b'12345' and not temporary.is_symlink()
  assert other.exists() == (kind == 'link')
  assert kind != 'link' or other.read_text() == 'mine'


def test_a_link_of_the_name_is_replaced_and_its_file_stays(tmp_path):
  path, other = tmp_path / 'file', tmp_path / 'other'
  other.write_text('mine')
  path.symlink_to(other)
  archive.write(path, b'12345')
  assert path.read_bytes() == b'12345' and other.read_text() == 'mine'


@pytest.mark.parametrize('kind', ['link', 'dangling link', 'pipe', 'folder'])
def test_a_lock_is_a_file_of_its_own(kind, tmp_path):
  lock, other = tmp_path / folder_lock.NAME, tmp_path / 'other'
  other.write_text('mine')
  if kind == 'pipe':
    os.mkfifo(lock)
  elif kind == 'folder':
    lock.mkdir()
  else:
    lock.symlink_to(other if kind == 'link' else tmp_path / 'none')
  with pytest.raises(folder_lock.FolderError, match='cannot be written to'):
    with folder_lock.held(tmp_path):
      pytest.fail('held')
  assert other.read_text() == 'mine' and not (tmp_path / 'none').exists()


# One writer per folder, and none that outlives its process.


_CHILD = """
import sys, time
from tfp_adaptive.driver import folder_lock
with folder_lock.held(sys.argv[1]):
  print('held', flush=True)
  time.sleep(600)
"""


def _hold_in_a_child(folder):
  child = subprocess.Popen(
    [sys.executable, '-c', _CHILD, str(folder)],
    env=dict(os.environ, PYTHONPATH=str(pathlib.Path(__file__).parents[2])),
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
  )
  assert child.stdout.readline().strip() == 'held'
  return child


@pytest.mark.full
def test_a_second_process_is_told_who_holds_a_folder_until_that_dies(tmp_path):
  child = _hold_in_a_child(tmp_path)
  try:
    with pytest.raises(folder_lock.FolderError) as error:
      with folder_lock.held(tmp_path):
        pytest.fail('two writers')
    assert f'process {child.pid} on' in str(error.value)
    assert str(tmp_path) in str(error.value)
  finally:
    child.kill()
    child.wait()
  with folder_lock.held(tmp_path):  # What is left of a dead process is free.
    time.sleep(0)


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_anew(
  tmp_path, monkeypatch
):
  flock, calls = folder_lock.fcntl.flock, []

  def late(file, kind):
    if not calls:  # The holder ends after the file was opened.
      (tmp_path / folder_lock.NAME).unlink()
    calls.append(kind)
    flock(file, kind)

  monkeypatch.setattr(folder_lock.fcntl, 'flock', late)
  with folder_lock.held(tmp_path):
    assert len(calls) == 2
    with pytest.raises(folder_lock.FolderError, match=f'{os.getpid()}'):
      with folder_lock.held(tmp_path):
        pytest.fail('two writers')


def test_a_folder_that_cannot_be_made_is_refused_in_words(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(folder_lock.FolderError, match='cannot be written to'):
    with folder_lock.held(tmp_path / 'file' / 'folder'):
      pytest.fail('written into a file')


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
  def no_locks(*_):
    raise OSError(95, 'Operation not supported')

  monkeypatch.setattr(folder_lock.fcntl, 'flock', no_locks)
  words = 'cannot be locked .*not supported'
  with pytest.warns(UserWarning, match=words) as told:
    with folder_lock.held(tmp_path):
      pass
  assert told[0].filename == __file__
