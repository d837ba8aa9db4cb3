"""`sample_posterior` on a GPU or without one (`--device`), on three models.

Each is sampled with all defaults, without TF32. Means and their standard errors
are kept, so that runs on two devices can be compared.
"""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from experiments.models import eight_schools_non_centered
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.samplers import on_models

__all__ = ['STUDY']

tfd = tfp.distributions
Root = tfd.JointDistributionCoroutine.Root


def _gaussian_process(num_points=500):
  """Returns a regression by a Gaussian process that is integrated out."""
  random = np.random.RandomState(1)
  inputs = random.uniform(-2.0, 2.0, size=(num_points, 2)).astype(np.float32)
  curve = np.sin(2.0 * inputs[:, 0]) + 0.4 * inputs[:, 1] ** 2
  seen = curve + 0.3 * random.normal(size=num_points)
  kernels = tfp.math.psd_kernels

  @tfd.JointDistributionCoroutine
  def model():
    scale = yield Root(tfd.Sample(tfd.LogNormal(0.0, 1.0), 2, name='scale'))
    amplitude = yield Root(tfd.HalfNormal(2.0, name='amplitude'))
    noise = yield Root(tfd.LogNormal(-1.0, 0.7, name='noise'))
    kernel = kernels.FeatureScaled(
      kernels.ExponentiatedQuadratic(amplitude), scale
    )
    variance = tf.square(noise)[..., tf.newaxis, tf.newaxis] + 1e-4
    covariance = kernel.matrix(inputs, inputs) + variance * tf.eye(num_points)
    yield tfd.MultivariateNormalTriL(
      scale_tril=tf.linalg.cholesky(covariance), name='seen'
    )

  return model.experimental_pin(seen=np.float32(seen))


def _groups(num_groups=500, num_rows=200):
  """Returns counts with a level for each group."""
  random = np.random.RandomState(2)
  levels = 1.0 + 0.5 * random.normal(size=num_groups)
  effort = random.normal(size=(num_groups, num_rows)).astype(np.float32)
  counts = random.poisson(np.exp(levels[:, np.newaxis] + 0.3 * effort))

  @tfd.JointDistributionCoroutine
  def model():
    mean = yield Root(tfd.Normal(0.0, 2.0, name='mean'))
    spread = yield Root(tfd.HalfNormal(1.0, name='spread'))
    slope = yield Root(tfd.Normal(0.0, 1.0, name='slope'))
    level = yield tfd.Sample(tfd.Normal(0.0, 1.0), num_groups, name='level')
    level = mean[..., tf.newaxis] + spread[..., tf.newaxis] * level
    log_rate = level[..., tf.newaxis] + (
      slope[..., tf.newaxis, tf.newaxis] * effort
    )
    yield tfd.Independent(tfd.Poisson(log_rate=log_rate), 2, name='counts')

  return model.experimental_pin(counts=np.float32(counts))


def _schools():
  """Returns the small model."""
  module = eight_schools_non_centered
  return module.tfp_model(**module.data())


# Name -> function that returns a joint distribution with its data.
_MODELS = {
  'eight schools, non-centered': _schools,
  'Gaussian process, 500 points': _gaussian_process,
  'counts of 500 groups, 100 000 rows': _groups,
}


def _run(build, seed: int, work: Work):
  """Returns the record of a model on the device that is there."""
  tf.config.experimental.enable_tensor_float_32_execution(False)
  outcome = on_models.run(on_models.OURS, build, seed, work.progress)
  gpus = tf.config.list_physical_devices('GPU')
  about = tf.config.experimental.get_device_details(gpus[0]) if gpus else {}
  device = about.get('device_name', 'CPU')
  return {**on_models.record(outcome), 'device': device}


STUDY = Study(lambda settings: _MODELS, _run, process='cell')
