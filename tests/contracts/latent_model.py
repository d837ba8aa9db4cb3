"""A latent Gaussian model with exact draws, and the kernels that sample it."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from tests.contracts import registry
from tests.contracts import targets

__all__ = [
  'C',
  'D',
  'DATA',
  'KERNELS',
  'MEAN',
  'NOISE',
  'build',
  'each_kernel',
  'exact_draws',
  'gaussian_prior',
  'log_likelihood',
  'one_step',
  'posterior',
  'smallest_p_value',
]

D = 5
NOISE = 0.5
MEAN = np.linspace(-1.0, 1.0, D)
DATA = np.linspace(2.0, -1.0, D)
C = targets.correlated_factor(D, 20.0) @ targets.correlated_factor(D, 20.0).T
C /= np.trace(C) / D

_crank_nicolson = tfpa.crank_nicolson
# name -> (builder, delta that moves well below).
KERNELS = dict(
  marginal=(tfpa.marginal_gradient, 0.8),
  auxiliary_z=(tfpa.auxiliary_gradient, 0.3),
  auxiliary_u=(functools.partial(tfpa.auxiliary_gradient, auxiliary='u'), 0.4),
  pcn=(_crank_nicolson, 1.5),
  pcnl=(functools.partial(_crank_nicolson, langevin=True), 0.3),
  cnl=(
    functools.partial(_crank_nicolson, langevin=True, preconditioned=False),
    0.3,
  ),
  pmala=(baselines.prior_preconditioned_langevin, 0.3),
)
# The same moves in other coordinates: by night, but for the law.
_VARIANTS = ('auxiliary_u', 'cnl')
each_kernel = pytest.mark.parametrize(
  'name', registry.tiered(KERNELS, registry.BASELINES + _VARIANTS)
)
each_kernel_and_variant = pytest.mark.parametrize(
  'name', registry.tiered(KERNELS)
)


def log_likelihood(x, temper=1.0):
  miss = tf.constant(DATA, x.dtype) - x
  return -0.5 * temper * tf.reduce_sum(miss**2, axis=-1) / NOISE


def gaussian_prior(dtype=np.float64):
  return tfpa.gaussian_priors.spectral(C.astype(dtype), mean=MEAN)


def build(name, num_adaptation_steps=0, function=log_likelihood, prior=None):
  make, delta = KERNELS[name]
  if prior is None:
    prior = gaussian_prior()
  return make(function, prior, num_adaptation_steps, step_size=delta)


def posterior():
  """Returns mean and covariance of the exact posterior."""
  gain = C @ np.linalg.inv(C + NOISE * np.eye(D))
  return MEAN + gain @ (DATA - MEAN), C - gain @ C


def exact_draws(num_draws, seed=0):
  mean, covariance = posterior()
  noise = np.random.default_rng(seed).normal(size=(num_draws, D))
  return mean + noise @ np.linalg.cholesky(covariance).T


def smallest_p_value(before, after):
  """Tests of whitened coordinates and of paired changes, times their number."""
  mean, covariance = posterior()
  white = np.linalg.inv(np.linalg.cholesky(covariance)).T
  z0, z1 = (before - mean) @ white, (after - mean) @ white
  p_values = [stats.kstest(column, 'norm').pvalue for column in z1.T]
  squares = np.sum(z1**2, axis=1) - np.sum(z0**2, axis=1)
  for change in (*(z1 - z0).T, *(z1**2 - z0**2).T, squares):
    error = change.std() / len(change) ** 0.5
    p_values.append(2.0 * stats.norm.sf(abs(change.mean()) / error))
  return len(p_values) * min(p_values)


def one_step(kernel, before, mode='graph', seed=(3, 4)):
  step = targets.stepper(kernel, mode)
  return step(before, kernel.bootstrap_results(before), tf.constant(seed))
