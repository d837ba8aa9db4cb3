"""An orthonormal basis of real fields on a torus, by real FFT.

With F = rfft2(x) / sqrt(n1 n2), the coordinates of a field x, [n1, n2], are an
array of the same shape. Its columns are, in this order,

  Re F - Im F     of column 0, and of column n2 / 2 where n2 is even
  sqrt(2) Re F    of the columns in between
  sqrt(2) Im F    of the columns in between

In a column of the first kind, every number of F also occurs as its conjugate.
The Hartley transform Re F - Im F has no such redundancy. The basis is
orthonormal and diagonalizes every stationary covariance on the torus. A field
in one dimension is the torus [1, n].
"""

import math

import tensorflow as tf

from tfp_adaptive.core.tfp_private import prefer_static as ps


def forward(x, shape):
  """Returns the coordinates U^T x of rows x, [..., n1 * n2]."""
  half = tf.signal.rfft2d(_with_event(x, shape))
  real, imag = tf.math.real(half), tf.math.imag(half)
  hartley, _ = _columns(real - imag, shape)
  _, real = _columns(real, shape)
  _, imag = _columns(imag, shape)
  unit = 1.0 / math.sqrt(shape[0] * shape[1])
  paired = unit * math.sqrt(2.0)
  columns = [unit * hartley, paired * real, paired * imag]
  return tf.reshape(tf.concat(columns, axis=-1), ps.shape(x))


def backward(s, shape):
  """Returns U s of rows s, [..., n1 * n2]: inverse and adjoint of `forward`."""
  num_paired = (shape[1] - 1) // 2
  hartley, real, imag = tf.split(
    _with_event(s, shape),
    [shape[1] - 2 * num_paired, num_paired, num_paired],
    axis=-1,
  )
  # F(-k) is the conjugate of F(k) in these columns.
  mirrored = tf.concat(
    [hartley[..., :1, :], tf.reverse(hartley[..., 1:, :], axis=[-2])], axis=-2
  )
  # This undoes the division in `forward`, because irfft2 divides by n1 n2.
  unit = math.sqrt(shape[0] * shape[1])
  paired = unit / math.sqrt(2.0)
  half = tf.complex(
    _join(0.5 * unit * (hartley + mirrored), paired * real),
    _join(0.5 * unit * (mirrored - hartley), paired * imag),
  )
  x = tf.signal.irfft2d(half, fft_length=list(shape))
  return tf.reshape(x, ps.shape(s))


def eigenvalues(lag_covariance):
  """Returns gamma, [..., n1 * n2], in the order of the coordinates.

  `lag_covariance` is the covariance of x[0, 0] and x[i, j], [..., n1, n2].
  """
  shape = tuple(lag_covariance.shape[-2:])
  spectrum = tf.math.real(tf.signal.rfft2d(lag_covariance))
  own, paired = _columns(spectrum, shape)
  gamma = tf.concat([own, paired, paired], axis=-1)
  return tf.reshape(
    gamma, ps.concat([ps.shape(gamma)[:-2], [shape[0] * shape[1]]], axis=0)
  )


def _with_event(rows, shape):
  return tf.reshape(rows, ps.concat([ps.shape(rows)[:-1], list(shape)], axis=0))


def _columns(half, shape):
  """Splits a half spectrum: columns 0 and n2 / 2, and the others."""
  num_paired = (shape[1] - 1) // 2
  own, paired = half[..., :1], half[..., 1 : 1 + num_paired]
  if shape[1] % 2 == 0:
    own = tf.concat([own, half[..., -1:]], axis=-1)
  return own, paired


def _join(own, paired):
  """Returns the half spectrum, the inverse of `_columns`."""
  if own.shape[-1] == 1:
    return tf.concat([own, paired], axis=-1)
  return tf.concat([own[..., :1], paired, own[..., 1:]], axis=-1)
