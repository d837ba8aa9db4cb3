"""The symmetric part of a matrix, also of 1 x 1 in a loop without XLA."""

import tensorflow as tf


def symmetric_part(matrix):
  """Returns (A + A^T) / 2 of A, [..., d, d].

  A and A^T are not added directly, because TensorFlow's graph optimizer (2.21)
  then merges A and A^T if d = 1, and a `tf.while_loop` returns an empty Tensor.
  """
  return 0.5 * matrix + 0.5 * tf.linalg.matrix_transpose(matrix)
