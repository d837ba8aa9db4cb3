"""TFP's elliptical slice sampler behind the interface of the latent kernels.

Source: Murray, Adams and MacKay (2010), Elliptical slice sampling; the sampler
itself is `tfp.experimental.mcmc.EllipticalSliceSampler`.
"""

import collections

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.internal import latent_proposal
from tfp_adaptive.internal import random
from tfp_adaptive.internal import state_parts
from tfp_adaptive.internal.tfp_private import prefer_static as ps

__all__ = ['EllipticalSlice', 'EllipticalSliceResults']


class EllipticalSliceResults(
  collections.namedtuple(
    'EllipticalSliceResults',
    ['accepted_results', 'angle', 'seed'],
  )
):
  """Results of `EllipticalSlice`.

  Attributes:
    accepted_results: `LatentResults` of the state, without gradient.
    angle: By which the state was rotated, [chains...].
    seed: [2] int32.
  """

  __slots__ = ()


# What TFP's sampler reads of its previous results.
_Start = collections.namedtuple('_Start', ['log_likelihood'])


class EllipticalSlice(latent_proposal.UncalibratedLatentProposal):
  """Rotates the field towards a draw of the prior until f is high enough.

  It has nothing to tune, uses no gradient and accepts every move, at the price
  of several calls of f, a number that varies. `step_size` has no effect.
  """

  _uses_gradient = False

  @property
  def is_calibrated(self):
    return True

  def cost(self, adapting):
    """Returns the least number of calls of f; slices that shrink make more."""
    del adapting
    return interfaces.Cost(target=1)

  def bootstrap_results(self, init_state):
    """Evaluates f at `init_state`."""
    results = super().bootstrap_results(init_state)
    return EllipticalSliceResults(
      accepted_results=results,
      angle=tf.zeros_like(results.target_log_prob),
      seed=results.seed,
    )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Moves along one ellipse; its points cost no product with the prior."""
    previous = previous_kernel_results.accepted_results
    seed = random.sanitize(seed)
    noise_seed, slice_seed = random.split(seed, 2)
    prior = self.prior
    origin = prior.from_coordinates(
      prior.params, tf.zeros_like(previous.coordinates)
    )
    draw = prior.covariance(prior.params).draw(
      latent_proposal.noise_like(previous.coordinates, noise_seed)
    )
    direction = prior.from_coordinates(prior.params, draw) - origin

    def log_likelihood(centered):
      state = state_parts.unflatten_like(
        centered + origin, current_state, ps.rank(centered) - 1
      )
      value, _ = self._evaluate(state, centered.shape[:-1])
      # The slice would take NaN for a point that is high enough.
      lowest = tf.constant(-float('inf'), value.dtype)
      return tf.where(tf.math.is_nan(value), lowest, value)

    kernel = tfp.experimental.mcmc.EllipticalSliceSampler(
      lambda seed: direction, log_likelihood
    )
    flat = state_parts.flatten(current_state, ps.rank(origin) - 1)
    centered, results = kernel.one_step(
      flat - origin, _Start(previous.target_log_prob), seed=slice_seed
    )
    state = state_parts.unflatten_like(
      centered + origin, current_state, ps.rank(origin) - 1
    )
    accepted = previous._replace(
      target_log_prob=results.log_likelihood,
      coordinates=prior.to_coordinates(prior.params, centered + origin),
    )
    return state, EllipticalSliceResults(accepted, results.angle, seed)
