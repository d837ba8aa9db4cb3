"""The path of the study has the covariance that its starts are drawn from."""

import numpy as np
import tensorflow as tf

from experiments.studies import fisher_start


def test_the_path_is_the_gaussian_of_its_covariance():
  size, condition = 30, 1e4
  covariance = fisher_start._path(size, condition)
  x = np.random.default_rng(0).normal(size=[3, size])
  expected = -0.5 * np.sum(x * np.linalg.solve(covariance, x.T).T, axis=-1)
  found = fisher_start._path_log_prob(condition, tf.constant(x))
  np.testing.assert_allclose(found, expected, rtol=1e-10)
  # Power: a path of another condition number is far from it.
  other = fisher_start._path_log_prob(0.9 * condition, tf.constant(x))
  assert np.all(np.abs(other - expected) > 1e-3 * np.abs(expected))
