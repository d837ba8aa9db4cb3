"""Structures of the scale factor C: one file each."""

from tfp_adaptive.preconditioners.cholesky import cholesky
from tfp_adaptive.preconditioners.diagonal import diagonal

__all__ = ['cholesky', 'diagonal']
