"""The S&P 500 model in JAX, as `stochastic_volatility` has it in TensorFlow.

The path's prior and the maps between its forms are written out here once more,
so that the two check each other.
"""

import numpy as np

from experiments.targets.jax_density import import_peer

__all__ = ['stochastic_volatility']


def stochastic_volatility(squares, parameterization, prior_scales):
  """Returns the factory of the S&P 500 model's density.

  Args:
    squares: [num_days] numpy float64, squared returns.
    parameterization: as of `stochastic_volatility_target`.
    prior_scales: of the Cauchy priors of mean and shock scale.
  """
  level = float(np.log(squares.mean()))
  num_days = len(squares)

  def factory():
    jnp, nn = import_peer('jax.numpy'), import_peer('jax.nn')

    def log_prob(x):
      mean, raw_persistence, raw_scale = x[num_days:]
      shock_scale = nn.softplus(raw_scale)
      path, log_prior = _PRIORS[parameterization](
        x[:num_days], mean, raw_persistence, shock_scale
      )
      relative = mean + shock_scale * path - level
      weights = jnp.asarray(squares / np.exp(level), x.dtype)
      fit = -0.5 * jnp.sum(relative + weights * jnp.exp(-relative))
      log_prior -= jnp.log1p(jnp.square(mean / prior_scales[0]))
      log_prior -= jnp.log1p(jnp.square(shock_scale / prior_scales[1]))
      log_prior += nn.log_sigmoid(raw_scale)
      log_prior += 20.0 * nn.log_sigmoid(raw_persistence)
      return fit + log_prior + 1.5 * nn.log_sigmoid(-raw_persistence)

    return log_prob

  return factory


def _scaled(path, mean, raw_persistence, shock_scale):
  """Returns the AR(1) path in units of its shocks, and its log density."""
  del mean, shock_scale
  jnp = import_peer('jax.numpy')
  persistence = jnp.tanh(0.5 * raw_persistence)
  log_precision = _log_precision(raw_persistence)
  shocks = path[1:] - persistence * path[:-1]
  first = jnp.exp(log_precision) * jnp.square(path[0])
  return path, 0.5 * (log_precision - first - jnp.sum(jnp.square(shocks)))


def _log_precision(raw_persistence):
  """Returns log(1 - persistence^2), of the first day."""
  log_sigmoid = import_peer('jax.nn').log_sigmoid
  both = log_sigmoid(raw_persistence) + log_sigmoid(-raw_persistence)
  return float(np.log(4.0)) + both


def _zero_mean(path, mean, raw_persistence, shock_scale):
  path, log_prior = _scaled(
    path / shock_scale, mean, raw_persistence, shock_scale
  )
  log_volume = len(path) * import_peer('jax.numpy').log(shock_scale)
  return path, log_prior - log_volume


def _centered(path, mean, raw_persistence, shock_scale):
  return _zero_mean(path - mean, mean, raw_persistence, shock_scale)


def _non_centered(standard, mean, raw_persistence, shock_scale):
  del mean, shock_scale
  jnp, lax = import_peer('jax.numpy'), import_peer('jax.lax')
  first_scale = jnp.exp(-0.5 * _log_precision(raw_persistence))
  persistence = jnp.tanh(0.5 * raw_persistence)

  def next_day(last, innovation):
    new = persistence * last + innovation
    return new, new

  innovations = standard.at[0].multiply(first_scale)
  _, path = lax.scan(next_day, jnp.zeros_like(persistence), innovations)
  return path, -0.5 * jnp.sum(jnp.square(standard))


_PRIORS = {
  'centered': _centered,
  'non_centered': _non_centered,
  'scaled': _scaled,
  'zero_mean': _zero_mean,
}
