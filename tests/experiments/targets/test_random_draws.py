"""Normals of a seed: their law, and one value however they are run."""

import numpy as np
import scipy.stats
import tensorflow as tf

from experiments.targets.random_draws import standard_normals


def test_draws_are_standard_normal():
  draws = standard_normals([50000], tf.constant([1, 2])).numpy()
  assert scipy.stats.kstest(draws, 'norm').pvalue > 1e-3
  # Power: a scale that is off by five per cent.
  assert scipy.stats.kstest(1.05 * draws, 'norm').pvalue < 1e-3


def test_compiled_draws_are_the_eager_ones_of_the_seed():
  def draw(seed):
    return standard_normals([3, 7], seed)

  compiled = tf.function(draw, jit_compile=True, autograph=False)
  first = draw(tf.constant([1, 2]))
  np.testing.assert_allclose(compiled(tf.constant([1, 2])), first, rtol=1e-10)
  assert not np.any(np.isclose(draw(tf.constant([1, 3])), first))
