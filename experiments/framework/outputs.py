"""Writes results: refused before any computing, or whole, or told in words."""

import contextlib
import json
import os
import pathlib
import socket
import tempfile
import time

import typer

from experiments.framework.errors import ConfigError
from experiments.framework.errors import shortened
from experiments.framework.errors import shown
from experiments.framework.errors import StorageError

__all__ = [
  'alone',
  'check_file',
  'check_folder',
  'file_option',
  'folder_option',
  'storing',
  'write_bytes',
  'write_json',
  'write_text',
  'writing',
]

# Seconds between two looks at a lock that another process holds.
_PAUSE = 0.5


def check_folder(path):
  """Makes a folder; refuses one in which no file can be made."""
  try:
    pathlib.Path(path).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path, prefix='.'):
      pass
  # A path with a NUL is a ValueError.
  except (OSError, ValueError) as error:
    raise ConfigError(
      f'the output folder {shown(str(path), 120)} cannot be written '
      f'({_reason(error)}); name another with --output.'
    ) from error


def check_file(path):
  """Refuses a file that cannot be written; leaves one that is there."""
  if os.path.isdir(path):
    raise ConfigError(
      f'the output file {shown(str(path), 120)} is a folder; name a file in it.'
    )
  try:
    if os.path.exists(path):
      with open(path, 'ab'):
        return
    # Its own name: it may be too long, or hold what no name can.
    with open(path, 'xb'):
      pass
    os.remove(path)
  except (OSError, ValueError) as error:
    raise ConfigError(
      f'the output file {shown(str(path), 120)} cannot be written '
      f'({_reason(error)}); name another, in a folder that exists.'
    ) from error


def _reason(error):
  return shortened(getattr(error, 'strerror', None) or error)


def file_option(path):
  """As `check_file`, for options of the command line."""
  return _option(check_file, path)


def folder_option(path):
  """As `check_folder`, for options of the command line."""
  return _option(check_folder, path)


def _option(check, path):
  if path is not None:
    try:
      check(path)
    except ConfigError as error:
      raise typer.BadParameter(str(error)) from error
  return path


@contextlib.contextmanager
def storing(path):
  """Says in one sentence that `path` cannot be written, and what to do."""
  try:
    yield
  except OSError as error:
    raise StorageError(
      f'{shown(str(path), 120)} cannot be written ({_reason(error)}). What was '
      'finished before is kept: make room, then continue with --resume '
      '--output FOLDER.'
    ) from error


def write_text(path, text):
  """Writes a file, whole or not at all."""
  write_bytes(path, text.encode('utf-8'))


def write_bytes(path, content):
  """Writes a file, whole or not at all."""
  path = pathlib.Path(path)
  # Processes of two machines may have one number.
  aside = path.with_name(f'.{path.name}.{socket.gethostname()}.{os.getpid()}')
  with storing(path):
    try:
      aside.unlink(missing_ok=True)
      with open(aside, 'xb') as file:  # Never through a link of its name.
        file.write(content)
      os.replace(aside, path)
    finally:
      aside.unlink(missing_ok=True)


def write_json(path, value):
  """Writes JSON, whole or not at all."""
  write_text(path, json.dumps(value, indent=2) + '\n')


@contextlib.contextmanager
def writing(path, is_shared=False):
  """Keeps other processes from writing to a folder meanwhile.

  Args:
    path: of the folder.
    is_shared: whether others may write there who say the same.

  Raises:
    StorageError: if another process keeps this one out.
  """
  # Here: commands answer mistakes before TensorFlow is imported.
  from tfp_adaptive.driver import folder_lock

  with contextlib.ExitStack() as held:
    try:
      held.enter_context(folder_lock.held(path, is_shared))
    except folder_lock.FolderError as error:
      raise StorageError(str(error)) from error
    yield


@contextlib.contextmanager
def alone(path, seconds=600.0):
  """As `writing`, but waits while another process holds the lock of a folder.

  The folder is for the lock alone. A worker of a cluster that was given up as
  lost may still be at work: what it finishes is found by the one that waited.

  Args:
    path: of the folder.
    seconds: to wait at most.
  """
  end = time.monotonic() + seconds
  with contextlib.ExitStack() as held:
    while True:
      try:
        held.enter_context(writing(path))
        break
      except StorageError:
        if time.monotonic() > end:
          raise
        time.sleep(_PAUSE)
    yield
  # One that waits makes it anew.
  with contextlib.suppress(OSError):
    os.rmdir(path)
