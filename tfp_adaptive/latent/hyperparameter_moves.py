"""Two ways to move hyperparameters of a latent Gaussian model.

Both functions take the priors at theta and at a proposed theta', with params
per chain, the field x as `state`, and its `LatentResults` at theta as `latent`.
They return the log acceptance ratio without the change of log p(theta),
[chains...], and a `Landing`, the new field. A ratio is NaN where the prior at
theta' fails.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.core import random
from tfp_adaptive.core import state_parts
from tfp_adaptive.latent import latent_proposal


class Landing(NamedTuple):
  """The latent field after a move, in the proposed prior's coordinates."""

  state: Any
  log_likelihood: tf.Tensor  # f, [chains...].
  coordinates: tf.Tensor  # [chains..., d].
  grads_coordinates: Any  # Gradient of f in the coordinates, or `[]`.
  # Whether the prior at theta' fails: it has no finite density, or in the joint
  # move no finite draw, [chains...] bool.
  has_failed: tf.Tensor


def log_prob(prior, coordinates):
  """Returns log N(x | theta), NaN where the covariance is singular."""
  covariance = prior.covariance(prior.params)
  function = covariance.log_prob_if_invertible or covariance.log_prob
  return function(coordinates)


def gibbs_move(prior, proposed_prior, evaluate, state, latent, seed):
  """Holds the field x and moves theta alone.

    log ratio = log N(x | theta') - log N(x | theta)

  A field with many coordinates almost determines theta, so that steps must be
  small.
  """
  del evaluate, seed
  num_chain_dims = latent.target_log_prob.shape.rank
  flat = state_parts.flatten(state, num_chain_dims)
  coordinates = proposed_prior.to_coordinates(proposed_prior.params, flat)
  grads = latent.grads_coordinates
  if tf.is_tensor(grads):
    grads = proposed_prior.pull(
      proposed_prior.params, _raw_gradient(prior, flat, grads)
    )
  log_ratio = log_prob(proposed_prior, coordinates) - log_prob(
    prior, latent.coordinates
  )
  return log_ratio, Landing(
    state,
    latent.target_log_prob,
    coordinates,
    grads,
    has_failed=~tf.math.is_finite(log_ratio),
  )


def joint_move(prior, proposed_prior, evaluate, state, latent, seed):
  """Moves theta and the field together, given z, a noisy field.

    z ~ N(x + t g(x), t I),   y ~ p(field | z, theta')
    log ratio = f(y) - f(x) + q(z, y) - q(z, x)
                + log N(z | 0, C' + t I) - log N(z | 0, C + t I)

  with t = delta / 2 and q(z, y) = (z - y - t / 2 g(y)) . g(y). y is drawn from
  the posterior of a field with prior N(0, C') and observation z, without f.
  Given z, theta can move further than given x, because z is noisy. `evaluate`
  is (prior, coordinates) -> (state, f, coordinates of the gradient).

  Source: Titsias and Papaspiliopoulos (2018), section 4,
  https://arxiv.org/abs/1610.09641.
  """
  del state
  variance = 0.5 * latent.step_size
  noise_seed, draw_seed = random.split(seed, 2)
  x, grads_x = latent.coordinates, latent.grads_coordinates
  noise = latent_proposal.noise_like(x, noise_seed)
  z = x + variance * grads_x + tf.sqrt(variance) * noise
  proposed_z = proposed_prior.to_coordinates(
    proposed_prior.params, prior.from_coordinates(prior.params, z)
  )
  smoother = prior.smoother(prior.params, variance)
  proposed_smoother = proposed_prior.smoother(proposed_prior.params, variance)
  y = proposed_smoother.draw(
    proposed_z, latent_proposal.noise_like(x, draw_seed)
  )
  state, log_likelihood, grads_y = evaluate(proposed_prior, y)

  def fit(z, point, grads):
    miss = z - point - 0.5 * variance * grads
    return latent_proposal.dot(miss, grads)

  log_ratio = (
    log_likelihood
    - latent.target_log_prob
    + fit(proposed_z, y, grads_y)
    - fit(z, x, grads_x)
    + proposed_smoother.log_marginal(proposed_z)
    - smoother.log_marginal(z)
  )
  return log_ratio, Landing(
    state,
    log_likelihood,
    y,
    grads_y,
    # A field without a finite gradient has no finite z, either.
    has_failed=_is_finite(x + grads_x) & ~_is_finite(y),
  )


def _is_finite(rows):
  return tf.reduce_all(tf.math.is_finite(rows), axis=-1)


def _raw_gradient(prior, flat, grads_coordinates):
  """Returns the gradient in x from that in the coordinates of `prior`."""
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(flat)
    coordinates = prior.to_coordinates(prior.params, flat)
  return tape.gradient(coordinates, flat, output_gradients=grads_coordinates)
