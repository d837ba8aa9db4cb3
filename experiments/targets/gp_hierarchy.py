"""Gaussian process classification with unknown amplitude and length scale.

  x ~ N(0, C),  C(s, s') = sigma^2 (exp(-|s - s'|^2 / (2 l^2)) + jitter I)
  theta = (log sigma, log l) ~ N(0, hyper_deviation^2 I)
  log p(y | x) = sum_i [y_i x_i - log(1 + e^{x_i})]

Inputs s are standardized. The target is hard, because n coordinates of the
field determine theta. Moves of theta at a fixed field are therefore tiny.

References: Titsias and Papaspiliopoulos (2018), 5.4 and supplement,
https://arxiv.org/abs/1610.09641.
"""

from typing import Literal

import numpy as np
import tensorflow as tf
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.data import datasets
from experiments.data.sources import BINARY
from experiments.targets import latent
from experiments.targets.base import Hierarchy
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS

_START_AMPLITUDE = 2.0


def prior_of(theta, half_squares, jitter):
  """Returns N(0, C) at theta = (log sigma, log l), [chains..., 2].

  Args:
    half_squares: [n, n], half the squared distances of the inputs.
    jitter: Number added to the diagonal of C, over sigma^2. Without jitter, C
      has no inverse.
  """
  amplitude, length = tf.split(tf.exp(theta)[..., tf.newaxis], 2, axis=-2)
  shape = tf.exp(-half_squares / length**2)
  nugget = jitter * tf.eye(len(half_squares), dtype=theta.dtype)
  return tfpa.gaussian_priors.cholesky(amplitude**2 * (shape + nugget))


def half_squares_of(inputs, dtype):
  """Returns half the squared distances of inputs [n, num_features]."""
  gaps = inputs[:, np.newaxis] - inputs
  return (0.5 * np.sum(gaps**2, axis=-1)).astype(dtype)


def first_theta(inputs):
  """Returns a theta of the size that suits the inputs, [2]."""
  length = latent.half_mean_square(inputs) ** 0.5
  return np.log([_START_AMPLITUDE, length])


def gp_hierarchy_target(
  name, inputs, labels, dtype='float64', jitter=1e-6, hyper_deviation=10.0
):
  """Returns the posterior of field and theta given binary labels.

  Args:
    inputs: [n, num_features], standardized.
    labels: [n] of zeros and ones.
    jitter: See `prior_of`.
    hyper_deviation: Deviation of the Gaussian prior of theta; a large one makes
      the prior flat.
  """
  labels = np.asarray(labels, dtype)
  num_rows = len(labels)
  half_squares = half_squares_of(inputs, dtype)

  def hyper_log_prob_fn(theta):
    return -0.5 * tf.reduce_sum(tf.square(theta / hyper_deviation), axis=-1)

  def log_likelihood_fn(x):
    return tf.reduce_sum(labels * x - tf.math.softplus(x), axis=-1)

  return Target(
    name=name,
    target_log_prob_fn=None,
    event_size=num_rows + 2,
    dtype=dtype,
    constrain=lambda states: {
      'amplitude': np.exp(np.asarray(states)[..., -2]),
      'length_scale': np.exp(np.asarray(states)[..., -1]),
    },
    suggested_start=np.append(np.zeros(num_rows), first_theta(inputs)),
    hierarchy=Hierarchy(
      log_likelihood_fn,
      lambda theta: prior_of(theta, half_squares, jitter),
      hyper_log_prob_fn,
      num_rows,
    ),
  )


@TARGETS.register('gp_hierarchy')
class GpHierarchy(TargetParameters):
  """Binary labels with a Gaussian process prior of unknown scales."""

  dataset: Literal[BINARY]  # type: ignore[valid-type]
  jitter: float = Field(1e-6, ge=0)
  hyper_deviation: float = Field(10.0, gt=0)

  def build(self, context):
    inputs, labels = datasets.load(self.dataset, context.data_dir)
    return gp_hierarchy_target(
      f'gp_hierarchy_{self.dataset}',
      datasets.standardized(inputs),
      labels,
      context.dtype,
      self.jitter,
      self.hyper_deviation,
    )
