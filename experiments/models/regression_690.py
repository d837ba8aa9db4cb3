"""Logistic regression on inputs of several kinds.

  weights_j ~ N(0, 1),  labels_i ~ Bernoulli(logits = sum_j x_ij weights_j)

Data: 690 rows of 14 standardized inputs (four binary, four skewed, all with
common factors) and a constant 1 as the last, simulated at a fixed seed.
"""

import numpy as np

from experiments.data import datasets
from experiments.models.logistic_regression import numpyro_model
from experiments.models.logistic_regression import pymc_model
from experiments.models.logistic_regression import tfp_model

__all__ = ['data', 'numpyro_model', 'pymc_model', 'tfp_model']


def data():
  """Returns inputs [690, 15], the bias last, and labels [690]."""
  random = np.random.default_rng(690)
  common = random.normal(size=(690, 3)) @ random.normal(size=(3, 14))
  inputs = common + random.normal(size=(690, 14))
  inputs[:, :4] = inputs[:, :4] > 0.5
  inputs[:, 4:8] = np.exp(0.7 * inputs[:, 4:8])
  inputs = datasets.design_matrix(inputs)
  weights = random.normal(size=15)
  weights *= np.append(random.uniform(size=14) < 0.6, 1.0)
  labels = random.uniform(size=690) < 1.0 / (1.0 + np.exp(-inputs @ weights))
  return dict(inputs=inputs, labels=labels.astype(np.int32))
