"""Two posteriors that ordinary settings find hard, as joint distributions.

Logistic regression on features x_j that follow each other, over people i:

  x_i1 ~ N(0, 1),  x_ij ~ N(0.9 x_i,j-1, 1 - 0.9^2)
  weights_j ~ N(0, 1),  labels_i ~ Bernoulli(logits = sum_j x_ij weights_j)

Weights of neighbors are known as a sum and not apart, which no scale of one
weight mends. And eight schools, centered as one would write them:

  mean ~ N(0, 5^2),  spread ~ HalfCauchy(5)
  effect_j ~ N(mean, spread^2),  seen_j ~ N(effect_j, errors_j^2)

The smaller the spread, the narrower the effects: a funnel, which no matrix
fits. References: Rubin (1981), Estimation in parallel randomized experiments;
Gelman (2006), Prior distributions for variance parameters.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

__all__ = [
  'MODELS',
  'Model',
  'data_of_regression',
  'eight_schools',
  'exact_means_of_schools',
  'logistic_regression',
]

tfd = tfp.distributions
Root = tfd.JointDistributionCoroutine.Root

_NUM_PEOPLE = 1000
_NUM_FEATURES = 100
_CORRELATION = 0.9
_EFFECTS = np.float32([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
_ERRORS = np.float32([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def logistic_regression():
  """Returns the regression, labels pinned; the data are always the same."""
  features, labels = data_of_regression()

  def model():
    weights = yield Root(
      tfd.Sample(tfd.Normal(0.0, 1.0), _NUM_FEATURES, name='weights')
    )
    logits = tf.tensordot(weights, features.T, 1)
    yield tfd.Independent(tfd.Bernoulli(logits), 1, name='labels')

  return tfd.JointDistributionCoroutine(model).experimental_pin(labels=labels)


def data_of_regression():
  """Returns features [people, features] and labels [people], of one seed."""
  # Its streams are the same in every version of NumPy.
  random = np.random.RandomState(0)
  noise = random.normal(size=[_NUM_PEOPLE, _NUM_FEATURES])
  features = noise.copy()
  for j in range(1, _NUM_FEATURES):
    features[:, j] = (
      _CORRELATION * features[:, j - 1]
      + np.sqrt(1.0 - _CORRELATION**2) * noise[:, j]
    )
  logits = features @ random.normal(size=_NUM_FEATURES)
  labels = random.uniform(size=_NUM_PEOPLE) < 1.0 / (1.0 + np.exp(-logits))
  return np.float32(features), np.float32(labels)


def eight_schools():
  """Returns the hierarchy, with what was seen pinned."""

  def model():
    mean = yield Root(tfd.Normal(0.0, 5.0, name='mean'))
    spread = yield Root(tfd.HalfCauchy(0.0, 5.0, name='spread'))
    effect = yield tfd.Sample(tfd.Normal(mean, spread), 8, name='effect')
    yield tfd.Independent(tfd.Normal(effect, _ERRORS), 1, name='seen')

  return tfd.JointDistributionCoroutine(model).experimental_pin(seen=_EFFECTS)


def exact_means_of_schools():
  """Returns {name: posterior mean} of the hierarchy, by quadrature.

  Given the spread all else is normal:

    v_j = spread^2 + errors_j^2,  1/V = 1/5^2 + sum_j 1/v_j
    p(spread | seen) ~ p(spread) sqrt(V) prod_j N(seen_j; 0, v_j) exp(m^2 / 2V)

  with m = V sum_j seen_j / v_j the mean's own, and effects between the two.
  """
  seen, squared_errors = np.float64(_EFFECTS), np.float64(_ERRORS) ** 2
  log_spread = np.linspace(np.log(1e-6), np.log(1e5), 20_001)
  squared = np.exp(2.0 * log_spread)[:, np.newaxis]
  variances = squared + squared_errors
  precision = 1.0 / 25.0 + np.sum(1.0 / variances, axis=1)
  mean = np.sum(seen / variances, axis=1) / precision
  log_density = (
    log_spread  # Of the logarithm.
    - np.log1p(squared[:, 0] / 25.0)
    - 0.5 * np.sum(seen**2 / variances + np.log(variances), axis=1)
    + 0.5 * (mean**2 * precision - np.log(precision))
  )
  weights = np.exp(log_density - log_density.max())
  weights /= weights.sum()
  shares = squared / variances
  effects = shares * seen + (1.0 - shares) * mean[:, np.newaxis]
  return {
    'mean': weights @ mean,
    'spread': weights @ np.exp(log_spread),
    **{f'effect[{j}]': weights @ effects[:, j] for j in range(len(seen))},
  }


class Model(NamedTuple):
  """A posterior, and what is drawn of it.

  Attributes:
    make: () -> joint distribution with its data.
    traced: Name of the coordinate whose trace is drawn.
    beside: Name of the one that it is drawn against.
    scale: Of the axis of the first.
    exact_means: () -> {name: posterior mean}, those that are known.
  """

  make: Callable
  traced: str
  beside: str
  scale: str
  exact_means: Callable = dict


MODELS = {
  'regression': Model(
    logistic_regression, 'weights[0]', 'weights[1]', 'linear'
  ),
  'eight schools': Model(
    eight_schools, 'spread', 'effect[0]', 'log', exact_means_of_schools
  ),
}
