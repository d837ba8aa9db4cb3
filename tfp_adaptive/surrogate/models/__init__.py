"""Densities learned from draws alone, by score matching."""

from tfp_adaptive.surrogate.models.in_turn import in_turn
from tfp_adaptive.surrogate.models.kernel_exponential_family_finite import (
  kernel_exponential_family_finite,
)
from tfp_adaptive.surrogate.models.kernel_exponential_family_lite import (
  kernel_exponential_family_lite,
)

__all__ = [
  'in_turn',
  'kernel_exponential_family_finite',
  'kernel_exponential_family_lite',
]
