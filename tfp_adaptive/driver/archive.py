"""Reads and writes files of arrays with a header, whole or not at all.

A reader checks the kind of a file and the sizes that the file declares before
reading or inflating anything. So a damaged or foreign file costs no memory.
"""

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import pathlib
import stat
import sys
import zipfile
from collections.abc import Iterable
from concurrent import futures

import numpy as np

from tfp_adaptive.interfaces import types

Arrays = dict[str, np.ndarray]

_NUM_SYNCS = 16
_ERRNOS_OF_DAMAGE = errno.ENOENT, errno.EINVAL
_HEADER_READERS = {
  (1, 0): np.lib.format.read_array_header_1_0,
  (2, 0): np.lib.format.read_array_header_2_0,
}


class Damaged(ValueError):
  """The message says why a file is not what was written."""


def pack(arrays: Arrays) -> bytes:
  """Returns the bytes of a dict of arrays."""
  buffer = io.BytesIO()
  np.savez(buffer, **arrays)
  return buffer.getvalue()


def unpack(path: types.Path) -> Arrays:
  """Returns the arrays of a file that `pack` made; else raises `Damaged`."""
  _check_regular(path)
  try:
    _check_sizes(path)
    with np.load(path, allow_pickle=False) as stored:
      return {name: stored[name] for name in stored.files}
  except (MemoryError, Damaged):
    raise
  except Exception as error:  # Damage raises errors of zipfile, zlib and numpy.
    # The end of a damaged zip file may point outside the file.
    if isinstance(error, OSError) and error.errno not in _ERRNOS_OF_DAMAGE:
      raise  # The file itself may be intact.
    raise Damaged(f'it cannot be read ({error})') from error


def read_bytes(path: types.Path) -> bytes:
  """Returns the bytes of a file; a folder or a pipe raises `Damaged`."""
  _check_regular(path)
  with open(path, 'rb') as file:
    return file.read()


def seal(header: dict, arrays: Arrays) -> bytes:
  """Returns the bytes of a JSON header and of arrays, with their checksum.

  No array may have the name `header` or `digest`.
  """
  digest = _digest(header, arrays)
  return pack(dict(arrays, header=json.dumps(header), digest=digest))


def unseal(path: types.Path) -> tuple[dict, Arrays]:
  """Returns the header and the arrays of a file that `seal` made."""
  arrays = unpack(path)
  try:
    header = json.loads(str(arrays.pop('header')))
    digest = str(arrays.pop('digest'))
  except (KeyError, ValueError) as error:
    raise Damaged('its header cannot be read') from error
  if digest != _digest(header, arrays):
    raise Damaged('its checksum does not match')
  return header, arrays


def write(path: pathlib.Path, content: bytes) -> None:
  """Writes bytes to a new file beside `path`, and renames that file to `path`.

  The new file is created exclusively. If its name is a symbolic link, the link
  is removed, and the file to which it points is not changed. If the bytes
  cannot be written, an earlier file stays.
  """
  if path.is_dir() and not path.is_symlink():
    raise IsADirectoryError(errno.EISDIR, 'a folder has its name', str(path))
  temporary = path.with_name(path.name + '.tmp')
  temporary.unlink(missing_ok=True)  # A killed run may have left it.
  try:
    with open(temporary, 'xb') as file:
      file.write(content)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
    _sync_folder(path.parent)
  except OSError:
    with contextlib.suppress(OSError):
      temporary.unlink()
    raise


def sync(paths: Iterable[pathlib.Path]) -> None:
  """Syncs files to disk, so that they survive a loss of power."""
  # Threads let all files wait for the disk at the same time.
  with futures.ThreadPoolExecutor(_NUM_SYNCS) as pool:
    list(pool.map(_sync_file, paths))
    list(pool.map(_sync_folder, {path.parent for path in paths}))


def _check_regular(path):
  """Refuses folders, pipes and devices, whose reading fails or never ends."""
  mode = os.stat(path).st_mode
  if stat.S_ISDIR(mode):
    raise Damaged('it is a folder')
  if not stat.S_ISREG(mode):
    raise Damaged('it is a pipe or a device, not a file')


def _check_sizes(path):
  """Refuses an archive that declares more bytes than the file holds.

  `pack` compresses nothing, so no member inflates or is smaller than its array.
  """
  with zipfile.ZipFile(path) as archive:
    members = archive.infolist()
    if any(m.compress_type != zipfile.ZIP_STORED for m in members):
      raise Damaged('its arrays are compressed, which this library never does')
    declared, size = sum(m.file_size for m in members), os.path.getsize(path)
    if declared > size:
      raise Damaged(f'it has {size} bytes and declares arrays of {declared}')
    for member in members:
      with archive.open(member) as file:
        num_bytes = _num_array_bytes(file)
        if num_bytes != member.file_size - file.tell():
          raise Damaged(
            f'{member.filename} declares an array of {num_bytes} bytes in a '
            f'member of {member.file_size}'
          )


def _num_array_bytes(file):
  """Returns the bytes of the array whose header comes next in the file."""
  version = np.lib.format.read_magic(file)
  if version not in _HEADER_READERS:
    raise Damaged(f'version {version} of its arrays is unknown')
  shape, _, dtype = _HEADER_READERS[version](file)
  return math.prod(shape) * dtype.itemsize


def _digest(header, arrays):
  digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
  for name in sorted(arrays):
    digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
  return digest.hexdigest()


def _sync_file(path):
  with open(path, 'rb+') as file:  # Windows needs write access to sync.
    os.fsync(file.fileno())


def _sync_folder(folder):
  """Syncs a folder, so that a rename survives a loss of power, if possible."""
  if sys.platform != 'win32':
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
      os.fsync(descriptor)
    except OSError as error:
      # Some network file systems cannot sync folders.
      if error.errno not in (errno.EINVAL, errno.ENOTSUP):
        raise
    finally:
      os.close(descriptor)
