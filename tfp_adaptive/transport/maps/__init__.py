"""Transports: invertible maps with params that a Hamiltonian kernel learns."""

from tfp_adaptive.transport.maps.conditional_gaussian import (
  conditional_gaussian,
)
from tfp_adaptive.transport.maps.real_nvp import real_nvp
from tfp_adaptive.transport.maps.scaled import scaled

__all__ = [
  'conditional_gaussian',
  'real_nvp',
  'scaled',
]
