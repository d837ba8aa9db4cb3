"""Steps of HMC that keep part of the momentum, with one of several factors.

A step draws k and L, the same for all chains. With C = C_k, which holds its
step size, momenta v ~ N(0, I) in coordinates C^-1 x, and u uniform on (-1, 1):

  v <- a v + sqrt(1 - a^2) noise                 (Horowitz 1991)
  u <- u + drift, wrapped to (-1, 1)             (Neal 2020), or drawn anew
  (x', v') <- L leapfrog steps,   r = log pi(x', v') - log pi(x, v)
  log |u| < r:  x, v, u <- x', v', u exp(-r);    else  v <- -v

Each line leaves pi(x) N(v; 0, I) U(u) invariant. With a = 0 and u drawn anew
it is HMC. The momentum of coordinates C^-1 x is independent of x, so that it
may be kept where C changes.

References: Horowitz (1991), A generalized guided Monte Carlo algorithm; Neal
(2020), Non-reversibly updating a uniform [0, 1] value for Metropolis
accept/reject decisions, https://arxiv.org/abs/2001.11950.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.linear import trajectory

__all__ = ['Law', 'State', 'block', 'start']


class Law(NamedTuple):
  """What is fixed in a run."""

  factors: Any  # C_k times its step size, [k, d, d].
  lengths: Any  # Fewest and most leapfrog steps of each, [k, 2] int32.
  persistence: Any  # a, [].
  drift: Any  # Of the uniform, [].
  is_fresh: Any  # Whether the uniform is drawn anew instead, [] bool.


class State(NamedTuple):
  """Where chains are: `point` a `trajectory.Point`, `uniform` [chains]."""

  point: Any
  uniform: Any


def start(log_prob, position, seed):
  """Returns the `State` at positions [chains, d], the rest drawn."""
  of_velocity, of_uniform = tfp.random.split_seed(seed, 2)
  velocity = tf.random.stateless_normal(
    position.shape, of_velocity, dtype=position.dtype
  )
  point = trajectory.Point(
    position, velocity, *tfp.math.value_and_gradient(log_prob, position)
  )
  return State(point, _uniform(point, of_uniform))


def block(log_prob, law, state, seed, num_steps):
  """Takes steps.

  Args:
    log_prob: Function of [chains, d].
    law: A `Law`.
    state: A `State`.
    seed: [2] int32.
    num_steps: Int.

  Returns:
    The last `State`, positions [num_steps, chains, d], and of every step its
    leapfrog steps and mean acceptance, [num_steps] each.
  """

  def step(carried, seed):
    return _one_step(log_prob, law, carried[0], seed)

  nothing = tf.constant(0), tf.zeros([], state.uniform.dtype)
  states, lengths, accepted = tf.scan(
    step, tf.stack(tfp.random.split_seed(seed, num_steps)), (state, *nothing)
  )
  last = tf.nest.map_structure(lambda t: t[-1], states)
  return last, states.point.position, lengths, accepted


def _one_step(log_prob, law, state, seed):
  """Returns the next `State`, L, and the mean acceptance."""
  seeds = tfp.random.split_seed(seed, 4)
  factor, num_steps = _draw_component(law, seeds[0])
  # 1. Momentum and uniform move.
  begin = state.point
  noise = tf.random.stateless_normal(
    begin.position.shape, seeds[1], dtype=begin.position.dtype
  )
  kept = law.persistence
  begin = begin._replace(
    velocity=kept * begin.velocity + tf.sqrt(1.0 - kept**2) * noise
  )
  uniform = tf.where(
    law.is_fresh,
    _uniform(begin, seeds[2]),
    tf.math.floormod(state.uniform + law.drift + 1.0, 2.0) - 1.0,
  )
  # 2. The trajectory.
  evaluate = lambda x: tfp.math.value_and_gradient(log_prob, x)
  end, _ = trajectory.run(evaluate, factor, begin, num_steps)
  ratio = end.log_prob - begin.log_prob
  ratio += 0.5 * tf.reduce_sum(begin.velocity**2 - end.velocity**2, axis=-1)
  ratio = tf.where(tf.math.is_finite(ratio), ratio, -float('inf'))
  # 3. The decision.
  is_accepted = tf.math.log(tf.abs(uniform)) < ratio
  rejected = begin._replace(velocity=_turned(begin.velocity))
  point = tf.nest.map_structure(
    lambda a, b: tf.where(
      tf.reshape(is_accepted, [-1] + [1] * (len(a.shape) - 1)), a, b
    ),
    end,
    rejected,
  )
  uniform = tf.where(is_accepted, _carried(uniform, ratio), uniform)
  accept_prob = tf.reduce_mean(tf.exp(tf.minimum(ratio, 0.0)))
  return State(point, uniform), num_steps, accept_prob


def _draw_component(law, seed):
  """Returns C_k as an `interfaces.ScaleFactor`, and L."""
  of_factor, of_length = tfp.random.split_seed(seed, 2)
  which = tf.random.stateless_uniform(
    [], of_factor, 0, law.factors.shape[0], dtype=tf.int32
  )
  fewest, most = tf.unstack(tf.gather(law.lengths, which))
  num_steps = tf.random.stateless_uniform(
    [], of_length, fewest, most + 1, dtype=tf.int32
  )
  matrix = tf.gather(law.factors, which)
  factor = interfaces.ScaleFactor(
    apply=lambda v: tf.matmul(v, matrix, transpose_b=True),
    apply_adjoint=lambda g: tf.matmul(g, matrix),
    log_abs_det=None,
    centered_stretch=None,
  )
  return factor, num_steps


def _uniform(point, seed):
  log_prob = point.log_prob
  return tf.random.stateless_uniform(
    log_prob.shape, seed, -1.0, 1.0, log_prob.dtype
  )


def _turned(velocity):
  """Returns the momentum of a chain that stays: the proposal turned it."""
  return -velocity


def _carried(uniform, log_ratio):
  """Returns the same height |u| pi(x, v), in units of the new density."""
  return uniform * tf.exp(-log_ratio)
