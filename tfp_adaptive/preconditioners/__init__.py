"""Structures of the scale factor C: one file each."""

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
