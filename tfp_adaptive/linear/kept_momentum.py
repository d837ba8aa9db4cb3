"""Hamiltonian steps that keep part of the momentum of the step before.

A momentum that is drawn for one step needs a long trajectory, which is accepted
or rejected as a whole. A kept momentum acts over several short trajectories,
each with its own decision:

    v <- a v + sqrt(1 - a^2) noise,       a = exp(-1.25 L / m)
    u <- u + (1 - a^2) / 2, wrapped to (-1, 1)
    (x', v') <- L leapfrog steps,         r = log pi(x', v') - log pi(x, v)
    log |u| < r:  x, v, u <- x', v', u exp(-r);    else  v <- -v

Here pi(x, v) = pi(x) N(v; 0, I), and u is uniform on (-1, 1). Each line leaves
the joint density of x, v and u invariant. A rejection negates the momentum. u
changes little from step to step, so that rejections come in runs, and a second
rejection restores the sign of the momentum.

m is the best mean number of leapfrog steps if momenta are not kept. L is drawn
from 1, ..., 2 l - 1, where l is the integer part of m / 2, at least 1. A fixed
L would be half a period of some direction. While m is learned, no momentum is
kept. Long trajectories then move chains that start in the tails to the bulk,
before the shared step size has grown too large for these chains.

Sources: Horowitz (1991), A generalized guided Monte Carlo algorithm,
https://doi.org/10.1016/0370-2693(91)90812-5, for v; Neal (2020),
Non-reversibly updating a uniform [0, 1] value for Metropolis accept/reject
decisions, https://arxiv.org/abs/2001.11950, for u. The choice of a is ours.
"""

from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.core import random
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linear import num_steps

DAMPING = 1.25


class KeptTrajectory(NamedTuple):
  """What a step with kept momenta leaves."""

  num_steps: tf.Tensor  # L, [] int32.
  velocity: tf.Tensor  # v', [chains..., d].
  share_kept: tf.Tensor  # a, [].


class Kept(NamedTuple):
  """What the next step keeps; zeros have not been drawn yet."""

  velocity: tf.Tensor  # v, [chains..., d].
  uniform: tf.Tensor  # u, [chains...].


class KeepsMomentum(num_steps.DrawsNumSteps):
  """Mixin of Hamiltonian proposals that start with a given momentum.

  `num_leapfrog_steps` of its results is [3] int32: the fewest and the most
  leapfrog steps of the next step, and a third number. This number is 2 m, or 0
  while m is learned and no momentum is kept. `num_leapfrog_steps` of the
  constructor is a range with mean m.
  """

  keeps_momentum = True

  @property
  def mean_num_steps(self):
    """The mean l of the range 1, ..., 2 l - 1."""
    return max(1, sum(self.bounds) // 4)

  def settled(self, learned):
    """Returns 1, 2 l - 1 and 2 m, [3] int32, from the best range, [2] int32."""
    twice_mean = tf.reduce_sum(learned)
    mean = tf.maximum(1, twice_mean // 4)
    return tf.stack([1, 2 * mean - 1, twice_mean])

  def learned_range(self, drawn):
    """Returns a range of mean m, two ints; the range of `drawn` if 2 m is 0."""
    fewest, most, twice_mean = (int(number) for number in drawn)
    if not twice_mean:
      return fewest, most
    return twice_mean // 2, twice_mean - twice_mean // 2

  def _init_num_steps(self):
    return self.settled(tf.constant(self.bounds, tf.int32))

  def _draw_num_steps(self, results, seed):
    fewest, most, _ = tf.unstack(results.num_leapfrog_steps)
    return num_steps.draw(fewest, most, random.fold_in(seed, num_steps.SALT))

  def _draw_velocity(self, flat, results, seed):
    """Returns v, [chains..., d], from the kept v, which is `results.noise`."""
    share = self._share_kept(results, self._draw_num_steps(results, seed))
    is_new = self.event_sum(results.noise**2)[..., tf.newaxis] <= 0.0
    share = tf.where(is_new, tf.zeros([], flat.dtype), share)
    noise = self._draw_noise(flat, seed)
    return share * results.noise + tf.sqrt(1.0 - share**2) * noise

  def _share_kept(self, results, num_leapfrog_steps):
    """Returns a, the share of the momentum that is kept, []; 0 if none is."""
    twice_mean = tf.cast(results.num_leapfrog_steps[2], results.noise.dtype)
    taken = tf.cast(num_leapfrog_steps, twice_mean.dtype)
    return tf.exp(-2.0 * DAMPING * taken / twice_mean)

  def _taken(self, results, path, velocity):
    share = self._share_kept(results, path.num_steps)
    return KeptTrajectory(path.num_steps, velocity, share)

  def _init_trajectory(self, flat):
    zero = tf.zeros([], flat.dtype)
    return KeptTrajectory(tf.zeros([], tf.int32), tf.zeros_like(flat), zero)

  def init_replay_cache(self, proposed_results):
    """Raises an error, because kept momenta depend on the steps before."""
    raise NotImplementedError(
      'Steps with kept momenta cannot be replayed. Wrap them in an adaptation '
      'that learns from states and gradients, '
      '`tfpa.adaptation.FisherDivergenceAdaptation`.'
    )


class MomentumMetropolisHastings(MetropolisHastings):
  """Accepts by a uniform that changes slowly, and keeps each chain's momentum.

  Results are those of `MetropolisHastings`, with a `Kept` as `extra`. The first
  step after `bootstrap_results` draws all momenta.
  """

  _keeps_momentum = True

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Proposes with the kept momentum; a rejection negates the momentum."""
    seed = random.sanitize(seed)
    proposal_seed, uniform_seed = random.split(seed, 2)
    kept = previous_kernel_results.extra
    previous = previous_kernel_results.accepted_results
    proposed_state, proposed = self.inner_kernel.one_step(
      current_state,
      previous._replace(noise=kept.velocity),
      seed=proposal_seed,
    )
    ratio = self._log_accept_ratio(previous, proposed)
    uniform = _moved(kept.uniform, proposed.trajectory.share_kept, uniform_seed)
    is_accepted = tf.math.log(tf.abs(uniform)) < ratio
    next_state, results = self._decided(
      is_accepted,
      (current_state, previous),
      (proposed_state, proposed),
      ratio,
      seed,
    )
    return next_state, results._replace(
      extra=Kept(
        velocity=tf.where(
          is_accepted[..., tf.newaxis],
          proposed.trajectory.velocity,
          -proposed.noise,
        ),
        # |u| pi(x, v) stays the same, and pi grew by the factor exp(r).
        uniform=tf.where(is_accepted, uniform * tf.exp(-ratio), uniform),
      ),
    )

  def bootstrap_results(self, init_state):
    """Returns results for `init_state`, with nothing kept."""
    results = super().bootstrap_results(init_state)
    return results._replace(
      extra=Kept(
        velocity=tf.zeros_like(results.proposed_results.noise),
        uniform=tf.zeros_like(results.log_accept_ratio),
      )
    )


def accepted(proposal):
  """Returns the Metropolis-Hastings kernel that the proposal needs."""
  if proposal.keeps_momentum:
    return MomentumMetropolisHastings(proposal)
  return MetropolisHastings(proposal)


def _moved(uniform, share_kept, seed):
  """Returns the next u, [chains...]. A u of 0 was not drawn yet, and is now."""
  fresh = random.uniform(ps.shape(uniform), uniform.dtype, seed)
  moved = uniform + 0.5 * (1.0 - share_kept**2)
  moved = tf.where(moved >= 1.0, moved - 2.0, moved)
  return tf.where(tf.equal(uniform, 0.0), 2.0 * fresh - 1.0, moved)
