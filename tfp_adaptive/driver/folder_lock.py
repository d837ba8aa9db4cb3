"""Locks a folder for one writer; the lock ends with the writer's process."""

import contextlib
import datetime
import errno
import json
import os
import pathlib
import socket
import stat
import sys

from tfp_adaptive.core import run_warnings

try:
  import fcntl
except ImportError:  # On Windows, a second writer is not detected.
  fcntl = None


NAME = '.lock'


class FolderError(RuntimeError):
  """The message says that another run writes to a folder, or that none can."""


@contextlib.contextmanager
def held(folder):
  """Holds the lock of a folder; creates the folder if it is missing.

  The operating system releases the lock of a process that dies. If another run
  holds the lock, the `FolderError` names that run.
  """
  path = pathlib.Path(folder) / NAME
  with _locked(path) as file:
    _write_holder(file)
    try:
      yield
    finally:
      if fcntl is not None:
        path.unlink(missing_ok=True)


def _locked(path):
  """Returns the lock file of a folder, open and locked."""
  while True:
    file = _opened(path)
    if fcntl is None:
      return file
    try:
      _lock(file, path.parent)
      if _is_still_there(file, path):
        return file
    except FolderError:
      file.close()
      raise
    file.close()  # The holder has just ended and removed this file.


def _opened(path):
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a buffer, closing the file cannot fail on a full disk.
    return open(path, 'ab+', buffering=0, opener=_open_itself)
  except OSError as error:
    raise FolderError(
      f'{str(path.parent)!r} cannot be written to ({error.strerror}). Name a '
      'folder that can.'
    ) from error


def _open_itself(path, flags):
  """Returns a descriptor of a regular file; links and pipes are refused."""
  if sys.platform != 'win32':
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK
  try:
    descriptor = os.open(path, flags, 0o666)
  except OSError as error:
    if error.errno == errno.ELOOP:
      error.strerror = f'its {NAME} is a symbolic link'
    raise
  if not stat.S_ISREG(os.fstat(descriptor).st_mode):
    os.close(descriptor)
    raise OSError(errno.EINVAL, f'its {NAME} is no regular file', path)
  return descriptor


def _lock(file, folder):
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    raise FolderError(
      f'{str(folder)!r} is in use by {_holder(file)}. Wait until that run '
      'ends, stop it, or write to another folder.'
    ) from None
  except OSError as error:
    run_warnings.warn(
      f'{str(folder)!r} cannot be locked ({error.strerror}): make sure that no '
      'other run writes to it.',
    )


def _is_still_there(file, path):
  try:
    return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
  except FileNotFoundError:
    return False


def _write_holder(file):
  holder = dict(
    pid=os.getpid(),
    host=socket.gethostname(),
    command=' '.join(sys.argv)[:200],
    since=datetime.datetime.now().astimezone().isoformat(timespec='seconds'),
  )
  # The lock works without this line, so a full disk does no harm.
  with contextlib.suppress(OSError):
    file.seek(0)
    file.truncate()
    file.write(json.dumps(holder).encode())


def _holder(file):
  file.seek(0)
  try:
    holder = json.loads(file.read())
    return (
      f'process {holder["pid"]} on {holder["host"]} ({holder["command"]}), '
      f'since {holder["since"]}'
    )
  except (ValueError, KeyError, TypeError):
    return 'another process'
