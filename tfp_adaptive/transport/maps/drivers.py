"""Checks the arguments of `conditional_gaussian`."""

import operator

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments


def as_indices(drivers, num_drivers):
  """Returns the drivers as ints, or `None` if they are to be found."""
  if drivers is None:
    arguments.check_count(num_drivers, 'num_drivers', 3)
    return None
  try:
    indices = [operator.index(d) for d in drivers if not isinstance(d, bool)]
    is_good = len(indices) == len(drivers) > 0 and min(indices) >= 0
  except TypeError:
    is_good = False
  if not is_good:
    raise ValueError(
      '`drivers` must be indices of coordinates, but got '
      f'{drivers!r}. Write for example `drivers=[0]`, or `None` to have them '
      'found.'
    )
  if len(set(indices)) < len(indices):
    raise ValueError(
      f'`drivers` must be different coordinates, but got {drivers!r}.'
    )
  return indices


def as_exponents(exponents, drivers):
  """Returns one float for each of the given drivers, or `None` if not given."""
  if exponents is None:
    return None
  try:
    found = [float(exponent) for exponent in exponents]
    is_good = drivers is not None and len(found) == len(drivers)
    is_good = is_good and np.all(np.isfinite(found))
  except (TypeError, ValueError):
    is_good = False
  if not is_good:
    raise ValueError(
      f'`exponents` must be a number for each of `drivers`, {drivers!r}, but '
      f'got {exponents!r}. Write `None` to have them found.'
    )
  return found


def check_preconditioner(preconditioner):
  """Refuses a value that is not one structure for the whole state."""
  is_part = isinstance(preconditioner, interfaces.Preconditioner)
  if not is_part or preconditioner.takes_part_sizes:
    raise ValueError(
      '`preconditioner` must be one structure for the whole state, but got '
      f'{preconditioner!r}. Write for example '
      '`preconditioner=tfpa.preconditioners.diagonal()` (with parentheses).'
    )


def first(event_size, given, num_drivers):
  """Returns the given drivers, or -1 for each driver that is to be found."""
  size = tf.get_static_value(event_size)
  if size is None or size < 2:
    raise ValueError(
      'A conditional map needs two coordinates or more, and a static event '
      f'shape, but the state has {size}. Use a sampler with a preconditioner.'
    )
  if given is None:
    return [-1] * min(num_drivers, size - 1)
  if max(given) >= size or len(given) >= size:
    raise ValueError(
      f'`drivers` must be coordinates from 0 to {size - 1} and leave at least '
      f'one coordinate out, but got {given!r}.'
    )
  return given
