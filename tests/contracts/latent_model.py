"""A Gaussian field seen through noise, and its amplitude: exact draws."""

import numpy as np
import tensorflow as tf
from scipy import stats

import tfp_adaptive as tfpa
from tests.contracts import targets

D = 5
NOISE = 0.5
MEAN = np.linspace(-1.0, 1.0, D)
DATA = np.linspace(2.0, -1.0, D)
C = targets.correlated_factor(D, 20.0) @ targets.correlated_factor(D, 20.0).T
C /= np.trace(C) / D
AMPLITUDE_SCALE = 0.6


def log_likelihood(x, temper=1.0):
  miss = tf.constant(DATA, x.dtype) - x
  return -0.5 * temper * tf.reduce_sum(miss**2, axis=-1) / NOISE


def gaussian_prior(dtype=np.float64):
  return tfpa.gaussian_priors.spectral(C.astype(dtype), mean=MEAN)


def build(case, num_adaptation_steps=0, function=log_likelihood, **options):
  """Returns the kernel of a case with a prior, at a step that moves well."""
  arguments = dict(prior=gaussian_prior(), delta=case.scale)
  return case.build(function, num_adaptation_steps, **(arguments | options))


def _posterior(covariance):
  """Returns means and factors given the data, for covariances [..., d, d]."""
  gain = covariance @ np.linalg.inv(covariance + NOISE * np.eye(D))
  mean = MEAN + gain @ (DATA - MEAN)
  return mean, np.linalg.cholesky(covariance - gain @ covariance)


class FieldLaw:
  """The posterior of the field x."""

  def __init__(self, covariance):
    self._mean, self._factor = _posterior(covariance)

  def draw(self, num_draws, seed=0):
    noise = np.random.default_rng(seed).normal(size=(num_draws, D))
    return self._mean + noise @ self._factor.T

  def whiten(self, x):
    return np.linalg.solve(self._factor, (x - self._mean).T).T


class HierarchyLaw:
  """The posterior of x and its log amplitude theta ~ N(0, 0.6^2)."""

  def __init__(self):
    self._grid = np.linspace(-3.5, 3.0, 4001)
    log_prob = [self._log_prob(theta) for theta in self._grid]
    density = np.exp(np.array(log_prob) - max(log_prob))
    self._cumulative = np.cumsum(density) - 0.5 * density
    self._cumulative /= density.sum()

  @staticmethod
  def _covariance(theta):
    return np.exp(2.0 * theta)[..., np.newaxis, np.newaxis] * C

  def _log_prob(self, theta):
    noisy = self._covariance(theta) + NOISE * np.eye(D)
    square = (DATA - MEAN) @ np.linalg.solve(noisy, DATA - MEAN)
    prior = (theta / AMPLITUDE_SCALE) ** 2
    return -0.5 * (square + np.linalg.slogdet(noisy)[1] + prior)

  def draw(self, num_draws, seed):
    rng = np.random.default_rng(seed)
    theta = np.interp(rng.random(num_draws), self._cumulative, self._grid)
    mean, factor = _posterior(self._covariance(theta))
    noise = rng.normal(size=(num_draws, D, 1))
    return mean + (factor @ noise)[..., 0], theta

  def whiten(self, state):
    x, theta = (np.asarray(part) for part in state)
    mean, factor = _posterior(self._covariance(theta))
    z = np.linalg.solve(factor, (x - mean)[..., np.newaxis])[..., 0]
    share = np.interp(theta, self._grid, self._cumulative)
    return np.concatenate([z, stats.norm.ppf(share)[:, np.newaxis]], axis=1)


LAW = FieldLaw(C)
