"""Hierarchical models and Gaussian processes."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from experiments.models.posteriordb.posterior import cast
from experiments.models.posteriordb.posterior import constants
from experiments.models.posteriordb.posterior import Data
from experiments.models.posteriordb.posterior import Posterior

tfd = tfp.distributions

_JITTER = 1e-10


def _eight_schools_noncentered(data, dtype):
  """Eight schools with standardized effects, as in the Stan program."""
  zero, one, five = constants(dtype, 0.0, 1.0, 5.0)
  errors = tf.constant(data['sigma'], dtype)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    normal = tfd.Normal(zero, one)
    effects = yield tfd.Sample(normal, len(errors), name='theta_trans')
    mu = yield tfd.Normal(zero, five, name='mu')
    tau = yield tfd.HalfCauchy(zero, five, name='tau')
    theta = effects * tau + mu
    yield tfd.Independent(tfd.Normal(theta, errors), 1, name='y')

  def reported(states):
    mu, tau = states['mu'], states['tau']
    theta = states['theta_trans'] * tau[..., np.newaxis] + mu[..., np.newaxis]
    return {'theta': theta, 'mu': mu, 'tau': tau}

  return Posterior(model, {'y': cast(data['y'], dtype)}, reported)


def _gp_regr(data, dtype):
  """A Gaussian process with normal errors, integrated out."""
  x = tf.constant(data['x'], dtype)
  rate, shape, one, two = constants(dtype, 4.0, 25.0, 1.0, 2.0)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    rho = yield tfd.Gamma(shape, rate, name='rho')
    alpha = yield tfd.HalfNormal(two, name='alpha')
    sigma = yield tfd.HalfNormal(one, name='sigma')
    noise = sigma * tf.eye(len(x), dtype=dtype)
    factor = tf.linalg.cholesky(_squared_exponential(x, alpha, rho) + noise)
    zeros = tf.zeros([len(x)], dtype)
    yield tfd.MultivariateNormalTriL(zeros, scale_tril=factor, name='y')

  return Posterior(model, {'y': cast(data['y'], dtype)})


def _gp_pois_regr(data, dtype):
  """Counts whose log rates are a Gaussian process, standardized."""
  x = tf.constant(data['x'], dtype)
  rate, shape, zero, one, two = constants(dtype, 4.0, 25.0, 0.0, 1.0, 2.0)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    rho = yield tfd.Gamma(shape, rate, name='rho')
    alpha = yield tfd.HalfNormal(two, name='alpha')
    f_tilde = yield tfd.Sample(tfd.Normal(zero, one), len(x), name='f_tilde')
    f = _process(x, alpha, rho, f_tilde)
    yield tfd.Independent(tfd.Poisson(log_rate=f), 1, name='k')

  def reported(states):
    # float64 does not lose the jitter.
    doubles = {key: np.float64(part) for key, part in states.items()}
    grid = tf.constant(data['x'], tf.float64)
    f = _process(grid, doubles['alpha'], doubles['rho'], doubles['f_tilde'])
    return {'rho': states['rho'], 'alpha': states['alpha'], 'f': f.numpy()}

  return Posterior(model, {'k': cast(data['k'], dtype)}, reported)


def _process(x, alpha, rho, standardized):
  """Returns values [..., n] of the process at x, from standardized values."""
  jitter = _JITTER * tf.eye(len(x), dtype=x.dtype)
  factor = tf.linalg.cholesky(_squared_exponential(x, alpha, rho) + jitter)
  return tf.linalg.matvec(factor, standardized)


def _squared_exponential(x, alpha, rho):
  """Returns covariances [..., n, n]; alpha and rho are [...]."""
  alpha, rho = (t[..., tf.newaxis, tf.newaxis] for t in (alpha, rho))
  squares = (x[:, tf.newaxis] - x) ** 2
  return alpha**2 * tf.exp(-0.5 * squares / rho**2)


MODELS: dict[str, Callable[[Data, tf.DType], Posterior]] = {
  'eight_schools-eight_schools_noncentered': _eight_schools_noncentered,
  'gp_pois_regr-gp_pois_regr': _gp_pois_regr,
  'gp_pois_regr-gp_regr': _gp_regr,
}
