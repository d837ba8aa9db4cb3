"""Gaussian process classification into ten digits, one field per class.

  x_k ~ N(0, C),  k = 0, ..., 9,  C = variance * exp(-|s - s'|^2 / (2 l^2))
  p(y_i = k | x) = exp x_ki / sum_j exp x_ji

The state is [10 n], the fields one after another. The likelihood couples the
ten values of an image, and the prior couples all values of a class.

References: Titsias and Papaspiliopoulos (2018), 5.4,
https://arxiv.org/abs/1610.09641; Williams and Barber (1998).
"""

from typing import Literal

import numpy as np
import tensorflow as tf
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.data import datasets
from experiments.targets import latent
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS

_NUM_CLASSES = 10


def multi_class_gp_target(covariance, labels, dtype='float32'):
  """Returns the posterior of one field per class given labels.

  Args:
    covariance: C, [n, n], of every field.
    labels: [n] of 0, ..., 9.
  """
  labels = np.asarray(labels)
  is_label = (labels == np.arange(_NUM_CLASSES)[:, None]).astype(dtype)

  def log_likelihood_fn(x):
    fields = tf.reshape(x, [*x.shape[:-1], _NUM_CLASSES, len(labels)])
    chosen = tf.reduce_sum(is_label * fields, axis=[-2, -1])
    norms = tf.reduce_logsumexp(fields, axis=-2)
    return chosen - tf.reduce_sum(norms, axis=-1)

  prior = tfpa.gaussian_priors.block(
    latent.spectral_prior(covariance, dtype), _NUM_CLASSES
  )
  return latent.latent_target('multi_class_gp', log_likelihood_fn, prior, dtype)


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
