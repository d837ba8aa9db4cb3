"""A log acceptance ratio that no single chain can dominate.

min(0, r) is not bounded below: a chain in a place too narrow for the step,
where r is -1000, would teach a shared factor more than a hundred chains with r
near -1. The speed measure therefore takes, of min(0, r),

  R atan(r / R),   derivative 1 / (1 + (r / R)^2),   R = 3,

which is r itself where moves are accepted at all. On a Gaussian target the best
shape stays the same: with a whitening factor the law of r is invariant to
rotations, so that the gradient of the mean of any function of r is a multiple
of I.
"""

import tensorflow as tf

__all__ = ['bounded', 'weight']

_SCALE = 3.0


def bounded(log_ratio):
  """Returns R atan(r / R), in (-R pi / 2, R pi / 2)."""
  return _SCALE * tf.atan(log_ratio / _SCALE)


def weight(log_ratio):
  """Returns its derivative, in (0, 1]."""
  return 1.0 / (1.0 + (log_ratio / _SCALE) ** 2)
