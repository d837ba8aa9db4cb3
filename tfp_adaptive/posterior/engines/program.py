"""One program of Hamiltonian steps, with all learned values as arguments.

Steps run in z, with x = f(C z). No change of an argument compiles the program
again.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import target_call
from tfp_adaptive.fits import conditional
from tfp_adaptive.fits import natural as natural_lib
from tfp_adaptive.fits import search
from tfp_adaptive.posterior.engines import retries

_MOST_LOG_TERM = 30.0
# Largest size of a recorded field in one call, and largest number of steps.
_LARGEST, _MOST_STEPS = 8192, 16
_NUM_DRIVERS = search.MOST_DRIVERS
_NUM_TERMS = 1 + _NUM_DRIVERS
_NUM_INPUTS = 1 + _NUM_DRIVERS + _NUM_DRIVERS * (_NUM_DRIVERS + 1) // 2


class Data(NamedTuple):
  """A map as arguments of the program, see `_forward` for its symbols.

  There are at most 3 drivers u, and 4 terms exp(b.u).
  """

  mean: np.ndarray  # m, [d].
  log_scale: np.ndarray  # l, [d].
  log_det: np.ndarray  # log |det C|, [].
  # Ones where a coordinate is a driver, zeros elsewhere, [d, 3].
  drivers: np.ndarray
  exponents: np.ndarray  # b of each term, [4, 3].
  # Coefficients of h(u): those of 1, of the drivers u and of their products,
  # for each term, [4 * 10, d].
  places: np.ndarray
  slack: np.ndarray  # Coefficients of P(u), for each term, [4, d].
  factor: np.ndarray  # C, [d, d].


class Point(NamedTuple):
  """The chains between two steps."""

  rows: np.ndarray  # z, [chains, d].
  states: np.ndarray  # x, [chains, d].
  values: np.ndarray  # Log density of x, [chains].
  gradients: np.ndarray  # Gradient of the log density at x, [chains, d].
  log_det: np.ndarray  # log |dx / dz|, [chains].
  forces: np.ndarray  # Gradient of the log density of z, [chains, d].
  # The momentum v, [chains, d], and the number u in (-1, 1), [chains], that the
  # next step may keep, see `linear.kept_momentum`.
  velocities: np.ndarray
  uniforms: np.ndarray


def at_starts(rows, values, gradients):
  """Returns the `Point` of chains before their first step; z is not known yet.

  `rows` are x, [chains, d].
  """
  return Point(rows, rows, values, gradients, 0, 0, 0.0 * rows, 0.0 * values)


class Noise(NamedTuple):
  """The random numbers of n steps."""

  lengths: np.ndarray  # Leapfrog steps of each step, [n].
  shares: np.ndarray  # Share a of the momentum that each step keeps, [n].
  momenta: np.ndarray  # Normal numbers, [n, chains, d].
  uniforms: np.ndarray  # In (0, 1), [n, chains].
  # Numbers that decide about a second proposal, see `retries`, [n, chains].
  retries: np.ndarray


class Taken(NamedTuple):
  """Proposals of n steps, and whether they were accepted.

  If a chain tried its step again, its proposal is the second one.
  """

  rows: np.ndarray  # z of the proposals, [n, chains, d].
  states: np.ndarray  # x of the proposals, [n, chains, d].
  gradients: np.ndarray  # Gradient of the log density at x, [n, chains, d].
  values: np.ndarray  # Log density of x, [n, chains].
  log_det: np.ndarray  # log |dx / dz|, [n, chains].
  log_accept_ratio: np.ndarray  # [n, chains].
  is_accepted: np.ndarray  # [n, chains].
  # |v|^2 / 2 - log p(x) - log |dx / dz| at the start of each step, [n, chains].
  energies: np.ndarray
  first_ratio: np.ndarray  # Log ratio of the first proposals, [n, chains].
  # Leapfrog steps of each step, those of all its trajectories, [n].
  lengths: np.ndarray

  def visited(self, name, start):
    """Returns a field of the chains after each step, [n, chains, ...].

    `start` is the `Point` before the first step, which has the field too.
    """
    found, now = [], getattr(start, name)
    for rows, is_accepted in zip(getattr(self, name), self.is_accepted):
      where = is_accepted[:, np.newaxis] if rows.ndim > 1 else is_accepted
      now = np.where(where, rows, now)
      found.append(now)
    return np.stack(found)


class Program:
  """Takes steps of a density, at most `most_steps` in one call."""

  def __init__(self, density, num_chains, event_size, dtype, with_xla):
    """Traces the program; it is compiled at its first call.

    The density maps rows [chains, d], a Tensor, to values and gradients.
    """
    self._density, self._dtype, self._identity = density, dtype, None
    numbers = num_chains * event_size
    self.most_steps = int(np.clip(_LARGEST // numbers, 1, _MOST_STEPS))
    self._shape = self.most_steps, num_chains, event_size
    self._data_shapes = _shapes_of_data(event_size)
    rows, values = [num_chains, event_size], [num_chains]
    self._point_shapes = rows, rows, values, rows, values, rows, rows, values
    few = self._shape[:2]
    self._taken_shapes = *[self._shape] * 3, *[few] * 6, few[:1]
    # A point, the step size, and all of `Noise` but the lengths.
    self._float_shapes = (
      *self._point_shapes,
      [],
      [self.most_steps],
      self._shape,
      few,
      few,
    )
    # The arguments are packed, because passing each argument takes time.
    self._run = tf.function(
      self._packed, autograph=False, jit_compile=with_xla or None
    ).get_concrete_function(
      tf.TensorSpec([_size(self._data_shapes)], dtype),
      tf.TensorSpec([_size(self._float_shapes)], dtype),
      tf.TensorSpec([1 + self.most_steps], tf.int32),
    )

  def as_data(self, params):
    """Returns a map, `conditional.Params`, as the argument of `run`."""
    values = [np.ravel(value) for value in _data_of(params)]
    return tf.constant(np.concatenate(values), self._dtype)

  def run(self, data, point, step_size, noise):
    """Takes the n steps of `Noise`, at most `most_steps`, from a `Point`.

    `data` is a result of `as_data`. Returns `Point` and `Taken`, numpy.
    """
    count = len(noise.lengths)
    padded = [np.zeros(shape) for shape in self._float_shapes[-4:]]
    for room, numbers in zip(padded, noise[1:]):
      room[:count] = numbers
    floats = np.concatenate([np.ravel(x) for x in (*point, step_size, *padded)])
    counts = np.zeros([1 + self.most_steps], np.int32)
    counts[0], counts[1 : 1 + count] = count, noise.lengths
    floats = tf.constant(floats, self._dtype)
    try:
      found = self._run(data, floats, tf.constant(counts))
    except tf.errors.OpError as error:
      raise target_call.failed(error) from error
    found = _split(found.numpy(), (*self._point_shapes, *self._taken_shapes))
    size = len(self._point_shapes)
    taken = [rows[:count] for rows in found[size:]]
    *taken, lengths = taken
    taken = Taken(*taken, lengths.astype(int))
    return Point(*found[:size]), taken._replace(
      is_accepted=taken.is_accepted > 0
    )

  def evaluate(self, rows):
    """Returns values [n, chains] and gradients of rows [n, chains, d].

    A step of size 1 from zero with the rows as momenta proposes the rows. All
    proposals are rejected. So the program of the steps also evaluates the
    density. n is at most `most_steps`.
    """
    if self._identity is None:
      size = self._shape[-1]
      natural = natural_lib.of_scale(size, [])
      self._identity = self.as_data(conditional.Params(natural, np.eye(size)))
    zeros = [np.zeros(shape) for shape in self._point_shapes]
    count, never = len(rows), np.full(rows.shape[:2], 2.0)
    noise = Noise(np.ones([count], int), np.zeros([count]), rows, never, never)
    _, taken = self.run(self._identity, Point(*zeros), 1.0, noise)
    return taken.values, taken.gradients

  def _packed(self, data, floats, counts):
    """Calls `_steps` with arguments and results packed in vectors."""
    floats = _split(floats, self._float_shapes, tf.reshape)
    size = len(self._point_shapes)
    found = self._steps(
      Data(*_split(data, self._data_shapes, tf.reshape)),
      Point(*floats[:size]),
      floats[size],
      counts[0],
      Noise(counts[1:], *floats[size + 1 :]),
    )
    return tf.concat([tf.reshape(x, [-1]) for x in found], axis=0)

  def _steps(self, data, point, step_size, count, noise):
    """Takes `count` steps; results have room for `most_steps` steps."""
    num_steps = self.most_steps
    places = [
      tf.TensorArray(self._dtype, num_steps, element_shape=shape[1:])
      for shape in self._taken_shapes
    ]

    def turn(step, point, places):
      of_step = Noise(*(numbers[step] for numbers in noise))
      start = renewed(point, of_step, tf)
      *ends, count = self._trajectories(data, start, step_size, of_step)
      proposal, is_accepted = retries.decided(start, *ends, of_step.retries, tf)
      end, first = proposal.point, ends[0]
      energy = _kinetic(start) - start.values - start.log_det
      told = (
        *(end.rows, end.states, end.gradients, end.values, end.log_det),
        proposal.ratio,
        tf.cast(is_accepted, self._dtype),
        *(energy, first.ratio, tf.cast(count, self._dtype)),
      )
      places = [p.write(step, rows) for p, rows in zip(places, told)]
      stay = start._replace(velocities=-start.velocities)
      point = retries.chosen(is_accepted, end, stay, tf)
      return step + 1, point, places

    _, point, places = tf.while_loop(
      lambda step, *_: step < count,
      turn,
      (tf.constant(0), point, places),
      maximum_iterations=num_steps,
    )
    return (*point, *(place.stack() for place in places))

  def _trajectories(self, data, start, step_size, noise):
    """Returns the trajectories of a step, see `retries`.

    These are the `retries.End` of the first and second proposals, the log ratio
    of the third trajectory, and the number of leapfrog steps. Trajectories that
    no chain needs are left out. A loop takes them, so that the density is
    compiled once.
    """

    def turn(number, _, count, begin, first, second, third_ratio):
      divisor = tf.where(number == 1, retries.DIVISOR, 1)
      size = step_size / tf.cast(divisor, step_size.dtype)
      length = noise.lengths * divisor
      found = self._trajectory(data, begin, size, length)
      first = _either(number == 0, found, first)
      second = _either(number == 1, found, second)
      needed = _either(
        number == 0,
        retries.are_tried(start, first, noise.retries, tf),
        retries.may_be_accepted(start, first, second, noise.retries, tf),
      )
      # The third trajectory starts at the end of the second, backwards.
      end = second.point
      back = end._replace(velocities=-end.velocities)
      begin = _either(number == 0, start, back)
      is_next = tf.reduce_any(needed) & (number < 2)
      count += length
      return number + 1, is_next, count, begin, first, second, found.ratio

    none = retries.End(start, tf.zeros_like(start.values))
    _, _, count, _, first, second, third_ratio = tf.while_loop(
      lambda number, is_next, *_: is_next,
      turn,
      (
        tf.constant(0),
        tf.constant(True),
        tf.constant(0),
        start,
        none,
        none,
        none.ratio,
      ),
    )
    return first, second, third_ratio, count

  def _trajectory(self, data, start, step_size, num_steps):
    """Returns the `retries.End` of a leapfrog trajectory."""

    def leap(count, end):
      rows = end.rows + step_size * end.velocities
      end = self._at(data, rows, end)
      velocities = end.velocities + step_size * end.forces
      return count + 1, end._replace(velocities=velocities)

    half = 0.5 * step_size * start.forces
    _, end = tf.while_loop(
      lambda count, _: count < num_steps,
      leap,
      (
        tf.constant(0),
        start._replace(velocities=start.velocities + half),
      ),
    )
    velocities = end.velocities - 0.5 * step_size * end.forces
    end = end._replace(velocities=velocities)
    ratio = end.values - start.values + end.log_det - start.log_det
    ratio += _kinetic(start) - _kinetic(end)
    nothing = tf.constant(-np.inf, ratio.dtype)
    ratio = tf.where(tf.math.is_finite(ratio), ratio, nothing)
    return retries.End(end, ratio)

  def _at(self, data, rows, before):
    """Returns the `Point` of z, with velocities and uniforms of `before`."""
    with tf.GradientTape() as tape:
      tape.watch(rows)
      states, log_det = _forward(data, rows)
    values, gradients = self._density(states)
    forces = tape.gradient(
      [states, log_det],
      rows,
      output_gradients=[gradients, tf.ones_like(log_det)],
    )
    kept = before.velocities, before.uniforms
    return Point(rows, states, values, gradients, log_det, forces, *kept)


def renewed(point, noise, library):
  """Returns the `Point` at the start of a step, with v and u of this step.

  See `linear.kept_momentum`. No momentum is kept if u is 0, as at the start.
  `library` is `tf` or `np`, whose functions are used.
  """
  is_new = point.uniforms == 0.0
  share = library.where(is_new, 0.0 * point.uniforms, noise.shares)
  rest = 1.0 - share**2
  moved = point.uniforms + 0.5 * rest
  moved = library.where(moved >= 1.0, moved - 2.0, moved)
  uniforms = library.where(share > 0.0, moved, 2.0 * noise.uniforms - 1.0)
  share, rest = share[:, np.newaxis], rest[:, np.newaxis]
  velocities = share * point.velocities + library.sqrt(rest) * noise.momenta
  return point._replace(velocities=velocities, uniforms=uniforms)


def _kinetic(point):
  return 0.5 * tf.reduce_sum(point.velocities**2, axis=-1)


def _either(is_first, one, other):
  """Returns one of two nests of Tensors; `is_first` is a scalar."""
  return tf.nest.map_structure(
    lambda x, y: tf.where(is_first, x, y), one, other
  )


def _shapes_of_data(event_size):
  return Data(
    mean=[event_size],
    log_scale=[event_size],
    log_det=[],
    drivers=[event_size, _NUM_DRIVERS],
    exponents=[_NUM_TERMS, _NUM_DRIVERS],
    places=[_NUM_TERMS * _NUM_INPUTS, event_size],
    slack=[_NUM_TERMS, event_size],
    factor=[event_size, event_size],
  )


def _size(shapes):
  return sum(int(np.prod(shape)) for shape in shapes)


def _split(vector, shapes, reshape=np.reshape):
  """Returns arrays or Tensors of the given shapes, cut from a vector."""
  found, place = [], 0
  for shape in shapes:
    size = int(np.prod(shape))
    found.append(reshape(vector[place : place + size], shape))
    place += size
  return found


def _data_of(params):
  """Returns the `Data` of `conditional.Params`."""
  natural, factor = params
  size, count = len(natural.mean), len(natural.drivers)
  drivers = np.zeros([size, _NUM_DRIVERS])
  for place, driver in enumerate(natural.drivers):
    if driver >= 0:
      drivers[driver, place] = 1.0
  exponents = np.zeros([_NUM_TERMS, _NUM_DRIVERS])
  exponents[: 1 + count, :count] = natural.exponents
  slack = np.zeros([_NUM_TERMS, size])
  slack[: 1 + count] = natural.slack
  places = np.zeros([_NUM_TERMS, _NUM_INPUTS, size])
  places[: 1 + count, 0] = natural.offset
  slope = np.swapaxes(natural.slope, 1, 2)
  places[: 1 + count, 1 : 1 + count] = slope[:, :count]
  # With fewer than three drivers, each product of two drivers takes the place
  # that this product has with three drivers.
  pairs = [(i, j) for i in range(_NUM_DRIVERS) for j in range(i, _NUM_DRIVERS)]
  own = [pair for pair in pairs if pair[1] < count]
  for place, pair in enumerate(own[: slope.shape[1] - count]):
    to = 1 + _NUM_DRIVERS + pairs.index(pair)
    places[: 1 + count, to] = slope[:, count + place]
  return Data(
    mean=natural.mean,
    log_scale=natural.log_scale,
    log_det=np.sum(np.log(np.diag(factor))),
    drivers=drivers,
    exponents=exponents,
    places=places.reshape(-1, size),
    slack=slack,
    factor=factor,
  )


def _forward(data, rows):
  """Returns x(z), [chains, d], and log |dx / dz|, [chains].

  The precision P(u) and the offsets h(u), [d] each, are sums of the terms
  exp(b.u), with coefficients for each term. The drivers u are coordinates of y:

    y = C z,   x = m + exp(l) (y / sqrt(P(u)) + h(u) / P(u)).
  """
  rows = tf.matmul(rows, data.factor, transpose_b=True)
  drivers = tf.matmul(rows, data.drivers)
  logs = tf.matmul(drivers, data.exponents, transpose_b=True)
  terms = tf.exp(tf.clip_by_value(logs, -_MOST_LOG_TERM, _MOST_LOG_TERM))
  inputs = [tf.ones_like(drivers[:, :1]), drivers]
  inputs += [
    drivers[:, i : i + 1] * drivers[:, i:] for i in range(_NUM_DRIVERS)
  ]
  products = terms[:, :, tf.newaxis] * tf.concat(inputs, 1)[:, tf.newaxis]
  pull = tf.matmul(
    tf.reshape(products, [-1, _NUM_TERMS * _NUM_INPUTS]), data.places
  )
  slack = tf.matmul(terms, data.slack)
  deviations = rows * tf.math.rsqrt(slack) + pull / slack
  log_det = data.log_det + tf.reduce_sum(
    data.log_scale - 0.5 * tf.math.log(slack), axis=-1
  )
  return data.mean + tf.exp(data.log_scale) * deviations, log_det
