"""One writer per folder, and none that outlives its process."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

from tfp_adaptive.driver import folder_lock

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


@pytest.mark.parametrize('is_shared', [False, True])
def test_a_lock_whose_file_was_removed_meanwhile_is_taken_anew(
  tmp_path, monkeypatch, is_shared
):
  flock, calls = folder_lock.fcntl.flock, []

  def late(file, kind):
    if not calls:  # The holder ends after the file was opened.
      (tmp_path / folder_lock.NAME).unlink()
    calls.append(kind)
    flock(file, kind)

  monkeypatch.setattr(folder_lock.fcntl, 'flock', late)
  with folder_lock.held(tmp_path, is_shared):
    assert len(calls) == 2
    with pytest.raises(folder_lock.FolderError, match=f'{os.getpid()}'):
      with folder_lock.held(tmp_path):
        pytest.fail('two writers')


def test_holders_that_share_a_folder_keep_out_those_who_do_not(tmp_path):
  with folder_lock.held(tmp_path, is_shared=True):
    with folder_lock.held(tmp_path, is_shared=True):
      pass
    # One of two has ended: the other still holds it.
    with pytest.raises(folder_lock.FolderError, match='in use by process'):
      with folder_lock.held(tmp_path):
        pytest.fail('alone beside another')
  with folder_lock.held(tmp_path):
    with pytest.raises(folder_lock.FolderError, match='in use by process'):
      with folder_lock.held(tmp_path, is_shared=True):
        pytest.fail('beside one that is alone')


def test_a_folder_that_cannot_be_made_is_refused_in_words(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(folder_lock.FolderError, match='cannot be written to'):
    with folder_lock.held(tmp_path / 'file' / 'folder'):
      pytest.fail('written into a file')


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
  def no_locks(*_):
    raise OSError(95, 'Operation not supported')

  monkeypatch.setattr(folder_lock.fcntl, 'flock', no_locks)
  with pytest.warns(UserWarning, match='cannot be locked .*not supported'):
    with folder_lock.held(tmp_path):
      pass
