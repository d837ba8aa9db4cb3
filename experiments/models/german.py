"""Logistic regression: who is a good debtor.

  weights_j ~ N(0, 1),  labels_i ~ Bernoulli(logits = sum_j x_ij weights_j)

Data: Statlog's German credit of the UCI repository, 1000 rows of 24 numeric
standardized inputs and a constant 1 as the last. The rows are read from the
folder of data sets.
"""

from experiments.data import datasets
from experiments.models.logistic_regression import numpyro_model
from experiments.models.logistic_regression import pymc_model
from experiments.models.logistic_regression import tfp_model

__all__ = ['data', 'numpyro_model', 'pymc_model', 'tfp_model']


def data():
  """Returns inputs [1000, 25], the bias last, and labels [1000]."""
  inputs, labels = datasets.load('german')
  return dict(inputs=datasets.design_matrix(inputs), labels=labels)
