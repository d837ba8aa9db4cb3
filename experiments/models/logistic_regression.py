"""Logistic regression on features whose neighbors are correlated.

  x_i1 ~ N(0, 1),  x_ij ~ N(0.9 x_i,j-1, 1 - 0.9^2)
  weights_j ~ N(0, 1),  labels_i ~ Bernoulli(logits = sum_j x_ij weights_j)

The sum of the weights of neighbors is known better than each weight. Data: 1000
rows of 100 features, simulated from the model at a fixed seed.
"""

import numpy as np

_NUM_ROWS, _NUM_FEATURES, _CORRELATION = 1000, 100, 0.9


def data():
  """Returns inputs [1000, 100] and labels [1000]."""
  # `RandomState` has the same streams in every version of NumPy.
  random = np.random.RandomState(0)
  noise = random.normal(size=[_NUM_ROWS, _NUM_FEATURES])
  inputs = noise.copy()
  for j in range(1, _NUM_FEATURES):
    inputs[:, j] = (
      _CORRELATION * inputs[:, j - 1]
      + np.sqrt(1.0 - _CORRELATION**2) * noise[:, j]
    )
  logits = inputs @ random.normal(size=_NUM_FEATURES)
  labels = random.uniform(size=_NUM_ROWS) < 1.0 / (1.0 + np.exp(-logits))
  # Inputs are rounded to float32, so that all libraries have the same data.
  inputs = np.float64(np.float32(inputs))
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
