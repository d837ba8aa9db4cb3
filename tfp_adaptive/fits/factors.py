"""Factors L of precisions P = L L^T for many rows, diagonal or for a path.

A path couples each coordinate t with t + 1. Its precision is a sum of positive
parts, where e_t are the unit vectors:

  P = diag(r) + sum_t w_t (e_t - s_t e_{t+1}) (e_t - s_t e_{t+1})^T,
  r, w >= 0,   s = +-1.

A recursion gives L, and loses no digits (see `linalg.markov_factor`):

  L[t, t] = sqrt(rho_t + w_t),   L[t + 1, t] = -s_t w_t / L[t, t],
  rho_1 = r_1,   rho_{t+1} = r_{t+1} + w_t rho_t / (rho_t + w_t).

r and s w are linear in the terms exp(b.u). Each factor has gradients with
respect to the terms.
"""

import numpy as np


def of_terms(natural, terms):
  """Returns the factors of P(u), a `Diagonal` or a `Path`, at terms [n, T]."""
  if natural.edge.shape[-1]:
    return Path(natural, terms)
  return Diagonal(natural, terms)


def before(rows):
  """Returns rows moved by one: the previous coordinate, 0 for the first."""
  found = np.zeros_like(rows)
  found[..., 1:] = rows[..., :-1]
  return found


def after(rows):
  """Returns rows moved by one: the next coordinate, 0 for the last."""
  found = np.zeros_like(rows)
  found[..., :-1] = rows[..., 1:]
  return found


class Diagonal:
  """L = diag(r)^1/2, whose `diagonal` is [n, d]."""

  def __init__(self, natural, terms):
    self._slack = natural.slack
    self.diagonal = np.sqrt(terms @ natural.slack)

  def solve(self, rows):
    """Returns L^-1 of rows, [n, d]."""
    return rows / self.diagonal

  def solve_adjoint(self, rows):
    """Returns L^-T of rows, [n, d]."""
    return rows / self.diagonal

  def multiply_adjoint(self, rows):
    """Returns L^T of rows, [n, d]."""
    return self.diagonal * rows

  def by_terms(self, pairs):
    """Returns the gradient of sum a^T L b - log |L| with respect to terms.

    The gradient is [n, T]. The sum is over pairs (a, b) of rows [n, d].
    """
    by_diagonal = sum(a * b for a, b in pairs) - 1.0 / self.diagonal
    return 0.5 * (by_diagonal / self.diagonal) @ self._slack.T


class Path:
  """The factor of a path's precision, with the methods of `Diagonal`.

  If terms have edges of both signs, the edges cancel in part. The weight that
  cancels, called spare, stays on the diagonal.
  """

  def __init__(self, natural, terms):
    self._slack, self._edge = natural.slack, natural.edge
    edge = terms @ self._edge
    self._weight, self._sign = np.abs(edge), np.sign(edge)
    spare = terms @ np.abs(self._edge) - self._weight
    self._has_spare = spare > 0.0
    spare = np.maximum(spare, 0.0)
    slack = terms @ self._slack + spare + before(spare)
    # Coordinates are the first axis, so that each step of the recursion for rho
    # reads a contiguous row.
    slack, weight = np.ascontiguousarray(slack.T), self._weight.T.copy()
    rest = slack.copy()
    for t in range(1, len(rest)):
      last = weight[t - 1]
      rest[t] += last * rest[t - 1] / (rest[t - 1] + last)
    self._rest = rest.T
    self.diagonal = np.sqrt(self._rest + self._weight)
    self._below = -self._sign * self._weight / self.diagonal

  def solve(self, rows):
    """Returns L^-1 of rows, [n, d]."""
    return _affine(-before(self._below) / self.diagonal, rows / self.diagonal)

  def solve_adjoint(self, rows):
    """Returns L^-T of rows, [n, d]."""
    turned = -self._below / self.diagonal, rows / self.diagonal
    return _affine(*(x[:, ::-1] for x in turned))[:, ::-1]

  def multiply_adjoint(self, rows):
    """Returns L^T of rows, [n, d]."""
    return self.diagonal * rows + self._below * after(rows)

  def by_terms(self, pairs):
    """Returns the gradient with respect to the terms, see `Diagonal`.

    The code differentiates the recursion in reverse mode: with respect to L, to
    rho from the last coordinate to the first, and to r, w and the spare weight.
    """
    by_diagonal = sum(a * b for a, b in pairs) - 1.0 / self.diagonal
    by_below = sum(after(a) * b for a, b in pairs)
    square = self._rest + self._weight
    by_square = by_diagonal - by_below * self._below / self.diagonal
    by_square *= 0.5 / self.diagonal
    decay = (self._weight / square) ** 2
    by_slack = _affine(decay[:, ::-1], by_square[:, ::-1])[:, ::-1]
    by_weight = by_square - by_below * self._sign / self.diagonal
    by_weight += after(by_slack) * (self._rest / square) ** 2
    by_spare = self._has_spare * (by_slack + after(by_slack))
    found = by_slack @ self._slack.T + by_spare @ np.abs(self._edge).T
    return found + ((by_weight - by_spare) * self._sign) @ self._edge.T


def _affine(slope, offset):
  """Returns x, [n, d], with x_t = slope_t x_{t-1} + offset_t."""
  slope = np.ascontiguousarray(slope.T)
  found = np.array(offset.T, order='C')
  for t in range(1, len(found)):
    found[t] += slope[t] * found[t - 1]
  return found.T
