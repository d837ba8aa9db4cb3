"""A model as one density over a vector, with the way back and with names.

A joint distribution with its data pinned, or a density with starts and
bijectors: its unknowns x are sampled as z, T^-1(x) in one vector,

  log pi(z) = log p(T(z)) + log |det dT/dz|,

and T(z) is what a user sees.
"""

import warnings
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import random
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import tfp_private

__all__ = ['Problem', 'coordinate_names', 'of_density', 'of_joint']

tfb = tfp.bijectors
tfd = tfp.distributions

_RADIUS = 2.0  # Of starts that nobody gave, in unconstrained space.
_EXAMPLE = (
  '`tfpa.sample_posterior(log_prob_fn, init={"scale": tf.TensorSpec([])}, '
  'bijectors={"scale": tfb.Exp()})`'
)


class Problem(NamedTuple):
  """What is sampled, [chains, d] unconstrained, and what it means."""

  # z -> [chains].
  target_log_prob_fn: Callable
  # z [..., d] -> the user's structure, [..., event] each.
  constrain: Callable
  # (number of chains, [2] seed) -> z.
  draw_starts: Callable
  # The same from the prior; None where no prior is known.
  draw_prior: Callable | None
  # Names of the leaves of the structure, in the order of `tf.nest.flatten`.
  names: tuple
  # The same for every unconstrained coordinate: `theta[3]`.
  coordinates: tuple
  dtype: Any
  event_size: int
  # dict of the values that parts of a joint distribution were given, numpy.
  observed: dict


def of_joint(model, pins):
  """Returns the `Problem` of a joint distribution and values of its parts.

  Args:
    model: `tfd.JointDistribution`, or one with pins.
    pins: dict of observed values, by name.
  """
  model, names = _pinned(model, pins)
  dtype = _one_dtype(names, tf.nest.flatten(model.dtype))
  bijector = model.experimental_default_event_space_bijector()
  split = _Split(bijector.inverse_event_shape(model.event_shape))
  ranks = tf.nest.map_structure(lambda shape: shape.rank, split.shapes)

  def target_log_prob_fn(z):
    parts = split(z)
    return model.unnormalized_log_prob(
      bijector.forward(parts)
    ) + bijector.forward_log_det_jacobian(parts, ranks)

  def draw_prior(num_chains, seed):
    is_pinned = hasattr(model, 'sample_unpinned')
    draw = model.sample_unpinned if is_pinned else model.sample
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', UserWarning)  # Seeded draws are slow.
      draws = draw(num_chains, seed=seed)
    return split.joined(bijector.inverse(draws))

  return Problem(
    target_log_prob_fn,
    constrain=lambda z: bijector.forward(split(z)),
    draw_starts=split.draw_starts(dtype),
    draw_prior=draw_prior,
    names=names,
    coordinates=split.coordinates(names),
    dtype=dtype,
    event_size=split.event_size,
    observed={k: np.asarray(v) for k, v in getattr(model, 'pins', {}).items()},
  )


def _pinned(model, pins):
  """Returns a joint distribution with values, and the names that are left."""
  parts = _part_names(model)
  if pins:
    _check_pins(parts, pins)
    model = model.experimental_pin(**pins)
  _check_is_of_one_chain(model)
  events = model.event_shape
  names = state_parts.names(events)
  if isinstance(events, (list, tuple)) and not hasattr(events, '_asdict'):
    left = tuple(name for name in parts if name not in pins)
    names = left if len(left) == len(names) else names
  if not names:
    raise ValueError('All parts have values: nothing is left to be sampled.')
  return model, names


def of_density(log_prob_fn, init, bijectors, num_chains):
  """Returns the `Problem` of a log density.

  Args:
    log_prob_fn: Log density over a structure, called as TFP calls it.
    init: The structure: of starts [chains, event...], or of `tf.TensorSpec` of
      an event.
    bijectors: The same structure, or dict with some of its keys, of bijectors
      onto the supports; `None`: all real.
    num_chains: Of starts.
  """
  if init is None:
    raise ValueError(
      '`init` says what the unknowns are: a structure of `tf.TensorSpec(shape)`'
      f', or of starts for {num_chains} chains. Write for example {_EXAMPLE}.'
    )
  names = state_parts.names(init)
  maps = _bijectors_like(init, names, bijectors)
  events, starts = _events_and_starts(names, tf.nest.flatten(init), num_chains)
  dtype = _one_dtype(names, [leaf.dtype for leaf in starts or events])
  split = _Split([m.inverse_event_shape(e.shape) for m, e in zip(maps, events)])

  def constrain(z):
    parts = [m.forward(part) for m, part in zip(maps, split(z))]
    return tf.nest.pack_sequence_as(init, parts)

  def target_log_prob_fn(z):
    value = tfp_private.call_fn(log_prob_fn, constrain(z))
    for bijector, part, shape in zip(maps, split(z), split.shapes):
      value += bijector.forward_log_det_jacobian(part, event_ndims=shape.rank)
    return value

  draw = split.draw_starts(dtype)
  if starts:
    given = split.joined([m.inverse(leaf) for m, leaf in zip(maps, starts)])
    draw = lambda num_chains, seed: given
  return Problem(
    target_log_prob_fn,
    constrain,
    draw,
    draw_prior=None,
    names=names,
    coordinates=split.coordinates(names),
    dtype=dtype,
    event_size=split.event_size,
    observed={},
  )


def coordinate_names(names, shapes):
  """Returns a name for each number of parts: `tau`, `theta[3]`."""
  return tuple(
    f'{name}[{",".join(map(str, index))}]' if index else name
    for name, shape in zip(names, shapes)
    for index in np.ndindex(*shape)
  )


class _Split:
  """Vectors [..., d] as a structure of parts of given shapes, and back."""

  def __init__(self, shapes):
    self.shapes = shapes
    self._flat = [s.as_list() for s in tf.nest.flatten(shapes)]
    self._sizes = [int(np.prod(shape)) for shape in self._flat]
    self.event_size = sum(self._sizes)

  def __call__(self, z):
    # A new Tensor each time: bijectors cache by it, across `tf.cond` too.
    parts = tf.split(tf.identity(z), self._sizes, axis=-1)
    return tf.nest.pack_sequence_as(
      self.shapes,
      [
        tf.reshape(part, tf.concat([tf.shape(z)[:-1], shape], axis=0))
        for part, shape in zip(parts, self._flat)
      ],
    )

  def joined(self, structure):
    """Returns [chains, d] of a structure of [chains, event...]."""
    parts = tf.nest.flatten(structure)
    rows = [tf.reshape(part, [len(part), -1]) for part in parts]
    return tf.concat(rows, axis=-1)

  def coordinates(self, names):
    """Returns a name for each number, given those of the parts."""
    return coordinate_names(names, self._flat)

  def draw_starts(self, dtype):
    def draw(num_chains, seed):
      share = random.uniform([num_chains, self.event_size], dtype, seed)
      return _RADIUS * (2.0 * share - 1.0)

    return draw


def _bijectors_like(init, names, bijectors):
  """Returns a bijector for each leaf of `init`, in the order of its names."""
  if bijectors is None:
    found = [None] * len(names)
  elif isinstance(bijectors, tfb.Bijector) and len(names) > 1:
    raise ValueError(
      f'`bijectors` is one, but `init` has {len(names)} parts '
      f'({", ".join(names)}): give one for each, `None` for a real one.'
    )
  else:
    found = _matched(init, bijectors)
  return [tfb.Identity() if part is None else part for part in found]


def _matched(init, maps):
  """Returns the maps of all leaves: by name where `init` has names."""
  parts, maps = (
    s._asdict() if hasattr(s, '_asdict') else s for s in (init, maps)
  )
  if isinstance(parts, dict):
    maps = {} if maps is None else maps
    unknown = sorted(set(maps) - set(parts)) if isinstance(maps, dict) else maps
    if unknown or not isinstance(maps, dict):
      raise ValueError(
        f'`init` has the parts {", ".join(map(str, parts))}, so `bijectors` is '
        f'a dict of some of these, but got {unknown!r}.'
      )
    keys = list(parts) if hasattr(init, '_asdict') else sorted(parts)
    return [m for key in keys for m in _matched(parts[key], maps.get(key))]
  if isinstance(parts, (list, tuple)):
    maps = [None] * len(parts) if maps is None else maps
    if not isinstance(maps, (list, tuple)) or len(maps) != len(parts):
      raise ValueError(
        f'`init` is a sequence of {len(parts)} parts, so `bijectors` is one of '
        f'as many, `None` for a real one, but got {maps!r}.'
      )
    return [m for pair in zip(parts, maps) for m in _matched(*pair)]
  return [maps]


def _events_and_starts(names, leaves, num_chains):
  """Returns `tf.TensorSpec`s of events, and starts, none where specs came."""
  if all(isinstance(leaf, tf.TensorSpec) for leaf in leaves):
    return leaves, []
  starts = [_as_starts(*pair, num_chains) for pair in zip(names, leaves)]
  return [tf.TensorSpec(leaf.shape[1:], leaf.dtype) for leaf in starts], starts


def _as_starts(name, leaf, num_chains):
  if isinstance(leaf, tf.TensorSpec):
    raise ValueError(
      f'`init` gives starts for some parts and a shape for {name}: give '
      'starts for all, or shapes for all.'
    )
  leaf = tf.convert_to_tensor(leaf)
  if leaf.shape.rank < 1 or leaf.shape[0] != num_chains:
    raise ValueError(
      f'`init` of {name} has shape {leaf.shape}, but starts begin with one row '
      f'for each of {num_chains} chains. If it is the shape of {name} that '
      f'you mean, write `tf.TensorSpec({leaf.shape.as_list()})`; for '
      f'another number of chains write `num_chains=`.'
    )
  return leaf


def _part_names(model):
  """Returns the names of all parts of a joint distribution, as its pins go."""
  if not hasattr(model, 'resolve_graph'):
    return state_parts.names(model.event_shape)
  return tuple(name for name, _ in model.resolve_graph())


def _check_is_of_one_chain(model):
  """Refuses a model whose own batches would be taken for chains."""
  whole = getattr(model, 'distribution', model)
  for shape in tf.nest.flatten(whole.batch_shape):
    if shape.rank:
      raise ValueError(
        f'A part of the model has the batch shape {shape.as_list()}, where '
        'chains are to be. Write it for one chain as '
        '`tfd.JointDistributionCoroutineAutoBatched`, or make the axes of '
        'events: `tfd.Sample`, `tfd.Independent`.'
      )


def _check_pins(names, pins):
  """Refuses values of no part of a model, and NaN."""
  unknown = sorted(set(pins) - set(names))
  if unknown:
    raise ValueError(
      f'{", ".join(map(repr, unknown))}: no part of the model, and no '
      f'argument, has this name; the parts are {", ".join(names)}.'
    )
  for name, value in pins.items():
    value = np.asarray(value)
    is_number = np.issubdtype(value.dtype, np.number)
    if not (is_number or value.dtype == bool) or np.any(np.isnan(value)):
      raise ValueError(
        f'The data {name!r} are not numbers throughout. Leave missing ones '
        'out, or make them unknowns of the model.'
      )


def _one_dtype(names, dtypes):
  """Returns the dtype of all parts; refuses two, and discrete ones."""
  dtypes = [tf.as_dtype(dtype) for dtype in dtypes]
  for name, dtype in zip(names, dtypes):
    if not dtype.is_floating:
      raise ValueError(
        f'{name} is {dtype.name}, and gradients need continuous '
        'unknowns. If it is data, pin it; else sum it out of the density, as '
        '`tfd.MixtureSameFamily` and `tfd.HiddenMarkovModel` do.'
      )
  if len(set(dtypes)) > 1:
    listed = ', '.join(f'{n} {d.name}' for n, d in zip(names, dtypes))
    raise ValueError(
      f'Unknowns must share one dtype, but these are {listed}. Write all '
      'constants of the model in one, for example `np.float64(1.0)`.'
    )
  return dtypes[0]
