"""Logistic regression: who has a disease of the heart.

  weights_j ~ N(0, 1),  labels_i ~ Bernoulli(logits = sum_j x_ij weights_j)

Data: Statlog's heart of the UCI repository, 270 rows of 13
standardized inputs and a constant 1, the last. A local copy of them is read
from the folder that TFP_ADAPTIVE_DATA_DIR names: see
experiments/framework/data.py.
"""

import numpy as np

__all__ = ['data', 'numpyro_model', 'pymc_model', 'tfp_model']


def data():
  """Returns inputs [270, 14], the bias last, and labels [270]."""
  # Only the environment of this project reads data, and it has the package.
  from experiments.framework import data as data_lib
  from experiments.targets.logistic_regression import design_matrix

  inputs, labels = data_lib.load('heart')
  return dict(inputs=design_matrix(inputs), labels=labels)


def tfp_model(inputs, labels):
  import tensorflow as tf
  import tensorflow_probability as tfp

  tfd = tfp.distributions
  transposed = np.float32(inputs.T)

  @tfd.JointDistributionCoroutine
  def model():
    weights = yield tfd.JointDistributionCoroutine.Root(
      tfd.Sample(tfd.Normal(0.0, 1.0), len(transposed), name='weights')
    )
    logits = tf.tensordot(weights, transposed, 1)
    yield tfd.Independent(tfd.Bernoulli(logits), 1, name='labels')

  return model.experimental_pin(labels=labels)


def numpyro_model(inputs, labels):
  import numpyro
  from numpyro import distributions as dist

  num_rows, num_columns = inputs.shape

  def model():
    with numpyro.plate('columns', num_columns):
      weights = numpyro.sample('weights', dist.Normal(0.0, 1.0))
    with numpyro.plate('rows', num_rows):
      numpyro.sample(
        'labels', dist.Bernoulli(logits=inputs @ weights), obs=labels
      )

  return model


def pymc_model(inputs, labels):
  import pymc as pm

  with pm.Model() as model:
    weights = pm.Normal('weights', 0.0, 1.0, shape=inputs.shape[1])
    pm.Bernoulli('labels', logit_p=inputs @ weights, observed=labels)
  return model
