"""Logistic regression: who has a disease of the heart.

  weights_j ~ N(0, 1),  labels_i ~ Bernoulli(logits = sum_j x_ij weights_j)

Data: Statlog's heart of the UCI repository, 270 rows of 13
standardized inputs and a constant 1, the last. A local copy of them is read
from the folder that TFP_ADAPTIVE_DATA_DIR names: see
experiments/framework/data.py.
"""

__all__ = ['SAME_AS', 'data']

SAME_AS = 'logistic_regression'


def data():
  """Returns inputs [270, 14], the bias last, and labels [270]."""
  # Only the environment of this project reads data, and it has the package.
  from experiments.data import datasets
  from experiments.targets.logistic_regression import design_matrix

  inputs, labels = datasets.load('heart')
  return dict(inputs=design_matrix(inputs), labels=labels)
