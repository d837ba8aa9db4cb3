"""Cholesky factor of a Markov path's precision, in sums of positive numbers.

  P = diag(r) + sum_t w_t (e_t - s_t e_{t+1})(e_t - s_t e_{t+1})^T,
  r, w >= 0 and s = +-1,

with unit vectors e_t, is L L^T with L[t, t] = sqrt(rho_t + w_t),
L[t + 1, t] = -s_t w_t / L[t, t] and

  rho_1 = r_1,   rho_{t+1} = r_{t+1} + w_t rho_t / (rho_t + w_t).

Nothing is subtracted, so that a path whose steps are far smaller than its
extent loses no digits. P is positive definite if r_1 and w are positive, or if
r is positive. The recursions are folds of associative rules, in depth O(log d).
A solve composes affine maps. The recursion of rho composes maps
rho -> (A rho + B) / (C rho + D), as 2 x 2 matrices without negative entries.
Each gradient is one affine fold.
"""

import functools

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import custom_gradient


def factor(slack, weight, sign):
  """Returns the diagonal L[t, t] and the subdiagonal L[t + 1, t], [n, d] each.

  The arguments r, w and s are [n, d]. The last w is zero, and so is the last
  entry of the subdiagonal. s is a constant without gradient.
  """
  return _factor(slack, weight, sign)


@custom_gradient.custom_gradient
def _factor(slack, weight, sign):
  rest = _rest(slack, weight)
  diagonal = tf.sqrt(rest + weight)
  below = -sign * weight / diagonal

  def gradient(of_diagonal, of_below):
    square = rest + weight
    of_square = 0.5 * (of_diagonal - of_below * below / diagonal) / diagonal
    # rho_{t+1} has the derivative (w / square)^2 in rho_t, and (rho / square)^2
    # in w_t, where square = rho_t + w_t.
    of_slack = _affine((weight / square) ** 2, of_square, is_reversed=True)
    of_weight = of_square - of_below * sign / diagonal
    of_weight += _next(of_slack) * (rest / square) ** 2
    return of_slack, of_weight, tf.zeros_like(sign)

  return (diagonal, below), gradient


def _rest(slack, weight):
  """Returns rho, [n, d]."""
  before = _moved(weight)
  # rho_t = ((r_t + w) rho + r_t w) / (rho + w), with w and rho of index t - 1.
  # The first map returns r_1 for every rho.
  is_first = tf.range(tf.shape(slack)[-1]) == 0
  zero, one = tf.zeros_like(slack), tf.ones_like(slack)
  entries = (
    tf.where(is_first, zero, slack + before),
    tf.where(is_first, slack, slack * before),
    tf.where(is_first, zero, one),
    tf.where(is_first, one, before),
  )
  _, top, _, bottom = tfp.math.scan_associative(_product, entries, axis=-1)
  return top / bottom


def solve(lower, rows):
  """Returns L^-1 v for rows v, [n, d]; `factor` returns `lower`."""
  return _solve(*lower, rows)


def solve_adjoint(lower, rows):
  """Returns L^-T v for rows v, [n, d]."""
  return _solve_adjoint(*lower, rows)


@custom_gradient.custom_gradient
def _solve(diagonal, below, rows):
  solved = _affine(-_moved(below) / diagonal, rows / diagonal)

  def gradient(upstream):
    of_rows = _solve_adjoint(diagonal, below, upstream)
    return -of_rows * solved, -_next(of_rows) * solved, of_rows

  return solved, gradient


@custom_gradient.custom_gradient
def _solve_adjoint(diagonal, below, rows):
  solved = _affine(-below / diagonal, rows / diagonal, is_reversed=True)

  def gradient(upstream):
    of_rows = _solve(diagonal, below, upstream)
    return -of_rows * solved, -of_rows * _next(solved), of_rows

  return solved, gradient


def _affine(slope, offset, is_reversed=False):
  """Returns x with x_t = slope_t x_{t-1} + offset_t; x_{t+1} if reversed."""
  turn = (lambda x: x[..., ::-1]) if is_reversed else lambda x: x
  _, solution = tfp.math.scan_associative(
    lambda first, second: (
      first[0] * second[0],
      second[0] * first[1] + second[1],
    ),
    (turn(slope), turn(offset)),
    axis=-1,
  )
  return turn(solution)


def _product(first, second):
  """Returns the matrix product second @ first, up to a positive factor."""
  a, b, c, d = first
  na, nb, nc, nd = second
  product = (na * a + nb * c, na * b + nb * d, nc * a + nd * c, nc * b + nd * d)
  largest = tf.stop_gradient(functools.reduce(tf.maximum, product))
  return tuple(entry / largest for entry in product)


def _moved(x):
  """Returns x_{t-1} at index t, and zero at the first index."""
  return tf.concat([tf.zeros_like(x[..., :1]), x[..., :-1]], axis=-1)


def _next(x):
  """Returns x_{t+1} at index t, and zero at the last index."""
  return tf.concat([x[..., 1:], tf.zeros_like(x[..., :1])], axis=-1)
