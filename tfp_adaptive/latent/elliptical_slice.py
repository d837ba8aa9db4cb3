"""Elliptical slice sampling with the interface of the latent kernels.

A draw w of the prior and the centered field x span an ellipse, and a uniform u
sets a height. Angles are drawn from a bracket that shrinks towards 0, until

  f(x cos(a) + w sin(a)) >= f(x) + log(u).

Source: Murray, Adams and MacKay (2010), Elliptical slice sampling, figure 2.
"""

import collections
import math

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import random
from tfp_adaptive.core import state_parts
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.interfaces import types
from tfp_adaptive.latent import latent_proposal

# After about 40 shrinks all angles in the bracket give the state itself, in
# float64. If f is deterministic, f is high enough there.
_MAX_SHRINKS = 100


class EllipticalSliceResults(
  collections.namedtuple(
    'EllipticalSliceResults',
    ['accepted_results', 'angle', 'has_divergence', 'seed'],
  )
):
  """Results of `EllipticalSlice`.

  Attributes:
    accepted_results: `LatentResults` of the state, without gradient.
    angle: Angle by which the state was rotated, [chains...].
    has_divergence: Whether f was NaN or +inf at a tried angle, or no angle was
      found, [chains...] bool.
    seed: [2] int32.
  """

  __slots__ = ()

  @property
  def log_accept_ratio(self):
    # TFP's step-size adaptations read this property.
    raise TypeError(
      'A step-size adaptation was put around `tfpa.elliptical_slice`, which '
      'has no step size and accepts every move. Use the kernel alone.'
    )

  def _replace(self, /, **fields):
    # TFP's replica exchange writes `proposed_results` to swap states.
    if 'proposed_results' in fields:
      raise TypeError(latent_proposal.REFUSAL)
    return super()._replace(**fields)


@arguments.by_keyword('elliptical_slice(log_likelihood_fn, prior=prior)')
def elliptical_slice(
  log_likelihood_fn: types.LogProbFn,
  *,
  prior: interfaces.GaussianPrior,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds an elliptical slice sampler.

  Args:
    log_likelihood_fn: See `marginal_gradient`; needs no gradient.
    prior: See `marginal_gradient`.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`; it has nothing to tune.

  Raises:
    TypeError: If the likelihood or the prior has the wrong type.

  References:
    Murray, Adams and MacKay (2010), Elliptical slice sampling.

  Example:
    prior = tfpa.gaussian_priors.random_walk(0.1, 50, initial_scale=1.0)
    log_likelihood = lambda x: tf.reduce_sum(2.0 * x - tf.exp(x), axis=-1)
    kernel = tfpa.elliptical_slice(log_likelihood, prior=prior)
    result = tfpa.sample(kernel, tf.zeros([4, 50]), num_results=500)
  """
  return EllipticalSlice(log_likelihood_fn, prior, name=name)


class EllipticalSlice(latent_proposal.UncalibratedLatentProposal):
  """Rotates the field towards a draw of the prior until f is high enough.

  It has nothing to tune, uses no gradient and accepts every move. A step makes
  one or more calls of f, and their number varies. `delta` has no effect. Points
  where f is NaN or +inf are not taken.
  """

  is_calibrated = True
  uses_gradient = False

  def learned_at(self, results):
    return super().learned_at(results.accepted_results)

  def scalars_at(self, results):
    return super().scalars_at(results.accepted_results)

  def cost(self, adapting):
    """Returns the least number of calls of f; each shrink adds a call."""
    del adapting
    return interfaces.Cost(target=1)

  def bootstrap_results(self, init_state):
    """Evaluates f at `init_state`."""
    results = super().bootstrap_results(init_state)
    return EllipticalSliceResults(
      accepted_results=results,
      angle=tf.zeros_like(results.target_log_prob),
      has_divergence=tf.zeros_like(results.target_log_prob, tf.bool),
      seed=results.seed,
    )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Moves along one ellipse. Trying an angle costs no product with C."""
    previous = previous_kernel_results.accepted_results
    seed = random.sanitize(seed)
    noise_seed, height_seed, angle_seed = random.split(seed, 3)
    prior = self.prior
    origin = prior.from_coordinates(
      prior.params, tf.zeros_like(previous.coordinates)
    )
    draw = prior.covariance(prior.params).draw(
      latent_proposal.noise_like(previous.coordinates, noise_seed)
    )
    direction = prior.from_coordinates(prior.params, draw) - origin
    num_chain_dims = ps.rank(origin) - 1
    flat = state_parts.flatten(current_state, num_chain_dims)

    def rotated(angle):
      angle = angle[..., tf.newaxis]
      return (flat - origin) * tf.cos(angle) + direction * tf.sin(angle)

    def log_likelihood(angle):
      state = state_parts.unflatten_like(
        rotated(angle) + origin, current_state, num_chain_dims
      )
      return self._evaluate(state, angle.shape)[0]

    value = previous.target_log_prob
    threshold = value + random.log_uniform(
      ps.shape(value), value.dtype, height_seed
    )
    angle, value, has_divergence = _slice(
      log_likelihood, value, threshold, angle_seed
    )
    # If no angle was found, `direction` may be NaN.
    is_moved = (angle != 0.0)[..., tf.newaxis]
    centered = tf.where(is_moved, rotated(angle), flat - origin)
    state = state_parts.unflatten_like(
      centered + origin, current_state, num_chain_dims
    )
    accepted = previous._replace(
      target_log_prob=value,
      coordinates=prior.to_coordinates(prior.params, centered + origin),
    )
    return state, EllipticalSliceResults(accepted, angle, has_divergence, seed)


def _slice(log_likelihood, start_value, threshold, seed):
  """Returns angles at which f reaches the threshold, f, and `has_divergence`.

  The angle is 0 if none was found. `start_value` is f at angle 0.
  """
  first_seed, loop_seed = random.split(seed, 2)

  def drawn(low, high, seed):
    share = random.uniform(ps.shape(low), low.dtype, seed)
    return low + (high - low) * share

  def tried(angle, is_done, value, is_faulty):
    new = log_likelihood(angle)
    is_fault = tf.math.is_nan(new) | (new == float('inf'))
    new = tf.where(is_fault, tf.constant(-float('inf'), new.dtype), new)
    # A finished chain keeps its value, whatever f returns in later calls.
    return tf.where(is_done, value, new), is_faulty | (is_fault & ~is_done)

  def shrink(i, angle, low, high, value, is_faulty):
    is_done = value >= threshold
    low = tf.where(angle < 0.0, angle, low)
    high = tf.where(angle < 0.0, high, angle)
    new = drawn(low, high, random.fold_in(loop_seed, i))
    angle = tf.where(is_done, angle, new)
    value, is_faulty = tried(angle, is_done, value, is_faulty)
    return i + 1, angle, low, high, value, is_faulty

  # The bracket is a full circle that begins and ends at the first angle.
  high = (
    2.0
    * math.pi
    * random.uniform(ps.shape(threshold), threshold.dtype, first_seed)
  )
  never = tf.zeros_like(threshold, tf.bool)
  value, is_faulty = tried(high, never, threshold, never)
  _, angle, _, _, value, is_faulty = tf.while_loop(
    lambda i, angle, low, high, value, _: (
      (i < _MAX_SHRINKS) & tf.reduce_any(value < threshold)
    ),
    shrink,
    (0, high, high - 2.0 * math.pi, high, value, is_faulty),
  )
  is_done = value >= threshold
  return (
    tf.where(is_done, angle, 0.0),
    tf.where(is_done, value, start_value),
    is_faulty | ~is_done,
  )
