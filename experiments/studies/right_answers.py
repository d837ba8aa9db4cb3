"""Are the answers of `sample_posterior` right on unscaled and on large data?

units     Linear regressions whose covariates have scales from 1e-4 to 1e5.
          Under flat priors the posterior mean of the weights is the
          least-squares estimate.
rounding  One unknown, the log or logit of a mean, and many rows. The density
          depends on the sum of the data alone, so that quadrature gives the
          posterior deviation.
seconds   Times of calls with `max_seconds`.
"""

import functools
import itertools
import time
import warnings
import zlib
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import scipy.special
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.run.study import Settings
from experiments.run.study import Study
from experiments.run.study import Work

tfb, tfd = tfp.bijectors, tfp.distributions

_DTYPES = ('float32', 'float64')
_SHAPE = 2.0  # Gamma concentration, and negative binomial count.


class Sizes(Settings):
  """How many regressions, and how many rows for rounding."""

  num_regressions: int = 200
  num_rows: tuple[int, ...] = (1000, 100_000, 1_000_000)

  def smoke(self) -> 'Sizes':
    return Sizes(num_regressions=1, num_rows=(1000,))


def regression(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns covariates [200, k], data [200] and least-squares weights [k]."""
  rng = np.random.default_rng(number)
  size = int(rng.integers(1, 6))
  scales = 10.0 ** rng.uniform(-4.0, 5.0, size)
  x = (rng.normal(size=(200, size)) + rng.uniform(0.0, 10.0, size)) * scales
  y = 2.0 + x @ (3.0 * rng.normal(size=size) / scales)
  y = y + 3.0 * rng.normal(size=200)
  design = np.column_stack([np.ones(200), x])
  return x, y, np.linalg.lstsq(design, y, rcond=None)[0][1:]


def _units(number, computed_in):
  """Returns the record of one regression."""
  x, y, expected = regression(number)
  x, y = np.float32(x), np.float32(y)
  scalar = tf.TensorSpec([])

  def log_prob(intercept, weights, noise):
    mean = intercept[:, None] + tf.linalg.matvec(x, weights)
    return tf.reduce_sum(tfd.Normal(mean, noise[:, None]).log_prob(y), axis=-1)

  posterior = tfpa.sample_posterior(
    log_prob,
    init=dict(
      intercept=scalar, weights=tf.TensorSpec([x.shape[1]]), noise=scalar
    ),
    bijectors=dict(noise=tfb.Exp()),
    seed=number,
    progress=False,
    dtype=tf.as_dtype(computed_in),
  )
  weights = posterior.unconstrained[..., -x.shape[1] :]
  error = np.abs(weights.mean((0, 1)) - expected) / weights.std((0, 1))
  return posterior, dict(
    largest_error=float(error.max()),
    is_first_try=[s.name for s in posterior.report].count('adapt') == 0,
  )


class _Family(NamedTuple):
  """A distribution of rows, given eta, the log or logit of their mean."""

  # (eta) -> distribution of a row.
  law: Callable
  # (rng, mean, count) -> rows.
  rows: Callable
  # (eta, total, count) -> log density of eta given the sum of the rows.
  log_density: Callable
  # (mean, count) -> the mode of that density, and the curvature at the mode.
  peak: Callable


_FAMILIES = {
  'normal': _Family(
    lambda eta: tfd.Normal(eta, 1.0),
    lambda rng, mean, count: rng.normal(mean, 1.0, count),
    lambda eta, total, count: total * eta - 0.5 * count * eta**2,
    lambda mean, count: (mean, count),
  ),
  'logistic': _Family(
    lambda eta: tfd.Bernoulli(logits=eta),
    lambda rng, mean, count: rng.random(count) < mean,
    lambda eta, total, count: total * eta - count * np.logaddexp(0.0, eta),
    lambda mean, count: (
      scipy.special.logit(mean),
      count * mean * (1.0 - mean),
    ),
  ),
  'poisson': _Family(
    lambda eta: tfd.Poisson(log_rate=eta),
    lambda rng, mean, count: rng.poisson(mean, count),
    lambda eta, total, count: total * eta - count * np.exp(eta),
    lambda mean, count: (np.log(mean), count * mean),
  ),
  'gamma': _Family(
    lambda eta: tfd.Gamma(_SHAPE, log_rate=np.log(_SHAPE) - eta),
    lambda rng, mean, count: rng.gamma(_SHAPE, mean / _SHAPE, count),
    lambda eta, total, count: -_SHAPE * (count * eta + total * np.exp(-eta)),
    lambda mean, count: (np.log(mean), _SHAPE * count),
  ),
  'negative_binomial': _Family(
    lambda eta: tfd.NegativeBinomial(_SHAPE, logits=eta - np.log(_SHAPE)),
    lambda rng, mean, count: rng.negative_binomial(
      _SHAPE, _SHAPE / (_SHAPE + mean), count
    ),
    lambda eta, total, count: (
      total * eta - (total + count * _SHAPE) * np.log(_SHAPE + np.exp(eta))
    ),
    lambda mean, count: (
      np.log(mean),
      count * mean * _SHAPE / (_SHAPE + mean),
    ),
  ),
}


def exact_moments(family: str, total: float, count: int) -> tuple[float, float]:
  """Returns mean and deviation of eta under a flat prior.

  Args:
    total: Sum of the rows.
  """
  log_density = _FAMILIES[family].log_density
  center, curvature = _FAMILIES[family].peak(total / count, count)
  eta = center + np.linspace(-10.0, 10.0, 4001) / np.sqrt(curvature)
  weights = log_density(eta, total, count)
  weights -= log_density(np.float64(center), total, count)
  weights = np.exp(weights - weights.max())
  weights /= weights.sum()
  first = weights @ eta
  return first, np.sqrt(weights @ (eta - first) ** 2)


def _rounding(family, count, mean, computed_in):
  """Returns the record of one family, number of rows, mean and dtype."""
  rng = np.random.default_rng(0)
  y = _FAMILIES[family].rows(rng, mean, count).astype(np.float32)
  total = float(np.sum(y, dtype=np.float64))
  center, deviation = exact_moments(family, total, count)

  def log_prob(eta):
    return tf.reduce_sum(
      _FAMILIES[family].law(eta[:, None]).log_prob(y), axis=-1
    )

  posterior = tfpa.sample_posterior(
    log_prob,
    init=tf.TensorSpec([]),
    # With one seed, errors of these nearly normal posteriors would be alike.
    seed=zlib.crc32(repr((family, count, mean)).encode()) % 2**31,
    progress=False,
    dtype=tf.as_dtype(computed_in),
  )
  draws = posterior.unconstrained
  return posterior, dict(
    noise=posterior.rounding_noise,
    size=float(np.median(np.abs(posterior.trace['target_log_prob']))),
    deviation_over_exact=float(draws.std(ddof=1) / deviation),
    error_of_mean=float((draws.mean() - center) / deviation),
    ess=float(posterior.verdict.diagnosis.ess_moments[0]),
  )


def _seconds(model, asked):
  """Returns the record of one call with a time limit."""
  log_prob, size = _timed_models()[model]
  begin = time.monotonic()
  posterior = tfpa.sample_posterior(
    log_prob, init=tf.TensorSpec([size]), progress=False, max_seconds=asked
  )
  return posterior, dict(taken=time.monotonic() - begin)


def _timed_models():
  """Returns dict of name -> (log density, size)."""
  rng = np.random.default_rng(0)
  x = np.float32(rng.normal(size=(200_000, 6)))
  y = np.float32(rng.random(200_000) < scipy.special.expit(x @ np.ones(6)))

  def logistic(weights):
    logits = tf.linalg.matmul(weights, x, transpose_b=True)
    return tf.reduce_sum(tfd.Bernoulli(logits=logits).log_prob(y), axis=-1)

  def funnel(z):
    first = tfd.Normal(0.0, 3.0).log_prob(z[:, 0])
    others = tfd.Normal(0.0, tf.exp(0.5 * z[:, :1])).log_prob(z[:, 1:])
    return first + tf.reduce_sum(others, axis=-1)

  normal = lambda z: -0.5 * tf.reduce_sum(z**2, axis=-1)
  return dict(normal=(normal, 3), funnel=(funnel, 10), logistic=(logistic, 6))


def cases(settings: Sizes) -> dict[str, Callable]:
  """Returns all cases by name, functions without arguments."""
  positive = ('poisson', 'gamma', 'negative_binomial')
  means = {**dict.fromkeys(positive, (0.1, 10.0, 1e4))}
  means.update(normal=(0.1, 1e4), logistic=(0.1, 0.5))
  laws = [(family, mean) for family, of_it in means.items() for mean in of_it]
  arguments = {
    ('units', _units): itertools.product(
      range(settings.num_regressions), _DTYPES
    ),
    ('rounding', _rounding): [
      (family, num_rows, mean, dtype)
      for num_rows in settings.num_rows
      for family, mean in laws
      for dtype in _DTYPES
    ],
    ('seconds', _seconds): itertools.product(
      ('normal', 'funnel', 'logistic'), (1, 5, 20)
    ),
  }
  return {
    ' | '.join(map(str, (name, *values))): functools.partial(function, *values)
    for (name, function), rows in arguments.items()
    for values in rows
  }


def run(case: Callable, seed: int, work: Work) -> dict[str, Any]:
  """Returns the verdict, the cost and the errors of a call."""
  del seed, work  # Every case has its own seed.
  begin = time.process_time()
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    posterior, found = case()
  return dict(
    converged=posterior.converged,
    failed=posterior.failed,
    structure=posterior.choice,
    report=[str(stage) for stage in posterior.report],
    num_gradients=posterior.num_gradients,
    cpu_seconds=time.process_time() - begin,
    **found,
  )


STUDY = Study(cases, run, Sizes)
