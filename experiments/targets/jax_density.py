"""Densities of targets in JAX, for samplers that need them.

A `Target.jax_log_prob_fn` is a factory that imports JAX when it is called, in
the precision that `precision` sets. A test compares every such density with
TensorFlow's, in `tests/experiments/targets/test_peers_density.py`.
"""

import importlib

import numpy as np

PEERS_HINT = "write pip install '.[peers]'"


def import_peer(name):
  """Returns a module of the optional extra.

  Raises:
    ImportError: If the module, or one that it imports, is not installed.
  """
  try:
    return importlib.import_module(name)
  except ImportError as error:
    raise ImportError(
      f'{name} could not be imported ({error}). The optional extra peers '
      f'has {name}: {PEERS_HINT}.'
    ) from error


def precision(dtype):
  """Returns a context in which JAX computes in 'float32' or 'float64'."""
  experimental = import_peer('jax.experimental')
  return experimental.enable_x64(dtype == 'float64')


def gym_model(name, arguments):
  """Returns the factory of an inference_gym model's density.

  inference_gym writes a model once, and TFP translates the model to JAX.
  """

  def factory():
    gym = import_peer('inference_gym.using_jax')
    model = getattr(gym.targets, name)(**arguments)
    vector_model = gym.targets.VectorModel(model)
    bijector = vector_model.default_event_space_bijector

    def log_prob(u):
      log_det = bijector.forward_log_det_jacobian(u, event_ndims=1)
      return vector_model.unnormalized_log_prob(bijector.forward(u)) + log_det

    return log_prob

  return factory


def gaussian(inverse_scale):
  """Returns the factory of -|W x|^2 / 2.

  Args:
    inverse_scale: W^T, [event_size, event_size] in the dtype of the states, or
      its diagonal [event_size].
  """

  def factory():
    jnp = import_peer('jax.numpy')

    def log_prob(x):
      diagonal = np.ndim(inverse_scale) == 1
      white = x * inverse_scale if diagonal else x @ inverse_scale
      return -0.5 * jnp.sum(jnp.square(white))

    return log_prob

  return factory


def logistic_regression(transposed, labels):
  """Returns the factory of a logistic regression with N(0, I) weights.

  Args:
    transposed: [event_size, num_rows] inputs in the dtype of the states.
    labels: [num_rows] zeros and ones in the same dtype.
  """

  def factory():
    jnp, nn = import_peer('jax.numpy'), import_peer('jax.nn')

    def log_prob(weights):
      logits = weights @ transposed
      log_likelihood = jnp.sum(labels * logits - nn.softplus(logits))
      return log_likelihood - 0.5 * jnp.sum(jnp.square(weights))

    return log_prob

  return factory


def centered_volatility(squares, prior_scales):
  """Returns the factory of the centered S&P 500 model.

  The prior of the path is written out again, so that this function and
  `stochastic_volatility` check each other.

  Args:
    squares: [num_days] numpy float64, squared returns.
    prior_scales: Scales of the Cauchy priors of mean and shock scale.
  """
  level = float(np.log(squares.mean()))
  num_days = len(squares)

  def factory():
    jnp, nn = import_peer('jax.numpy'), import_peer('jax.nn')

    def log_prob(x):
      path, (mean, raw_persistence, raw_scale) = x[:num_days], x[num_days:]
      shock_scale = nn.softplus(raw_scale)
      relative = path - level
      weights = jnp.asarray(squares / np.exp(level), x.dtype)
      fit = -0.5 * jnp.sum(relative + weights * jnp.exp(-relative))
      scaled = (path - mean) / shock_scale
      persistence = jnp.tanh(0.5 * raw_persistence)
      shocks = scaled[1:] - persistence * scaled[:-1]
      # log(1 - persistence^2), for the first day.
      log_precision = float(np.log(4.0)) + (
        nn.log_sigmoid(raw_persistence) + nn.log_sigmoid(-raw_persistence)
      )
      first = jnp.exp(log_precision) * jnp.square(scaled[0])
      log_prior = 0.5 * (log_precision - first - jnp.sum(jnp.square(shocks)))
      log_prior -= num_days * jnp.log(shock_scale)
      log_prior -= jnp.log1p(jnp.square(mean / prior_scales[0]))
      log_prior -= jnp.log1p(jnp.square(shock_scale / prior_scales[1]))
      log_prior += nn.log_sigmoid(raw_scale)
      log_prior += 20.0 * nn.log_sigmoid(raw_persistence)
      return fit + log_prior + 1.5 * nn.log_sigmoid(-raw_persistence)

    return log_prob

  return factory
