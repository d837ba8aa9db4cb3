"""(A + A^T) / 2, where TensorFlow's own graph optimizer gets it wrong."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.linalg.symmetric import symmetric_part


def _in_a_loop(function, value):
  @tf.function(autograph=False)
  def run(value):
    return tf.while_loop(
      lambda i, x: i < 3, lambda i, x: (i + 1, function(x)), (0, value)
    )[1]

  return run(tf.constant(value)).numpy()


@pytest.mark.full
@pytest.mark.parametrize('shape', [(1, 1), (3, 1, 1), (2, 2), (3, 4, 4)])
def test_it_is_half_the_sum_in_a_loop_without_xla(shape):
  matrix = np.random.default_rng(0).normal(size=shape)
  expected = (matrix + np.swapaxes(matrix, -1, -2)) / 2
  np.testing.assert_allclose(symmetric_part(matrix), expected)
  np.testing.assert_allclose(_in_a_loop(symmetric_part, matrix), expected)
