"""Uncalibrated proposals: one file each."""

from tfp_adaptive.proposals.langevin import UncalibratedPreconditionedLangevin
from tfp_adaptive.proposals.random_walk import (
  UncalibratedPreconditionedRandomWalk,
)

__all__ = [
  'UncalibratedPreconditionedLangevin',
  'UncalibratedPreconditionedRandomWalk',
]
