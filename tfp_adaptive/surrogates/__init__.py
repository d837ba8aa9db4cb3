"""Densities learned from draws alone, by score matching."""

from tfp_adaptive.surrogates.in_turn import in_turn
from tfp_adaptive.surrogates.kernel_exponential_family_finite import (
  kernel_exponential_family_finite,
)
from tfp_adaptive.surrogates.kernel_exponential_family_lite import (
  kernel_exponential_family_lite,
)
from tfp_adaptive.surrogates.kernel_subsample import kernel_subsample

__all__ = [
  'in_turn',
  'kernel_exponential_family_finite',
  'kernel_exponential_family_lite',
  'kernel_subsample',
]
