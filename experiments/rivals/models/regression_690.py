"""Logistic regression on inputs of several kinds.

  weights_j ~ N(0, 1),  labels_i ~ Bernoulli(logits = sum_j x_ij weights_j)

Data: 690 rows of 14 standardized inputs (four binary, four skewed, all with
factors in common) and a constant 1, the last; simulated, those of
experiments/studies/length_targets.py.
"""

import numpy as np

__all__ = ['data', 'numpyro_model', 'pymc_model', 'tfp_model']


def data():
  """Returns inputs [690, 15], the bias last, and labels [690]."""
  # Only the environment of this project reads data, and it has the package.
  from experiments.targets.logistic_regression import design_matrix

  random = np.random.default_rng(690)
  common = random.normal(size=(690, 3)) @ random.normal(size=(3, 14))
  inputs = common + random.normal(size=(690, 14))
  inputs[:, :4] = inputs[:, :4] > 0.5
  inputs[:, 4:8] = np.exp(0.7 * inputs[:, 4:8])
  inputs = design_matrix(inputs)
  weights = random.normal(size=15)
  weights *= np.append(random.uniform(size=14) < 0.6, 1.0)
  labels = random.uniform(size=690) < 1.0 / (1.0 + np.exp(-inputs @ weights))
  return dict(inputs=inputs, labels=labels.astype(np.int32))


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
