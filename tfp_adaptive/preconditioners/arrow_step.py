"""Natural gradient steps for B = [[U, G], [0, S]]; see `row_step`."""

from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.linalg import banded
from tfp_adaptive.preconditioners import markov_path
from tfp_adaptive.preconditioners import row_step


class Arrow(NamedTuple):
  """The entries of B."""

  diag: tf.Tensor  # b, [T].
  upper: tf.Tensor  # u, [T - 1].
  cross: tf.Tensor  # G, [T, k].
  corner: tf.Tensor  # S, triangular, [k, k].

  @property
  def bands(self):
    return self.diag, self.upper


def change(params, path, rest):
  """Returns dB as an `Arrow`; its row i is e_i times row i of B, plus g_i."""
  stretch, shear_upper, shear_cross = path
  rest_stretch, rest_shear = rest
  return Arrow(
    params.diag * stretch,
    params.upper * stretch[:-1] + shear_upper,
    params.cross * stretch[:, tf.newaxis] + shear_cross,
    params.corner * rest_stretch[:, tf.newaxis] + rest_shear,
  )


def path(params, tangent):
  """Returns (e, g_u, g_G) of the path's rows, each bounded; see `row_step`.

  Right of the diagonal, row i of B has entries for h_{i+1} and the globals s.
  V is the covariance of these coordinates. It has a known inverse, because
  h_{i+1} = M_{i+1} . s + noise of variance q_{i+1}. With tangents t_u and t_G,

    V^-1 (t_u, t_G) = (y, P t_G - M_{i+1} y),
    y = (t_u - M_{i+1} . t_G) / q_{i+1},   P = Cov(s)^-1.
  """
  variances = markov_path.variances(params.bands)[1:]
  mean = -banded.solve(params.bands, tf.transpose(params.cross))
  mean = tf.transpose(mean)[1:]
  residual = tangent.upper - tf.reduce_sum(mean * tangent.cross[:-1], axis=-1)
  neighbour = residual / variances
  whitened = tf.matmul(tangent.cross, params.corner, transpose_b=True)
  cross = tf.matmul(whitened, params.corner)
  cross -= tf.pad(mean * neighbour[:, tf.newaxis], [[0, 1], [0, 0]])
  stretch = (
    params.diag * tangent.diag
    + tf.pad(params.upper * tangent.upper, [[0, 1]])
    + tf.reduce_sum(params.cross * tangent.cross, axis=-1)
  )
  shear_square = 4.0 * (
    tf.pad(residual * neighbour, [[0, 1]]) + tf.reduce_sum(whitened**2, axis=-1)
  )
  shrink = row_step.row_shrink(stretch, shear_square)
  return (
    shrink * stretch,
    2.0 * shrink[:-1] * neighbour,
    2.0 * shrink[:, tf.newaxis] * cross,
  )


def corner(entries, tangent):
  """Returns (e, g) of the rows of S, each bounded; see `row_step`.

  The globals after i have precision S_R^T S_R, with S_R the block of S after i.
  """
  whitened = tf.matmul(tangent, entries, transpose_b=True)
  whitened = tf.linalg.set_diag(
    tf.linalg.band_part(whitened, 0, -1), tf.zeros_like(tangent[0])
  )
  stretch = tf.reduce_sum(entries * tangent, axis=-1)
  shrink = row_step.row_shrink(
    stretch, 4.0 * tf.reduce_sum(whitened**2, axis=-1)
  )
  return (
    shrink * stretch,
    2.0 * shrink[:, tf.newaxis] * tf.matmul(whitened, entries),
  )
