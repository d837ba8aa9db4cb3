"""Structures of the scale factor C; each has a file of its own.

Symbols in this folder:

    d, n       size of a state, number of rows
    C          scale factor, [d, d]; C C^T is the covariance of the proposal
    B          C^-1, for structures of the precision B^T B
    b, u       diagonal and superdiagonal of B
    E          tangent at C: C moves as C (I + E), and B as (I - E) B
    e, g       stretch and shear of a row of B (`row_step.py`)
    p          number of superdiagonals of B
    T, k       length of a Markov path, and number of global coordinates
    c, U       C = diag(c) (I + U U^T), for the diagonal plus low-rank structure
"""

from tfp_adaptive.preconditioners.arrow import arrow
from tfp_adaptive.preconditioners.banded import banded
from tfp_adaptive.preconditioners.cholesky import cholesky
from tfp_adaptive.preconditioners.diagonal import diagonal
from tfp_adaptive.preconditioners.low_rank import low_rank
from tfp_adaptive.preconditioners.per_part import per_part
from tfp_adaptive.preconditioners.tridiagonal import tridiagonal

__all__ = [
  'arrow',
  'banded',
  'cholesky',
  'diagonal',
  'low_rank',
  'per_part',
  'tridiagonal',
]
