"""Fits of matrices and maps to pairs of states and gradients, in NumPy."""

import functools
import hashlib
import pathlib

__all__ = ['digest']


@functools.cache
def digest() -> str:
  """Returns hex digits of the code of all fits."""
  reader = hashlib.sha256()
  for file in sorted(pathlib.Path(__file__).parent.glob('*.py')):
    reader.update(file.read_bytes())
  return reader.hexdigest()
