"""Preconditioned random walk proposal: y = x + C noise.

Source: Titsias and Dellaportas (2019), Gradient-based adaptive Markov chain
Monte Carlo, section 2.2, https://arxiv.org/abs/1911.01373.
"""

import collections

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.internal import proposal
from tfp_adaptive.internal import random
from tfp_adaptive.internal import scale_factor
from tfp_adaptive.internal import state_parts
from tfp_adaptive.internal.tfp_private import prefer_static as ps

__all__ = ['UncalibratedPreconditionedRandomWalk']


_CURVATURE_WEIGHT = 0.1  # Of a new value in the running mean.


class RandomWalkReplayCache(
  collections.namedtuple('RandomWalkReplayCache', ['grads', 'curvature'])
):
  """What the replay of a random walk carries from step to step.

  Attributes:
    grads: Gradient at the current state, [chains..., event_size]; 0 until the
      first accepted adapting step.
    curvature: Running mean of (g(x).C e - r) d / |e|^2, [].
  """

  __slots__ = ()


class UncalibratedPreconditionedRandomWalk(proposal.UncalibratedProposal):
  """Proposes y = x + step_size * C e, e ~ N(0, I): symmetric, no correction.

  One step makes one target call and one product with C; an adapting step adds
  one gradient, at the proposal. It needs `MetropolisHastings` around it.
  """

  def cost(self, adapting):
    """Returns the target calls of one step per chain."""
    return interfaces.Cost(target=1, gradient=int(adapting))

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Draws y; the results carry its log density."""
    previous = previous_kernel_results
    num_chain_dims = ps.rank(previous.target_log_prob)
    seed = random.sanitize(seed)
    x = state_parts.flatten(current_state, num_chain_dims)
    factor = scale_factor.at(
      self.preconditioner, previous.preconditioner_params
    )
    noise = self._draw_noise(x, seed)
    proposed_state = state_parts.unflatten_like(
      x + previous.step_size * factor.apply(noise),
      current_state,
      num_chain_dims,
    )
    log_prob = state_parts.value(self.target_log_prob_fn, proposed_state)
    return proposed_state, previous._replace(
      target_log_prob=log_prob, noise=noise, seed=seed
    )

  def init_replay_cache(self, proposed_results):
    """Returns the cache before the first step: no gradient is known."""
    return RandomWalkReplayCache(
      grads=tf.zeros_like(proposed_results.noise),
      curvature=tf.zeros([], proposed_results.noise.dtype),
    )

  def replay(self, cache, previous, proposed, proposed_state, mh_results):
    """Returns the step just taken as a function of the scale factor.

    It evaluates the gradient at the proposal, which the step did not need.
    """
    num_chain_dims = ps.rank(previous.target_log_prob)
    _, grads = state_parts.value_and_gradient(
      self.target_log_prob_fn, proposed_state
    )
    grad_y = state_parts.flatten(grads, num_chain_dims)
    is_finite = tf.math.is_finite(mh_results.log_accept_ratio) & tf.reduce_all(
      tf.math.is_finite(grad_y), axis=-1
    )
    grad_y = tf.where(is_finite[..., tf.newaxis], grad_y, 0.0)
    ratio = tf.where(is_finite, mh_results.log_accept_ratio, 0.0)
    noise, step_size = proposed.noise, proposed.step_size
    operator = self.preconditioner.operator(previous.preconditioner_params)
    pull = step_size * scale_factor.apply(operator, cache.grads, adjoint=True)
    across, is_downhill = self._predict(pull, noise, cache.curvature)

    def transition(factor):
      displacement = step_size * factor.apply(noise)
      control = step_size * factor.apply(across)
      return interfaces.Transition(
        log_accept_ratio=ratio + self._moved(grad_y, displacement),
        proposal_entropy=factor.log_abs_det,
        displacement=displacement,
        control_variate=-is_downhill * self._moved(cache.grads, control),
        is_finite=is_finite,
        is_accepted=mh_results.is_accepted,
      )

    return interfaces.Replay(
      transition=transition,
      cache=RandomWalkReplayCache(
        grads=tf.where(
          mh_results.is_accepted[..., tf.newaxis], grad_y, cache.grads
        ),
        curvature=_mean_curvature(cache, pull, noise, ratio, is_finite),
      ),
    )

  def _predict(self, pull, noise, curvature):
    """Splits the noise, and predicts log_accept_ratio < 0 from one part.

    The gradient of min(0, r) holds g(x) e^T where r < 0: in whitened units of
    size l / sqrt(d) an entry, against a signal of l^2 / d. The part of e across
    u = C^T g(x) carries none of the signal: for any s that depends on e through
    u.e and |e| alone, E[s g(x) e_across^T] = 0 exactly. So s g(x) e_across^T is
    subtracted, with s a guess of the indicator r < 0.
    """
    size = tf.cast(ps.shape(noise)[-1], noise.dtype)
    length = tf.norm(pull, axis=-1, keepdims=True)
    tiny = tf.constant(1e-30, noise.dtype)
    direction = pull / tf.maximum(length, tiny)
    along = tf.reduce_sum(direction * noise, axis=-1, keepdims=True)
    mean_square = tf.reduce_sum(noise**2, axis=-1) / size
    predicted = (length * along)[..., 0] - curvature * mean_square
    return noise - direction * along, tf.cast(predicted < 0.0, noise.dtype)

  def _moved(self, grads, displacement):
    """Linear change of log pi along `grads`: value 0, gradient exact."""
    return self._event_sum(
      grads * (displacement - tf.stop_gradient(displacement))
    )


def _mean_curvature(cache, pull, noise, ratio, is_finite):
  """Follows the mean over chains of (C^T g(x).e - r) d / |e|^2."""
  size = tf.cast(ps.shape(noise)[-1], noise.dtype)
  linear = tf.reduce_sum(pull * noise, axis=-1)
  curvature = (linear - ratio) * size / tf.reduce_sum(noise**2, axis=-1)
  count = tf.reduce_sum(tf.cast(is_finite, noise.dtype))
  mean = tf.reduce_sum(tf.where(is_finite, curvature, 0.0)) / tf.maximum(
    count, 1.0
  )
  is_known = tf.reduce_any(cache.grads != 0.0) & (count > 0.0)
  is_first = cache.curvature == 0.0
  weight = tf.where(is_first, tf.ones_like(mean), _CURVATURE_WEIGHT)
  moved = cache.curvature + weight * (mean - cache.curvature)
  return tf.where(is_known, moved, cache.curvature)
