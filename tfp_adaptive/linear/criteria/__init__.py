"""Criteria that an adaptation maximizes, one in each file but `penalty`."""

from tfp_adaptive.linear.criteria.cross_entropy import cross_entropy
from tfp_adaptive.linear.criteria.expected_squared_jump_distance import (
  expected_squared_jump_distance,
)
from tfp_adaptive.linear.criteria.generalized_speed_measure import (
  generalized_speed_measure,
)
from tfp_adaptive.linear.criteria.l2hmc import l2hmc

__all__ = [
  'cross_entropy',
  'expected_squared_jump_distance',
  'generalized_speed_measure',
  'l2hmc',
]
