"""Natural gradient steps for an upper triangular inverse factor B = C^-1.

N(0, (B^T B)^-1) has log density sum_i log b_ii - (b_i . x)^2 / 2, where b_i are
the rows of B. The Fisher information is therefore block diagonal by rows. Let R
be the columns right of the diagonal in which row i has entries b_R, and
V = Cov(x_R). For a tangent (t_b, t_R) in b_ii and b_R, a step has a stretch e
and a shear g:

  e = b_ii t_b + b_R . t_R,      g = 2 V^-1 t_R,
  b_i <- (1 + e) b_i + (0, g).

The relative change of C is -(dB) C, whose row i has length sqrt(e^2 + g^T V g).
Linear maps of the coordinates that keep the pattern of B, such as rescalings,
change neither steps nor lengths.
"""

import tensorflow as tf

_MAX_STRETCH = 0.5
_NUM_ITERATIONS = 3  # Power iterations, for a lower bound of the norm.


def row_shrink(stretch, shear_square):
  """Returns the factor that bounds a row's relative change by 1/2.

  `stretch` is e and `shear_square` is g^T V g of every row.
  """
  return _shrink(tf.sqrt(stretch**2 + shear_square))


def global_shrink(push, pull, event_size, dtype):
  """Returns the factor, at most 1, that bounds the spectral norm of E by 1/2.

  E is the relative change of C; `push` and `pull` map rows [1, d] by E and E^T.
  On a long path, the norm of E may be large even if every row of E is bounded.
  If E is not finite, the factor is 0.
  """
  # The start must not be orthogonal to the leading direction.
  row = tf.cast(1 + tf.range(event_size) % 7, dtype)[tf.newaxis]
  tiny = tf.constant(1e-30, dtype)

  def turn(count, row):
    return count + 1, pull(push(row / tf.maximum(tf.norm(row), tiny)))

  # The iterations are a loop, because unrolled solves are slow to compile.
  _, row = tf.while_loop(
    lambda count, _: count < _NUM_ITERATIONS,
    turn,
    (0, row),
    maximum_iterations=_NUM_ITERATIONS,
  )
  return _shrink(tf.sqrt(tf.norm(row)))


def _shrink(length):
  """Returns the factor that bounds a length by 1/2; 0 if it is not finite."""
  shrink = _MAX_STRETCH / tf.maximum(length, _MAX_STRETCH)
  return tf.where(tf.math.is_finite(length), shrink, 0.0)
