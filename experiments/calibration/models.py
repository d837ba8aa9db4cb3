"""Small models whose parameters and data can be drawn jointly, by TensorFlow.

Every chain has a data set of its own: the chain dimension of the state is the
first dimension of the data. All is float64.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import Optional

import numpy as np
import tensorflow as tf

__all__ = [
  'Model',
  'fold_in',
  'normal',
  'poisson',
  'student_4',
  'student_regression',
  'uniform',
]

_TIMES = np.linspace(-1.0, 1.0, 5)
_DEGREES = 4.0


class Model(NamedTuple):
  """A joint law of state and data."""

  name: str
  # (num, seed) -> state, drawn from the prior, parts [num, ...].
  draw: Callable[[int, Any], Any]
  # (state, seed) -> data drawn given the state, a structure of [num, ...].
  simulate: Callable[[Any, Any], Any]
  # (data) -> what the kernels take: the log density of the state, or the
  # log-likelihood where the prior is given apart.
  density: Callable[[Any], Callable]
  # (state, data) -> dict of [num]: what is ranked and averaged. Functions of
  # the data too: a kernel that samples the prior is not seen without.
  quantities: Callable[[Any, Any], dict]
  # (state, data, seed) -> log estimates, [num], that belong to the state in a
  # stationary chain, where the density is known by estimates only.
  held_estimate: Optional[Callable] = None


def student_regression():
  """A line with heavy-tailed noise of unknown scale.

  (a, b, c) ~ N(0, I),   y_j = a + b t_j + exp(c / 2 - 1/2) e_j,   e_j ~ t_4
  """

  def draw(num, seed):
    return normal([num, 3], seed)

  def simulate(state, seed):
    line, scale = _line(state)
    return line + scale * student_4([*line.shape], seed)

  def log_likelihood(state, data):
    line, scale = _line(state)
    tail = tf.math.log1p(((data - line) / scale) ** 2 / _DEGREES)
    return -tf.reduce_sum(
      0.5 * (_DEGREES + 1.0) * tail + tf.math.log(scale), axis=-1
    )

  def density(data):
    return lambda state: (
      log_likelihood(state, data) - 0.5 * tf.reduce_sum(state**2, axis=-1)
    )

  def quantities(state, data):
    return dict(
      a=state[..., 0],
      b=state[..., 1],
      c=state[..., 2],
      square=tf.reduce_sum(state**2, axis=-1),
      log_likelihood=log_likelihood(state, data),
    )

  return Model('student regression', draw, simulate, density, quantities)


def _line(state):
  """Returns locations and scale of the observations, [..., 5] and [..., 1]."""
  line = state[..., 0:1] + state[..., 1:2] * tf.constant(_TIMES)
  return line, tf.exp(0.5 * state[..., 2:3] - 0.5)


def fold_in(seed, data):
  """Returns another seed, for each integer."""
  return tf.random.experimental.stateless_fold_in(seed, data)


def normal(shape, seed):
  """Draws standard normals, float64."""
  return tf.random.stateless_normal(shape, seed, dtype=tf.float64, alg='philox')


def uniform(shape, seed):
  """Draws uniforms in (0, 1], float64."""
  return 1.0 - tf.random.stateless_uniform(
    shape, seed, dtype=tf.float64, alg='philox'
  )


def student_4(shape, seed):
  """Draws from Student's t of four degrees of freedom, float64."""
  # chi^2 of four degrees is a sum of two exponentials of mean 2.
  exponentials = -tf.math.log(uniform([2, *shape], fold_in(seed, 1)))
  chi_squared = 2.0 * tf.reduce_sum(exponentials, axis=0)
  return normal(shape, fold_in(seed, 2)) * tf.math.rsqrt(chi_squared / 4.0)


def poisson(rate, seed, num_terms=160):
  """Draws Poisson counts by inversion, which XLA compiles.

  Args:
    rate: Means, well below `num_terms`.
    seed: [2] int32.
    num_terms: Counts above it have no weight in float64.

  Returns:
    Counts in float64, in the shape of `rate`.
  """
  level = uniform(rate.shape, seed)

  def add(count, drawn, term, total):
    # `total` is P(at most count): the draw is above if the level is.
    total = total + term
    drawn = drawn + tf.cast(level > total, rate.dtype)
    count = count + 1
    return count, drawn, term * rate / tf.cast(count, rate.dtype), total

  zero = tf.zeros_like(rate)
  _, drawn, _, _ = tf.while_loop(
    lambda count, *_: count < num_terms,
    add,
    (tf.constant(0), zero, tf.exp(-rate), zero),
  )
  return drawn
