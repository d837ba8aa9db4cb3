"""Hamiltonian steps that are shorter where the target is steep.

A step size that suits the bulk of a target is rejected in narrow regions. Here
every chain draws its own step size, given the gradient at the start:

  s_l = s 2^-l,  l = max(0, t(x) + b w),  t(x) = log2(|C^T g(x)| / (c sqrt d)),

where w is a Laplace draw, b and c are constants, and l is at most J. Let
q(l | x) be the density of this draw. The log ratio of a step from x to x' is

  log ratio = H(x, v) - H(x', v') + log q(l | x') - log q(l | x),

where H is the energy. The step is a Gibbs draw of l, then HMC for the joint
density pi(x, v) q(l | x). It is exact, and the draw costs no gradient. For a
Gaussian with covariance C C^T, |C^T g|^2 is chi-squared with d degrees of
freedom. Then t < 0 nearly always, and few steps are short. The tails of w are
exponential, so that log q changes at most in proportion to t, and a chain can
leave a narrow region.

The step size s follows the acceptance of chains with l = 0.

Source: the draw of a tuning parameter given the state is that of Bou-Rabee,
Carpenter and Marsden (2024), GIST: Gibbs self-tuning for locally adaptive
Hamiltonian Monte Carlo, https://arxiv.org/abs/2404.15253. The choice of t is
ours.
"""

import collections
import math

import tensorflow as tf

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import random
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import state_parts
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linear import trajectory
from tfp_adaptive.linear.hamiltonian import (
  UncalibratedPreconditionedHamiltonian,
)

__all__ = [
  'LocalTrajectory',
  'UncalibratedLocalHamiltonian',
  'draw',
  'log_prob',
]

_WIDTH = 0.7  # b, in octaves.
_STEEP = 1.75  # c; a Gaussian in several dimensions is seldom that steep.
_SMALLEST = 6.0  # J, in octaves; the smallest step is s / 64.
_SALT = 13  # Separates these draws from the noise, which has the same seed.


class LocalTrajectory(
  collections.namedtuple(
    'LocalTrajectory', ['num_steps', 'octaves', 'log_choice_ratio']
  )
):
  """The trajectory of a step with its own step size.

  Attributes:
    num_steps: L, [] int32.
    octaves: l, where s 2^-l was the step size, [chains...].
    log_choice_ratio: log q(l | x') - log q(l | x), [chains...].
  """

  __slots__ = ()


class UncalibratedLocalHamiltonian(UncalibratedPreconditionedHamiltonian):
  """Proposes the end of a trajectory whose step size is drawn at its start.

  The step cannot be replayed. Use an adaptation that learns from states and
  gradients, such as `FisherDivergenceAdaptation`.
  """

  lacking_in_tfp = 'shorter steps where the target is steep'

  def cost(self, adapting, mean_num_steps=None):
    """Returns the mean cost of a step, with the two products C^T g of t."""
    cost = super().cost(adapting, mean_num_steps)
    return cost._replace(matrix_product=cost.matrix_product + 2)

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Draws l, runs the trajectory, and computes log q(l) at its end."""
    previous = previous_kernel_results
    num_chain_dims = ps.rank(previous.target_log_prob)
    seed = random.sanitize(seed)
    x = state_parts.flatten(current_state, num_chain_dims)
    grad_x = state_parts.flatten(previous.grads_target_log_prob, num_chain_dims)
    noise = self._draw_noise(x, seed)
    steepness = self._steepness(previous, grad_x)
    octaves = draw(steepness, random.fold_in(seed, _SALT))
    part = tf.pow(tf.constant(2.0, x.dtype), -octaves)
    num_steps = self._draw_num_steps(previous, seed)
    end, _ = trajectory.run(
      state_parts.of_flat(
        self.target_log_prob_fn, current_state, num_chain_dims
      ),
      scale_factor.scaled(self._factor(previous), part[..., tf.newaxis]),
      trajectory.Point(x, noise, previous.target_log_prob, grad_x),
      num_steps,
    )
    proposed_state, grads = (
      state_parts.unflatten_like(flat, current_state, num_chain_dims)
      for flat in (end.position, end.gradient)
    )
    kinetic = 0.5 * self.event_sum(noise**2 - end.velocity**2)
    choice = log_prob(octaves, self._steepness(previous, end.gradient))
    choice -= log_prob(octaves, steepness)
    return proposed_state, previous._replace(
      target_log_prob=end.log_prob,
      grads_target_log_prob=grads,
      log_acceptance_correction=kinetic + choice,
      noise=noise,
      trajectory=LocalTrajectory(num_steps, octaves, choice),
      seed=seed,
    )

  def mean_accept_prob(self, mh_results):
    """Returns the mean acceptance of the chains with l = 0, [].

    Their acceptance is that of the energy alone, without log q. If no chain has
    l = 0, all chains count, with log q. Chains that never move do not count.
    """
    taken = mh_results.proposed_results.trajectory
    ratio = mh_results.log_accept_ratio
    is_full = adaptation_base.is_alive(mh_results) & (taken.octaves <= 0.0)
    by_energy = tf.exp(tf.minimum(ratio - taken.log_choice_ratio, 0.0))
    share = tf.reduce_mean(tf.cast(is_full, ratio.dtype))
    mean = tf.reduce_mean(tf.where(is_full, by_energy, 0.0))
    return tf.where(
      share > 0.0,
      tf.math.divide_no_nan(mean, share),
      adaptation_base.mean_accept_prob(mh_results),
    )

  def replay(self, *args):
    """Raises an error, because l depends on the factor."""
    raise NotImplementedError(
      'Steps of local sizes cannot be replayed. Wrap them in '
      '`tfpa.adaptation.FisherDivergenceAdaptation`, or take '
      '`tfpa.proposals.UncalibratedPreconditionedHamiltonian`.'
    )

  def _init_trajectory(self, flat):
    zeros = tf.zeros_like(flat[..., 0])
    return LocalTrajectory(tf.zeros([], tf.int32), zeros, zeros)

  def _steepness(self, results, gradient):
    """Returns t, [chains...]; large if the gradient is not finite."""
    factor = scale_factor.at(self.preconditioner, results.preconditioner_params)
    size = self.event_sum(tf.ones_like(gradient))
    square = self.event_sum(factor.apply_adjoint(gradient) ** 2) / size
    t = 0.5 / math.log(2.0) * tf.math.log(square / _STEEP**2)
    # The lower bound treats all flat regions alike.
    return tf.maximum(
      tf.where(t <= 2.0 * _SMALLEST, t, 2.0 * _SMALLEST), -_SMALLEST
    )


def draw(steepness, seed):
  """Returns l given t, both [chains...].

  Args:
    steepness: t.
    seed: [2] int32.
  """
  size_seed, sign_seed = random.split(seed, 2)
  shape, dtype = ps.shape(steepness), steepness.dtype
  size = -_WIDTH * random.log_uniform(shape, dtype, size_seed)
  is_shorter = random.uniform(shape, dtype, sign_seed) <= 0.5
  octaves = steepness + tf.where(is_shorter, size, -size)
  return tf.clip_by_value(octaves, 0.0, _SMALLEST)


def log_prob(octaves, steepness):
  """Returns log q(l | x). q is a density on (0, J) with masses at 0 and J.

  Args:
    octaves: l, [chains...].
    steepness: t, [chains...].
  """
  return tf.where(
    octaves <= 0.0,
    _log_cdf(-steepness / _WIDTH),
    tf.where(
      octaves >= _SMALLEST,
      _log_cdf((steepness - _SMALLEST) / _WIDTH),
      -tf.abs(octaves - steepness) / _WIDTH - math.log(2.0 * _WIDTH),
    ),
  )


def _log_cdf(z):
  """Returns the log CDF of the standard Laplace distribution."""
  above = tf.math.log1p(-0.5 * tf.exp(-tf.abs(z)))
  return tf.where(z <= 0.0, z - math.log(2.0), above)
