"""Draws and log densities of a prior, for users.

Samplers call the functions of `interfaces.GaussianPrior`, which work on
coordinates. The functions here work on states.
"""

import math

import tensorflow as tf

from tfp_adaptive.core import random
from tfp_adaptive.core.tfp_private import prefer_static as ps


def sample(prior, sample_shape=(), seed=None):
  """Draws states from a Gaussian prior.

  Args:
    prior: An `interfaces.GaussianPrior`.
    sample_shape: Leading dimensions of the draws, ints or a [n] int32 Tensor.
      It must end in the chain dimensions of the prior's params, if any.
    seed: An int, a pair of ints, a [2] int32 Tensor, or None.

  Returns:
    States, [*sample_shape, *prior.event_shape], of the prior's dtype.
    `prior.restrict`, if there is one, returns the part of the states that
    likelihoods see.

  Example:
    prior = tfpa.gaussian_priors.random_walk(0.1, 100, initial_scale=1.0)
    draws = tfpa.gaussian_priors.sample(prior, [4], seed=(0, 1))
    print(draws.shape)  # (4, 100)
  """
  dtype = tf.nest.flatten(prior.params)[0].dtype
  lead = ps.reshape(
    ps.convert_to_shape_tensor(sample_shape, dtype=tf.int32), [-1]
  )
  size = math.prod(prior.event_shape)
  noise = random.normal(
    ps.concat([lead, [size]], axis=0), dtype, random.sanitize(seed)
  )
  s = prior.covariance(prior.params).draw(noise)
  x = prior.from_coordinates(prior.params, s)
  return tf.reshape(x, ps.concat([lead, list(prior.event_shape)], axis=0))


def log_prob(prior, state):
  """Returns the log density of states under a Gaussian prior.

  Args:
    prior: An `interfaces.GaussianPrior`.
    state: [chains..., *prior.event_shape], of the prior's dtype.

  Returns:
    log N(state | mean, C), [chains...]. If C is singular, it is the density in
    the range of C.

  Raises:
    ValueError: If the state has another event shape.

  Example:
    prior = tfpa.gaussian_priors.random_walk(0.1, 100, initial_scale=1.0)
    draws = tfpa.gaussian_priors.sample(prior, [4], seed=(0, 1))
    print(tfpa.gaussian_priors.log_prob(prior, draws).shape)  # (4,)
  """
  dtype = tf.nest.flatten(prior.params)[0].dtype
  state = tf.convert_to_tensor(state, dtype=dtype)
  num_event_dims = len(prior.event_shape)
  rank = state.shape.rank
  if rank < num_event_dims or (
    tuple(state.shape[rank - num_event_dims :]) != prior.event_shape
  ):
    raise ValueError(
      f'The prior {prior.name!r} has event shape {prior.event_shape}, but the '
      f'state has shape {state.shape}: pass [chains..., *event_shape]. A prior '
      'with `restrict` has its density on the whole state, not on its part.'
    )
  lead = ps.shape(state)[: rank - num_event_dims]
  flat = tf.reshape(
    state, ps.concat([lead, [math.prod(prior.event_shape)]], axis=0)
  )
  coordinates = prior.to_coordinates(prior.params, flat)
  return prior.covariance(prior.params).log_prob(coordinates)
