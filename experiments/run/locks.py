"""Locks of cells: a cell is run by one process at a time.

The operating system releases the lock of a process that dies, also on NFS. The
file of the lock remains and names the cell that the process was running.
"""

import contextlib
import fcntl
import os
import pathlib
import socket
from collections.abc import Iterator

from experiments.run import store


def me(pid: int | None = None) -> str:
  """Returns the name that a lock gives to a process of this machine."""
  return f'{socket.gethostname()}.{os.getpid() if pid is None else pid}'


@contextlib.contextmanager
def held(folder: str | os.PathLike, name: str, wait: bool) -> Iterator[bool]:
  """Holds the lock of a cell.

  Yields:
    Whether this process holds the lock.
  """
  path = _path(folder, name)
  path.parent.mkdir(parents=True, exist_ok=True)
  while True:
    file = path.open('a+b', buffering=0)
    try:
      fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
      file.close()
      yield False
      return
    except OSError:  # Without locks, two processes may do the same work.
      pass
    if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
      break
    file.close()  # The holder has just ended and removed this file.
  with file:
    file.truncate(0)
    file.write(me().encode())
    try:
      yield True
    finally:
      path.unlink(missing_ok=True)


def holder(folder: str | os.PathLike, name: str) -> str | None:
  """Returns the process that holds a lock or died with the lock, or `None`."""
  try:
    return _path(folder, name).read_text()
  except FileNotFoundError:
    return None


def _path(folder, name) -> pathlib.Path:
  return pathlib.Path(folder) / store.LOCKS / name
