"""Fits matrices and maps to pairs of states and scores, in NumPy.

Symbols of this folder, row by row for n pairs:

    x          state, [d]; its score g is the gradient of the log density
    m, exp(l)  mean and scale, w = (x - m) / exp(l)
    u          drivers, k coordinates of w; the others are normal given u
    exp(b.u)   one of T terms; the first has b = 0
    P(u)       precision of the other coordinates of w given u, P = L L^T
    h(u)       offsets; the mean of the other coordinates is P(u)^-1 h(u)
    y = C z    standardized coordinates, L^T w - L^-1 h, but u for the drivers;
               C is a matrix, and steps run in z
"""

import functools
import hashlib
import pathlib

__all__ = ['digest']


@functools.cache
def digest() -> str:
  """Returns hex digits that change with the code of this folder."""
  reader = hashlib.sha256()
  for file in sorted(pathlib.Path(__file__).parent.glob('*.py')):
    reader.update(file.read_bytes())
  return reader.hexdigest()
