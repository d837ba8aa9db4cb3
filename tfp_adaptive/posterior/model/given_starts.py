"""Checks starts that a user gave for the unknowns of a joint distribution."""

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import state_parts
from tfp_adaptive.core import structures

# Largest gap between a start and the image of its inverse, relative to the
# largest number of the start plus 1.
_ROUNDED = 1e-2


def of_joint(events, names, init, dtype, num_chains):
  """Returns starts in the structure of the unknowns, or refuses `init`.

  `init` has starts [num_chains, event...] by name, or in the order of the model
  if it has an order. Names have the order of `tf.nest.flatten(events)`.
  """
  leaves = tf.nest.flatten(init)
  given = dict(zip(state_parts.names(init), leaves))
  is_bare = structures.is_sequence(init)
  if isinstance(init, dict) and set(init) == set(names):
    given = init  # Rows of numbers may be lists.
  elif is_bare and not isinstance(events, dict) and len(leaves) == len(names):
    given = dict(zip(names, leaves))
  if set(given) != set(names):
    raise ValueError(
      f'`init` has the parts {", ".join(given)}, but the unknowns of the model '
      f'are {", ".join(names)}. Give starts of {num_chains} chains for each by '
      f'name, `init={{{names[0]!r}: array of [{num_chains}, ...], ...}}`, or '
      'leave `init` out, and they are drawn.'
    )
  starts = [
    _starts_of(name, event, given[name], dtype, num_chains)
    for name, event in zip(names, tf.nest.flatten(events))
  ]
  return tf.nest.pack_sequence_as(events, starts)


def _starts_of(name, event, given, dtype, num_chains):
  """Returns starts of an unknown of a joint distribution."""
  shape = (num_chains, *event.as_list())
  try:
    rows = None if isinstance(given, tf.TensorSpec) else np.asarray(given)
  except ValueError:  # The rows have several lengths.
    rows = None
  if rows is None or rows.dtype.kind not in 'fiu' or rows.shape != shape:
    found = f'the shape {rows.shape}' if rows is not None else repr(given)
    raise ValueError(
      f'`init` of {name} must be an array of numbers of the shape {shape}, one '
      f'start for each of {num_chains} chains, but got {found}. Leave `init` '
      'out, and starts are drawn.'
    )
  return tf.constant(rows, dtype)


def unconstrained(bijector, names, starts):
  """Returns unconstrained starts; refuses starts outside of their support."""
  found = bijector.inverse(starts)
  # Some inverses are finite outside, but `forward` leads elsewhere.
  back = bijector.forward(tf.nest.map_structure(tf.identity, found))
  parts = (tf.nest.flatten(x) for x in (found, starts, back))
  for name, *part in zip(names, *parts):
    z, given, again = (np.reshape(x, [len(x), -1]) for x in part)
    size = 1.0 + np.max(np.abs(given), axis=1, keepdims=True)
    is_inside = np.isfinite(z).all(axis=1)
    is_inside &= (np.abs(again - given) <= _ROUNDED * size).all(axis=1)
    if not np.all(is_inside):
      chain = np.argmin(is_inside)
      raise ValueError(
        f'`init` of {name} is {np.asarray(part[1])[chain].tolist()} for chain '
        f'{chain}, outside of the support of {name} or at its boundary. Start '
        'inside.'
      )
  return found
