"""Factor of a Markov path with globals: C = B^-1 with B bordered bidiagonal."""

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import shown
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import banded
from tfp_adaptive.preconditioners import arrow_step
from tfp_adaptive.preconditioners import markov_path
from tfp_adaptive.preconditioners import row_step
from tfp_adaptive.preconditioners.arrow_step import Arrow
from tfp_adaptive.preconditioners.factor_operator import FactorOperator

_MOST_FUSED = 8


@shown.remembers_call
def arrow(num_globals, globals_first=False, init_scale=None, min_scale=0.0):
  """Builds the factor of a Markov path of T coordinates with k globals.

  Use it for state-space models, where neighbors on a latent path are coupled,
  and a few parameters (globals) are coupled to the whole path. It learns the
  covariances whose inverse B^T B is tridiagonal in the path and full elsewhere.
  It costs O(k d) in time and memory. In the order [path, globals],

    C = B^-1,   B = [[U, G], [0, S]],   U = diag(b) + superdiag(u),
    log |det C| = -sum log b_i - sum log S_jj,

  where S is upper triangular. Params are the tuple (b, u, G, S), and a tangent
  is their change. A move is a natural gradient step. It does not depend on the
  scale of the coordinates. It does not depend on a shear h + H s of the path h
  either, with the globals s and any matrix H.

  Args:
    num_globals: k, at least 1.
    globals_first: Whether the globals are the first k coordinates of the
      flattened state; by default they are the last.
    init_scale: First scale of all coordinates, in units of the state: a
      positive float or a function of the event size. By default the adaptation
      finds this scale.
    min_scale: Smallest 1 / b_i and 1 / S_jj after a step of an optimizer that
      works on raw params (`rmsprop`, `adam`). With `relative_gradient` both
      stay positive anyway.

  Returns:
    An `interfaces.Preconditioner`.

  Raises:
    ValueError: If `num_globals` is not a positive int, or not less than d.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(102))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob, 1000, preconditioner=tfpa.preconditioners.arrow(2)
    )
  """
  if not isinstance(num_globals, int) or num_globals < 1:
    raise ValueError(
      f'`num_globals` must be a positive int, but got {num_globals!r}. '
      'Without globals take `tfpa.preconditioners.tridiagonal()`.'
    )
  layout = _Layout(num_globals, globals_first)

  def project(params):
    params = Arrow(*params)
    corner = tf.linalg.band_part(params.corner, 0, -1)
    corner = tf.linalg.set_diag(
      corner, markov_path.clip_diagonal(tf.linalg.diag_part(corner), min_scale)
    )
    diag = markov_path.clip_diagonal(params.diag, min_scale)
    return diag, params.upper, params.cross, corner

  return interfaces.Preconditioner(
    name='arrow',
    init=layout.init,
    operator=layout.operator,
    outer=layout.outer,
    log_det_gradient=_log_det_gradient,
    slope=markov_path.slope,
    # A move gets no rows, so that the place of the globals does not matter.
    move=_Layout(num_globals, globals_first=False).move,
    rescale=lambda params, by: tuple(p / by for p in params),
    project=project,
    init_scale=init_scale,
  )


class _Layout:
  """The functions that depend on the place of the globals."""

  def __init__(self, num_globals, globals_first):
    self._num_globals = num_globals
    self._globals_first = globals_first

  def split(self, rows):
    """Returns the path [n, T] and the globals [n, k] of rows [n, d]."""
    k = self._num_globals
    if self._globals_first:
      return rows[:, k:], rows[:, :k]
    return rows[:, :-k], rows[:, -k:]

  def join(self, path, rest):
    parts = [rest, path] if self._globals_first else [path, rest]
    return tf.concat(parts, axis=-1)

  def init(self, event_size, dtype, scale):
    k = self._num_globals
    size = tf.get_static_value(event_size)
    if size is not None and size <= k:
      raise ValueError(
        f'`arrow(num_globals={k})` needs a state of more than {k} coordinates, '
        f'but got {size}. The path consists of the coordinates that are not '
        'globals.'
      )
    diag, upper = markov_path.initial(event_size - k, dtype, scale)
    corner = tf.eye(k, dtype=dtype) / tf.cast(scale, dtype)
    return diag, upper, tf.zeros([event_size - k, k], dtype), corner

  def operator(self, params):
    params = Arrow(*params)
    params = params._replace(corner=tf.linalg.band_part(params.corner, 0, -1))
    size = ps.shape(params.diag)[0] + self._num_globals
    solve = self.solver(params)
    return FactorOperator(
      size,
      params.diag.dtype,
      apply=solve,
      unapply=lambda rows, adjoint: self.multiply(params, rows, adjoint),
      log_abs_det=lambda: (
        -tf.reduce_sum(tf.math.log(params.diag))
        - tf.reduce_sum(tf.math.log(tf.linalg.diag_part(params.corner)))
      ),
      name='arrow',
    )

  def solver(self, params):
    """Returns (rows, adjoint) -> rows of C r or C^T r."""
    k = self._num_globals
    inverse = tf.linalg.triangular_solve(
      params.corner, tf.eye(k, dtype=params.corner.dtype), lower=False
    )

    def solve(rows, adjoint=False):
      path, rest = self.split(rows)
      if adjoint:
        path = banded.solve(params.bands, path, adjoint=True)
        rest = tf.matmul(rest - tf.matmul(path, params.cross), inverse)
      else:
        rest = tf.matmul(rest, inverse, transpose_b=True)
        path -= _spread(rest, params.cross)
        path = banded.solve(params.bands, path)
      return self.join(path, rest)

    return solve

  def multiply(self, params, rows, adjoint=False):
    """Returns B r for every row r, or B^T r."""
    path, rest = self.split(rows)
    moved = banded.multiply(params.bands, path, adjoint)
    if adjoint:
      return self.join(
        moved, tf.matmul(path, params.cross) + tf.matmul(rest, params.corner)
      )
    return self.join(
      moved + _spread(rest, params.cross),
      tf.matmul(rest, params.corner, transpose_b=True),
    )

  def outer(self, params, left, right, push):
    del params, right  # E = -(dB) C.
    left_path, left_rest = self.split(left)
    path, rest = self.split(push())
    diag, upper = banded.outer(left_path, path, 2)
    cross = tf.matmul(left_path, rest, transpose_a=True)
    corner = tf.matmul(left_rest, rest, transpose_a=True)
    return -diag, -upper, -cross, -tf.linalg.band_part(corner, 0, -1)

  def move(self, params, tangent):
    params = Arrow(*params)
    tangent = Arrow(*tangent)
    path = arrow_step.path(params, tangent)
    rest = arrow_step.corner(params.corner, tangent.corner)
    solve, change = self.solver(params), arrow_step.change(params, path, rest)
    shrink = row_step.global_shrink(
      lambda rows: self.multiply(change, solve(rows)),
      lambda rows: solve(
        self.multiply(change, rows, adjoint=True), adjoint=True
      ),
      ps.shape(params.diag)[0] + self._num_globals,
      params.diag.dtype,
    )
    path = [shrink * part for part in path]
    rest = [shrink * part for part in rest]
    # b <- b exp(e) is positive, and to first order b (1 + e).
    path[0], rest[0] = tf.math.expm1(path[0]), tf.math.expm1(rest[0])
    return tuple(
      p + c for p, c in zip(params, arrow_step.change(params, path, rest))
    )


def _log_det_gradient(params):
  params = Arrow(*params)
  return (
    -1.0 / params.diag,
    tf.zeros_like(params.upper),
    tf.zeros_like(params.cross),
    -tf.linalg.diag(1.0 / tf.linalg.diag_part(params.corner)),
  )


def _spread(rest, cross):
  """Returns G s for each row s. XLA fuses products with few globals."""
  num_globals = cross.shape[-1]
  if num_globals is None or num_globals > _MOST_FUSED:
    return tf.matmul(rest, cross, transpose_b=True)
  columns = tf.unstack(cross, axis=-1)
  return tf.add_n([rest[:, j : j + 1] * c for j, c in enumerate(columns)])
