"""Bayesian logistic regression on a named data set.

  log pi(w) = sum_i [y_i s_i - log(1 + e^{s_i})] - |w|^2 / 2,  s_i = w . x_i

Inputs are standardized, and a constant 1 is the last input, as in the papers.
"""

from typing import Literal

import numpy as np
import tensorflow as tf

from experiments.data import datasets
from experiments.data.sources import BINARY
from experiments.targets import jax_density
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters
from experiments.targets.registry import TARGETS


def logistic_regression_target(name, inputs, labels, dtype):
  """Returns the posterior of the weights under a N(0, I) prior.

  Args:
    inputs: [num_rows, event_size] array with its bias column.
    labels: [num_rows] array of zeros and ones.
  """
  transposed = np.ascontiguousarray(np.asarray(inputs).T, dtype=dtype)
  labels = np.asarray(labels, dtype)

  def target_log_prob_fn(weights):
    logits = tf.tensordot(weights, transposed, 1)
    log_likelihood = tf.reduce_sum(
      labels * logits - tf.math.softplus(logits), axis=-1
    )
    return log_likelihood - 0.5 * tf.reduce_sum(tf.square(weights), axis=-1)

  def sample_prior(num_chains, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num_chains, len(transposed))).astype(dtype)

  return Target(
    name=name,
    target_log_prob_fn=target_log_prob_fn,
    event_size=len(transposed),
    dtype=dtype,
    sample_prior=sample_prior,
    jax_log_prob_fn=jax_density.logistic_regression(transposed, labels),
  )


@TARGETS.register('logistic_regression')
class LogisticRegression(TargetParameters):
  """N(0, I) weights on a named data set, bias last."""

  dataset: Literal[BINARY]  # type: ignore[valid-type]
  standardize: bool = True

  def build(self, context):
    inputs, labels = datasets.load(self.dataset, context.data_dir)
    return logistic_regression_target(
      f'logistic_regression_{self.dataset}',
      datasets.design_matrix(inputs, self.standardize),
      labels,
      context.dtype,
    )
