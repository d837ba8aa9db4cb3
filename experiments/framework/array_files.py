"""Arrays of real numbers from files of others: checked before they are read.

An archive says in a few bytes what it unpacks to, so shapes and types are
compared with what is wanted first; what cannot be read is one error.
"""

import contextlib
import math
import os
import tokenize
import zipfile
import zlib

import numpy as np

from experiments.run.errors import DataError
from experiments.run.errors import shortened

__all__ = [
  'check_is_file',
  'fits',
  'read_npy',
  'read_npz',
  'unreadable_as_data_error',
]

_MAX_PATH = 120
# Whole and real numbers, true and false.
_KINDS = 'biuf'
# Bytes of the header of an array, at most, and of one of its numbers.
_MAX_HEADER = 10_000
_MAX_ITEM = 16
# What numpy and zipfile raise for what they cannot read.
_ERRORS = (
  EOFError,
  IndexError,
  KeyError,
  MemoryError,
  NotImplementedError,
  OSError,
  OverflowError,
  RecursionError,
  RuntimeError,
  SyntaxError,
  TypeError,
  ValueError,
  tokenize.TokenError,
  zipfile.BadZipFile,
  zlib.error,
)


@contextlib.contextmanager
def unreadable_as_data_error(origin, expected):
  """Turns what a file's reader raises into one sentence.

  Args:
    origin: what the file is called in messages.
    expected: what it should hold.
  """
  try:
    yield
  except DataError:
    raise
  except _ERRORS as error:
    raise DataError(
      f'{origin} cannot be read ({shortened(error, 120)}); '
      f'expected is {expected}.'
    ) from error


def check_is_file(path, origin):
  """Refuses a folder, a pipe or a device, which may never end.

  Args:
    path: the path that was given; one that does not exist is not refused.
    origin: what the file is called in messages.
  """
  if os.path.exists(path) and not os.path.isfile(path):
    kind = 'a folder' if os.path.isdir(path) else 'a pipe or a device'
    raise DataError(f'{origin} is {kind}; write the path of a regular file.')


def fits(shape, wanted):
  """Returns whether a shape is the wanted one; None fits any length."""
  return len(shape) == len(wanted) and all(
    want is None or size == want for size, want in zip(shape, wanted)
  )


def read_npz(path, wanted, most, text=()):
  """Returns {name: array} of an archive's named arrays.

  Args:
    path: of the .npz file.
    wanted: {name: shapes that are allowed}, None for any length.
    most: entries of an array, at most.
    text: names of arrays that may hold text, too.

  Raises:
    DataError: if a name is missing, a shape or a type is another, or the file
      cannot be read.
  """
  expected = f'an .npz with arrays {" and ".join(wanted)}'
  origin = shortened(path, _MAX_PATH)
  check_is_file(path, origin)
  with unreadable_as_data_error(origin, expected):
    with zipfile.ZipFile(path) as archive:
      for name, shapes in wanted.items():
        kinds = _KINDS + 'U' * (name in text)
        _check_member(archive, name, kinds, shapes, most, origin)
    with np.load(path, allow_pickle=False) as arrays:
      return {name: arrays[name] for name in wanted}


def read_npy(path, shape, most, origin):
  """Returns the array of an .npy file; refuses others as `read_npz` does."""
  check_is_file(path, origin)
  with unreadable_as_data_error(origin, 'an .npy file with one array'):
    with open(path, 'rb') as file:
      header = _header(file)
      _check_header(*header, 'array', _KINDS, [shape], most, origin)
      stored = os.fstat(file.fileno()).st_size - file.tell()
      if stored != math.prod(header[0]) * header[1].itemsize:
        raise ValueError(f'{stored} bytes follow its header')
    return np.load(path, allow_pickle=False)


def _check_member(archive, name, kinds, shapes, most, origin):
  info = archive.getinfo(f'{name}.npy')
  if info.file_size > most * _MAX_ITEM + _MAX_HEADER:
    raise DataError(
      f'{origin}: {name} unpacks to {info.file_size} bytes; '
      f'expected are {_described(shapes)}.'
    )
  with archive.open(info) as file:
    shape, dtype = _header(file)
  _check_header(shape, dtype, name, kinds, shapes, most, origin)


def _header(file):
  """Returns shape and type of an array whose file was just opened."""
  version = np.lib.format.read_magic(file)
  readers = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
  }
  if version not in readers:
    raise ValueError(f'version {version} of the format')
  shape, _, dtype = readers[version](file)
  return shape, dtype


def _check_header(shape, dtype, name, kinds, shapes, most, origin):
  if dtype.kind not in kinds:
    raise DataError(
      f'{origin}: {name} is of type {shortened(dtype)}; expected '
      'are real or whole numbers.'
    )
  is_allowed = any(fits(shape, wanted) for wanted in shapes)
  if not is_allowed or math.prod(shape) > most or min(shape, default=0) < 0:
    raise DataError(
      f'{origin}: {name} has shape {shortened(shape)}; expected '
      f'are {_described(shapes)}.'
    )


def _described(shapes):
  texts = [str(shape).replace('None', 'any') for shape in shapes]
  return ' or '.join(texts)
