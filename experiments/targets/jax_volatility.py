"""The centered S&P 500 model in JAX, for the panel's peers.

The prior of the path is written out again, so that this file and
`stochastic_volatility` check each other.
"""

import numpy as np

from experiments.targets.jax_density import import_peer


def centered_volatility(squares, prior_scales):
  """Returns the factory of the density of log volatilities and globals.

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
