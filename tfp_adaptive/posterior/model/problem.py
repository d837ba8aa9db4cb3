"""A model as one density of vectors, with the map to its named unknowns.

The model is a joint distribution with its data pinned, or a log density p with
starts and bijectors. Its unknowns x are sampled as one vector z = T^-1(x), with
the density pi,

  log pi(z) = log p(T(z)) + log |det dT/dz|,

and the user gets T(z).
"""

import functools
import warnings
from collections.abc import Callable
from types import MappingProxyType
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import custom_gradient
from tfp_adaptive.core import random
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import structures
from tfp_adaptive.core import target_call
from tfp_adaptive.improper_uniform import has_flat_part
from tfp_adaptive.posterior.model import bounds
from tfp_adaptive.posterior.model import data
from tfp_adaptive.posterior.model import exact
from tfp_adaptive.posterior.model import given_starts
from tfp_adaptive.posterior.model import kinds
from tfp_adaptive.posterior.model import supports

tfb = tfp.bijectors
tfd = tfp.distributions

# Starts are first drawn uniformly in [-2, 2], in unconstrained space.
_RADIUS = 2.0
_NUM_CANDIDATES = 512  # Points to try for one with possible data.
_EXAMPLE = (
  '`tfpa.sample_posterior(log_prob_fn, init={"scale": tf.TensorSpec([])}, '
  'bijectors={"scale": tfb.Exp()})`'
)


class Problem(NamedTuple):
  """A density of unconstrained z, [chains, d], and the meaning of z."""

  # z -> [chains].
  target_log_prob_fn: Callable
  # z [..., d] -> the user's structure, [..., event] each.
  constrain: Callable
  # (number of chains, [2] seed) -> z.
  draw_starts: Callable
  # The same for draws from the prior; None if no prior is known.
  draw_prior: Callable | None
  # Names of the leaves of the structure, in the order of `tf.nest.flatten`.
  names: tuple
  # Names of the unconstrained coordinates, for example `theta[3]`.
  coordinates: tuple
  dtype: Any
  event_size: int
  # dict of the observed values of a joint distribution, numpy. If a part is a
  # joint distribution, its value is a structure.
  observed: dict
  # The joint distribution with nothing pinned; None for a density.
  model: Any = None
  # Names of parts whose density in TFP is wrong at some values, see `exact`.
  inexact: frozenset = frozenset()
  # For ArviZ: dimension -> labels, name -> dimensions.
  coords: Any = MappingProxyType({})
  dims: Any = MappingProxyType({})
  # Function of arrays z [chains, d] to values and gradients if the density is
  # computed outside of TensorFlow, else None.
  in_python: Callable | None = None


def of_joint(model, pins, init=None, num_chains=None, options=()):
  """Returns the `Problem` of a joint distribution with observed values `pins`.

  `init` are starts [num_chains, event...] of all unknowns, by name or in the
  model's structure. If it is `None`, starts are drawn. Messages suggest the
  `options` for misspelled names.
  """
  checked = data.checked(model, pins, options)
  model, names, log_prob = _pinned(model, pins, checked)
  whole, _ = kinds.unpinned(model)
  dtype = _one_dtype(names, tf.nest.flatten(model.dtype))
  bijector = _map_of(model)
  split = _Split(bijector.inverse_event_shape(model.event_shape), dtype)
  ranks = tf.nest.map_structure(lambda shape: shape.rank, split.shapes)

  def target_log_prob_fn(z):
    parts = split(z)
    value = target_call.call(log_prob, [bijector.forward(parts)])
    return value + bijector.forward_log_det_jacobian(parts, ranks)

  @functools.partial(tf.function, autograph=False)
  def draw_prior(num_chains, seed):
    draw = model.sample if model is whole else model.sample_unpinned
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', UserWarning)  # About slow seeded draws.
      draws = draw(num_chains, seed=seed)
    starts = split.joined(bijector.inverse(draws))
    custom_gradient.let_go(tf.compat.v1.get_default_graph())
    return starts

  if has_flat_part(model):
    draw_prior = None  # A flat prior has no draws.
  draw = split.draw_starts(dtype)
  if init is not None:
    starts = given_starts.of_joint(
      model.event_shape, names, init, dtype, num_chains
    )
    given = split.joined(given_starts.unconstrained(bijector, names, starts))
    draw, draw_prior = lambda num_chains, seed: given, None
  problem = Problem(
    target_log_prob_fn,
    constrain=lambda z: bijector.forward(split(z)),
    draw_starts=draw,
    draw_prior=draw_prior,
    names=names,
    coordinates=split.coordinates(names),
    dtype=dtype,
    event_size=split.event_size,
    observed=data.as_arrays(model),
    model=whole,
    inexact=checked.inexact,
  )
  if checked.inexact or checked.bounding:
    # `exact` evaluates the model chain by chain.
    unknowns = problem.constrain(draw(num_chains or 1, tf.constant([0, 0])))
    named, parts = kinds.in_order(unknowns)
    _, pinned = kinds.unpinned(model)
    left = [part for part in checked.names if part not in pinned]
    data.check_axes(whole, dict(zip(named or left, parts)), pinned)
  if not checked.bounding:
    return problem
  possible = exact.possible(model, checked.bounding, checked.names)
  which = split.indices(names, checked.bounded)
  return _bounded(problem, possible, which, is_given=init is not None)


def _map_of(model):
  """Returns the map onto the supports. To find it, TFP draws from the prior."""
  try:
    return supports.bijector_of(model)
  except (TypeError, ValueError, tf.errors.OpError) as error:
    what = 'The model cannot draw from its prior'
    raise target_call.explained(error, what) from error


def _bounded(problem, possible, which, is_given):
  """Returns the problem in coordinates that the data do not bound.

  `possible` is a function of the unknowns: whether the data can be drawn. The
  data may bound the coordinates `which`. If `is_given`, the user gave starts.
  """

  @functools.partial(tf.function, autograph=False, reduce_retracing=True)
  def is_finite(z):
    parts = tf.nest.flatten(problem.constrain(z))
    custom_gradient.let_go(tf.compat.v1.get_default_graph())
    return _are_finite(parts)

  @functools.partial(tf.function, autograph=False, reduce_retracing=True)
  def is_possible(z):
    unknowns = problem.constrain(z)
    found = possible(unknowns) | ~_are_finite(tf.nest.flatten(unknowns))
    custom_gradient.let_go(tf.compat.v1.get_default_graph())
    return found

  candidates = _candidates(problem)
  box = bounds.intervals(is_possible, is_finite, candidates, which)
  if box is None:
    return problem

  def target_log_prob_fn(w):
    w = tf.cast(w, problem.dtype)
    value = problem.target_log_prob_fn(box.forward(w))
    return value + box.forward_log_det_jacobian(tf.identity(w), event_ndims=1)

  def constrain(w):
    return problem.constrain(box.forward(tf.cast(w, problem.dtype)))

  def inside(draw):
    return draw and (lambda *args: box.inverse(draw(*args)))

  if is_given:
    starts = inside(problem.draw_starts)(None, None)
    is_good = np.all(np.isfinite(starts), axis=-1)
    if not np.all(is_good):
      raise ValueError(
        f'`init` of chain {np.argmin(is_good)} has values at which the data '
        'are impossible, or at the boundary of such values. Start where the '
        'data are possible.'
      )
  return problem._replace(
    target_log_prob_fn=target_log_prob_fn,
    constrain=constrain,
    draw_starts=inside(problem.draw_starts)
    if is_given
    else problem.draw_starts,
    draw_prior=inside(problem.draw_prior),
  )


def _are_finite(parts):
  """Returns which chains, [chains], have only finite numbers in all parts."""
  axes = [list(range(1, part.shape.rank)) for part in parts]
  found = [
    tf.reduce_all(tf.math.is_finite(part), axis=axis)
    for part, axis in zip(parts, axes)
  ]
  return functools.reduce(tf.logical_and, found)


def _candidates(problem):
  """Returns starts and prior draws, [n, d], to find one with possible data."""
  seed = tf.constant([0, 1])
  points = [np.asarray(problem.draw_starts(_NUM_CANDIDATES, seed))]
  if problem.draw_prior is not None:
    try:
      points.append(np.asarray(problem.draw_prior(_NUM_CANDIDATES, seed)))
    except (
      LookupError,
      RuntimeError,
      TypeError,
      ValueError,
      tf.errors.OpError,
    ):
      pass  # A prior may have no draws.
  return np.concatenate(points)


def _pinned(model, pins, checked):
  """Returns (pinned joint distribution, names of unknowns, log density)."""
  whole, before = kinds.unpinned(model)
  given = {**before, **pins}
  parts = checked.names
  cast = data.in_dtypes_of(model, given)
  if cast:
    model = whole.experimental_pin(**{**given, **cast})
  elif pins:
    model = model.experimental_pin(**pins)
  names = state_parts.names(model.event_shape)
  left = tuple(part for part in parts if part not in given)
  is_sequence = type(model.event_shape) in (list, tuple)
  names = left if is_sequence and len(left) == len(names) else names
  if not names:
    raise ValueError('All parts have values: nothing is left to be sampled.')
  if checked.inexact:
    return model, names, exact.density(model, checked.inexact, parts)
  return model, names, model.unnormalized_log_prob


def of_density(log_prob_fn, init, bijectors, num_chains):
  """Returns the `Problem` of a log density, which is called as TFP calls it.

  `init` is a structure of starts [num_chains, event...], or of a
  `tf.TensorSpec` for each event. `bijectors` onto the supports have the same
  structure, or are a dict with some of its keys. Other unknowns are unbounded.
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
  shapes = [_unconstrained(*triple) for triple in zip(names, events, maps)]
  split = _Split(shapes, dtype)

  def constrain(z):
    parts = [m.forward(part) for m, part in zip(maps, split(z))]
    return tf.nest.pack_sequence_as(init, parts)

  def target_log_prob_fn(z):
    value = tf.convert_to_tensor(target_call.call(log_prob_fn, constrain(z)))
    if value.dtype != dtype:
      raise target_call.TargetError(
        f'The log density is {value.dtype.name}, of unknowns of {dtype.name}. '
        f'Write `init=tf.TensorSpec(shape, tf.{value.dtype.name})`, or '
        f'`tf.cast(..., tf.{dtype.name})` around what it returns.'
      )
    for bijector, part, shape in zip(maps, split(z), split.shapes):
      value += bijector.forward_log_det_jacobian(part, event_ndims=shape.rank)
    return value

  draw = split.draw_starts(dtype)
  if starts:
    triples = zip(maps, names, starts)
    parts = [given_starts.unconstrained(m, [n], x) for m, n, x in triples]
    given = split.joined(parts)
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


def labelled(problem, coords, dims):
  """Returns the problem with labels for ArviZ, or refuses labels."""
  coords = {**problem.coords, **(coords or {})}
  dims = {name: list(x) for name, x in {**problem.dims, **(dims or {})}.items()}
  if not dims and not coords:
    return problem
  start = problem.constrain(problem.draw_starts(1, tf.constant([0, 0])))
  shapes = dict(
    zip(problem.names, (x.shape[1:] for x in tf.nest.flatten(start)))
  )
  shapes |= {name: np.shape(x) for name, x in problem.observed.items()}
  for name, names in dims.items():
    if name not in shapes:
      raise ValueError(
        f'`dims` has {name!r}, which is no part of the model. Its parts are '
        f'{", ".join(shapes)}.'
      )
    if len(names) != len(shapes[name]):
      raise ValueError(
        f'`dims` of {name!r} is {names!r}, but its shape is '
        f'{tuple(shapes[name])}: give one name for each axis.'
      )
    for dim, size in zip(names, shapes[name]):
      if dim in coords and len(coords[dim]) != size:
        raise ValueError(
          f'`coords` has {len(coords[dim])} labels of {dim!r}, but {name!r} '
          f'has {size} numbers there.'
        )
  return problem._replace(coords=coords, dims=dims)


def of_model(model, num_chains):
  """Returns the `Problem` of a `models.Model`."""
  problem = of_density(
    model.log_prob_fn, model.init, model.bijectors, num_chains
  )
  problem = problem._replace(coords=model.coords, dims=model.dims)
  if model.in_python is not None:
    problem = problem._replace(in_python=_in_python(model, problem))
  if model.shown is None:
    return problem

  def shown(*parts):
    rank = max(0, parts[0].ndim - tf.nest.flatten(model.init)[0].shape.rank)
    batch = parts[0].shape[:rank]
    rows = [np.reshape(part, [-1, *part.shape[rank:]]) for part in parts]
    found = model.shown(tf.nest.pack_sequence_as(model.init, rows))
    return {
      name: np.reshape(found[name], [*batch, *np.shape(found[name])[1:]])
      for name in sorted(found)
    }

  start = problem.constrain(problem.draw_starts(1, tf.constant([0, 0])))
  example = shown(*(part.numpy() for part in tf.nest.flatten(start)))

  def constrain(z):
    parts = tf.nest.flatten(problem.constrain(z))
    found = tf.numpy_function(
      lambda *parts: list(shown(*parts).values()),
      parts,
      [tf.as_dtype(x.dtype) for x in example.values()],
    )
    if len(example) == 1 and isinstance(found, tf.Tensor):
      found = [found]  # TensorFlow returns a single output without a list.
    for part, x in zip(found, example.values(), strict=True):
      part.set_shape([*z.shape[:-1], *x.shape[1:]])
    return dict(zip(example, found))

  return problem._replace(constrain=constrain, names=tuple(example))


def _in_python(model, problem):
  """Returns a Python function of z to values, and gradients with respect to z.

  The gradient is that of <T(z), g> + log |det dT/dz|. Here g is the gradient of
  log p at T(z), treated as a constant.
  """
  specs = tf.nest.flatten(model.init)
  maps = _bijectors_like(model.init, problem.names, model.bijectors)
  shapes = [
    _unconstrained(n, *pair) for n, *pair in zip(problem.names, specs, maps)
  ]
  split = _Split(shapes, problem.dtype)

  @functools.partial(tf.function, autograph=False)
  def forward(z):
    parts = [m.forward(part) for m, part in zip(maps, split(z))]
    return [tf.identity(part) for part in parts]

  @functools.partial(tf.function, autograph=False)
  def pulled_back(z, gradients):
    with tf.GradientTape() as tape:
      tape.watch(z)
      pieces = [(m, part, m.forward(part)) for m, part in zip(maps, split(z))]
      log_det = sum(
        m.forward_log_det_jacobian(part, event_ndims=part.shape.rank - 1)
        for m, part, _ in pieces
      )
      along = [
        tf.reduce_sum(tf.reshape(x * g, [tf.shape(z)[0], -1]), axis=-1)
        for (_, _, x), g in zip(pieces, gradients)
      ]
      total = tf.add_n(along) + log_det
    return log_det, tape.gradient(total, z)

  is_identity = all(isinstance(m, tfb.Identity) for m in maps)

  def value_and_gradient(rows):
    if is_identity:
      parts = np.split(rows, np.cumsum(split.sizes)[:-1], axis=1)
      parts = [
        np.reshape(part, [len(rows), *spec.shape])
        for part, spec in zip(parts, specs)
      ]
    else:
      parts = [part.numpy() for part in forward(tf.constant(rows))]
    values, gradients = model.in_python(*parts)
    gradients = [np.asarray(x, rows.dtype) for x in gradients]
    values = np.asarray(values, rows.dtype)
    if is_identity:
      flat = [np.reshape(x, [len(rows), -1]) for x in gradients]
      return values, np.concatenate(flat, axis=1)
    log_det, gradient = pulled_back(tf.constant(rows), gradients)
    return values + log_det.numpy(), gradient.numpy()

  return value_and_gradient


def coordinate_names(names, shapes):
  """Returns a name for each number of parts: `tau`, `theta[3]`."""
  return tuple(
    f'{name}[{",".join(map(str, index))}]' if index else name
    for name, shape in zip(names, shapes)
    for index in np.ndindex(*shape)
  )


class _Split:
  """Vectors [..., d] as a structure of parts of given shapes, and back.

  Vectors of another dtype are cast to that of the model.
  """

  def __init__(self, shapes, dtype):
    self.shapes, self._dtype = shapes, dtype
    self._flat = [s.as_list() for s in tf.nest.flatten(shapes)]
    self.sizes = [int(np.prod(shape)) for shape in self._flat]
    self.event_size = sum(self.sizes)

  def __call__(self, z):
    # `identity` makes a new Tensor each time, because bijectors cache results
    # by their argument, even across the branches of `tf.cond`.
    z = tf.identity(tf.cast(z, self._dtype))
    parts = tf.split(z, self.sizes, axis=-1)
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
    rows = [tf.reshape(part, [part.shape[0], -1]) for part in parts]
    return tf.concat(rows, axis=-1)

  def coordinates(self, names):
    """Returns a name for each number, given the names of the parts."""
    return coordinate_names(names, self._flat)

  def indices(self, names, parts):
    """Returns the indices of all numbers that belong to the given parts."""
    owner = np.repeat(np.arange(len(names)), self.sizes)
    is_in = [name.split('.')[0] in parts for name in names]
    return np.flatnonzero(np.asarray(is_in)[owner])

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
      f'({", ".join(names)}): give one for each, `None` for an unknown without '
      'bounds.'
    )
  else:
    found = _matched(init, bijectors)
  for part in found:
    if not isinstance(part, (tfb.Bijector, type(None))):
      raise ValueError(
        f'`bijectors` must be a `tfb.Bijector`, `tfb.Exp()` with its '
        f'parentheses, for each of {", ".join(names)}, or `None` for an '
        f'unknown without bounds, but got {part!r}.'
      )
  return [
    tfb.Identity() if part is None else supports.with_infinite_bounds(part)
    for part in found
  ]


def _matched(init, maps):
  """Returns a list of maps, one for each leaf of `init`.

  If `init` has names, the maps are found by these names. A leaf without a map
  gets `None`.
  """
  parts, maps = structures.as_dict(init), structures.as_dict(maps)
  if isinstance(parts, dict):
    maps = {} if maps is None else maps
    unknown = sorted(set(maps) - set(parts)) if isinstance(maps, dict) else maps
    if unknown or not isinstance(maps, dict):
      raise ValueError(
        f'`init` has the parts {", ".join(map(str, parts))}, so `bijectors` is '
        f'a dict of some of these, but got {unknown!r}.'
      )
    keys = list(parts) if structures.is_namedtuple(init) else sorted(parts)
    return [m for key in keys for m in _matched(parts[key], maps.get(key))]
  if isinstance(parts, (list, tuple)):
    maps = [None] * len(parts) if maps is None else maps
    if not isinstance(maps, (list, tuple)) or len(maps) != len(parts):
      raise ValueError(
        f'`init` is a sequence of {len(parts)} parts, so `bijectors` must be a '
        f'sequence of {len(parts)}, `None` for an unknown without bounds, but '
        f'got {maps!r}.'
      )
    return [m for pair in zip(parts, maps) for m in _matched(*pair)]
  return [maps]


def _events_and_starts(names, leaves, num_chains):
  """Returns (`tf.TensorSpec`s of events, starts); [] if there are no starts."""
  if not leaves:
    raise ValueError(f'`init` has no parts. Write for example {_EXAMPLE}.')
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
  leaf = np.asarray(leaf)
  if not leaf.ndim or leaf.dtype.kind not in 'fiu':
    raise ValueError(
      f'`init` of {name} is {leaf.tolist()!r}, one of the parts of `init`, but '
      f'must be `tf.TensorSpec(shape)` or an array of {num_chains} starts. A '
      'shape is written `tf.TensorSpec([3])`, starts `np.array([...])`. Each '
      'part of a list is one argument of the density.'
    )
  if len(leaf) != num_chains:
    raise ValueError(
      f'`init` of {name} has shape {leaf.shape}, but starts begin with one row '
      f'for each of {num_chains} chains. If it is the shape of {name} that '
      f'you mean, write `tf.TensorSpec({list(leaf.shape)})`; for '
      f'another number of chains write `num_chains=`.'
    )
  return tf.convert_to_tensor(leaf)


def _unconstrained(name, event, bijector):
  """Returns the shape of a part in unconstrained space."""
  if not event.shape.num_elements():
    raise ValueError(
      f'`init` of {name} has the shape {event.shape}, but must have a number '
      'on every axis, 1 or more; chains are not one of them. Write for example '
      '`tf.TensorSpec([3])`, or `tf.TensorSpec([])` for one number.'
    )
  least = bijector.inverse_min_event_ndims
  if event.shape.rank < least:
    raise ValueError(
      f'The bijector {bijector.name} of {name} takes events with {least} or '
      f'more axes, but `init` of {name} has the shape {event.shape}. Pass a '
      'bijector for single numbers, such as `tfb.Exp()`, or a shape with '
      f'{least} or more axes.'
    )
  return bijector.inverse_event_shape(event.shape)


def _one_dtype(names, dtypes):
  """Returns the dtype of all parts; refuses mixed and discrete dtypes."""
  dtypes = [tf.as_dtype(dtype) for dtype in dtypes]
  for name, dtype in zip(names, dtypes):
    if not dtype.is_floating:
      raise ValueError(
        f'{name} is {dtype.name}, and gradients need continuous '
        'unknowns. Write starts and shapes as floats; if it is data, pin it; '
        'else sum it out of the density, as `tfd.MixtureSameFamily` and '
        '`tfd.HiddenMarkovModel` do.'
      )
  if len(set(dtypes)) > 1:
    listed = ', '.join(f'{n} {d.name}' for n, d in zip(names, dtypes))
    raise ValueError(
      f'Unknowns must share one dtype, but these are {listed}. Write all '
      'constants of the model in one, for example `np.float64(1.0)`.'
    )
  if dtypes[0] not in (tf.float32, tf.float64):
    raise ValueError(
      f'Unknowns are float32 or float64, but {names[0]} is {dtypes[0].name}. '
      'Write all constants, starts and shapes of the model in one of these.'
    )
  return dtypes[0]
