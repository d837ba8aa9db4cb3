"""Files of arrays with a header, written whole or not at all."""

import contextlib
import errno
import hashlib
import io
import json
import os
from concurrent import futures

import numpy as np

__all__ = ['Damaged', 'pack', 'seal', 'sync', 'unpack', 'unseal', 'write']

_NUM_SYNCS = 16
_ERRNOS_OF_DAMAGE = errno.ENOENT, errno.EINVAL


class Damaged(ValueError):
  """A file that is not what was written, and why."""


def pack(arrays):
  """Returns the bytes of a dict of arrays."""
  buffer = io.BytesIO()
  np.savez(buffer, **arrays)
  return buffer.getvalue()


def unpack(path):
  """Returns the dict of arrays in a file."""
  try:
    with np.load(path, allow_pickle=False) as stored:
      return {name: stored[name] for name in stored.files}
  except MemoryError:
    raise
  except Exception as error:  # zipfile, zlib, numpy: whatever damage raises.
    # A zip file whose end is wrong points out of itself.
    is_damage = getattr(error, 'errno', None) in _ERRNOS_OF_DAMAGE
    if isinstance(error, OSError) and not is_damage:
      raise  # As of rights, or of a network: the file may be as it was.
    raise Damaged(f'it cannot be read ({error})') from error


def seal(header, arrays):
  """Returns the bytes of both, with their checksum.

  Args:
    header: dict of JSON values.
    arrays: dict of arrays; no name is `header` or `digest`.
  """
  digest = _digest(header, arrays)
  return pack(dict(arrays, header=json.dumps(header), digest=digest))


def unseal(path):
  """Returns the header and the arrays of a file of `seal`."""
  arrays = unpack(path)
  try:
    header = json.loads(str(arrays.pop('header')))
    digest = str(arrays.pop('digest'))
  except (KeyError, ValueError) as error:
    raise Damaged('its header cannot be read') from error
  if digest != _digest(header, arrays):
    raise Damaged('its checksum does not match')
  return header, arrays


def write(path, content):
  """Writes bytes beside their place, and renames the file into it.

  Args:
    path: `pathlib.Path`.
    content: Bytes.

  Raises:
    OSError: If they cannot be written; what was there before stays.
  """
  temporary = path.with_name(path.name + '.tmp')
  try:
    with open(temporary, 'wb') as file:
      file.write(content)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
    _sync_folder(path.parent)
  except OSError:
    with contextlib.suppress(OSError):
      temporary.unlink()
    raise


def sync(paths):
  """Makes files that others wrote outlast a loss of power.

  Args:
    paths: `pathlib.Path`s.
  """
  # At once: one wait for the disk instead of one for each file.
  with futures.ThreadPoolExecutor(_NUM_SYNCS) as pool:
    list(pool.map(_sync_file, paths))
    list(pool.map(_sync_folder, {path.parent for path in paths}))


def _digest(header, arrays):
  digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
  for name in sorted(arrays):
    digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
  return digest.hexdigest()


def _sync_file(path):
  with open(path, 'rb+') as file:  # Windows syncs no file that is only read.
    os.fsync(file.fileno())


def _sync_folder(folder):
  """Makes a rename outlast a loss of power, where folders can be opened."""
  if hasattr(os, 'O_DIRECTORY'):
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
      os.fsync(descriptor)
    except OSError as error:
      # Some file systems of others' machines do not know it for folders.
      if error.errno not in (errno.EINVAL, errno.ENOTSUP):
        raise
    finally:
      os.close(descriptor)
