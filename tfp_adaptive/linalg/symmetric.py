"""The symmetric part of a matrix, of 1 x 1 in a loop without XLA too."""

import tensorflow as tf

__all__ = ['symmetric_part']


def symmetric_part(matrix):
  """Returns (A + A^T) / 2 of A, [..., d, d].

  Not as a sum of A and A^T: where d = 1 TensorFlow's graph optimizer (2.21)
  takes the two for one, and in a `tf.while_loop` returns an empty Tensor.
  """
  return 0.5 * matrix + 0.5 * tf.linalg.matrix_transpose(matrix)
