"""Gaussian process classification into ten digits, one field per class.

  x_k ~ N(0, C),  k = 0, ..., 9,  C = variance * exp(-|s - s'|^2 / (2 l^2))
  p(y_i = k | x) = exp x_ki / sum_j exp x_ji

The state is [10 n], the fields one after another. The likelihood couples the
ten values of an image, and the prior couples all values of a class. With
unknown hyperparameters, the state is [10 n + 20]. After the fields it has
(log sigma_k, log l_k) of one class after another, each with its own covariance,
as in `gp_hierarchy`.

References: Titsias and Papaspiliopoulos (2018), 5.4,
https://arxiv.org/abs/1610.09641; Williams and Barber (1998).
"""

from typing import Literal

import numpy as np
import tensorflow as tf
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.data import datasets
from experiments.targets import gp_hierarchy
from experiments.targets import latent
from experiments.targets.base import Hierarchy
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS

_NUM_CLASSES = 10
# Deviation of the Gaussian prior of theta, which makes the prior flat.
_HYPER_DEVIATION = 10.0


def multi_class_gp_target(covariance, labels, dtype='float32'):
  """Returns the posterior of one field per class given labels.

  Args:
    covariance: C, [n, n], of every field.
    labels: [n] of 0, ..., 9.
  """
  prior = tfpa.gaussian_priors.block(
    latent.spectral_prior(covariance, dtype), _NUM_CLASSES
  )
  log_likelihood_fn = _softmax_log_likelihood(labels, dtype)
  return latent.latent_target('multi_class_gp', log_likelihood_fn, prior, dtype)


def multi_class_hierarchy_target(inputs, labels, dtype='float64', jitter=1e-6):
  """Returns the posterior of one field per class, with unknown scales.

  Args:
    inputs: [n, num_features].
    labels: [n] of 0, ..., 9.
    jitter: See `gp_hierarchy.prior_of`.
  """
  half_squares = gp_hierarchy.half_squares_of(inputs, dtype)
  num_latent = _NUM_CLASSES * len(labels)

  def prior_fn(theta):
    pairs = tf.split(theta, _NUM_CLASSES, axis=-1)
    return tfpa.gaussian_priors.block(
      [gp_hierarchy.prior_of(pair, half_squares, jitter) for pair in pairs]
    )

  def hyper_log_prob_fn(theta):
    return -0.5 * tf.reduce_sum(tf.square(theta / _HYPER_DEVIATION), axis=-1)

  theta = np.tile(gp_hierarchy.first_theta(inputs), _NUM_CLASSES)
  return Target(
    name='multi_class_gp_hierarchy',
    target_log_prob_fn=None,
    event_size=num_latent + len(theta),
    dtype=dtype,
    suggested_start=np.append(np.zeros(num_latent), theta),
    hierarchy=Hierarchy(
      _softmax_log_likelihood(labels, dtype),
      prior_fn,
      hyper_log_prob_fn,
      num_latent,
    ),
  )


def _softmax_log_likelihood(labels, dtype):
  """Returns the function log p(labels | fields)."""
  labels = np.asarray(labels)
  is_label = (labels == np.arange(_NUM_CLASSES)[:, None]).astype(dtype)

  def log_likelihood_fn(x):
    fields = tf.reshape(x, [*x.shape[:-1], _NUM_CLASSES, len(labels)])
    chosen = tf.reduce_sum(is_label * fields, axis=[-2, -1])
    norms = tf.reduce_logsumexp(fields, axis=-2)
    return chosen - tf.reduce_sum(norms, axis=-1)

  return log_likelihood_fn


@TARGETS.register('multi_class_gp')
class MultiClassGp(TargetParameters):
  """Ten digits with ten Gaussian processes and a softmax likelihood."""

  dataset: Literal['digits', 'mnist'] = 'digits'
  num_rows: int = Field(1000, ge=10)
  variance: float = Field(5.83, gt=0)
  squared_length_scale: float | None = Field(
    None, gt=0, description='None: half the mean squared distance of images'
  )

  def build(self, context):
    images, digits = datasets.load_digits(
      self.dataset, self.num_rows, context.data_dir
    )
    length = self.squared_length_scale or latent.half_mean_square(images)
    covariance = latent.squared_exponential(images, self.variance, length)
    return multi_class_gp_target(covariance, digits, context.dtype)


@TARGETS.register('multi_class_gp_hierarchy')
class MultiClassGpHierarchy(TargetParameters):
  """Ten digits with ten Gaussian processes of unknown scales."""

  dataset: Literal['digits', 'mnist'] = 'digits'
  num_rows: int = Field(1000, ge=10)

  def build(self, context):
    images, digits = datasets.load_digits(
      self.dataset, self.num_rows, context.data_dir
    )
    return multi_class_hierarchy_target(images, digits, context.dtype)
