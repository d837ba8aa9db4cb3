"""Factor of a Markov path: C = B^-1 with B upper bidiagonal.

It is `banded` with p = 1 and a faster move in closed form.
"""

import tensorflow as tf

from tfp_adaptive.core import shown
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linalg import banded as banded_lib
from tfp_adaptive.preconditioners import markov_path
from tfp_adaptive.preconditioners import row_step
from tfp_adaptive.preconditioners.banded import banded


@shown.remembers_call
def tridiagonal(init_scale=None, min_scale=0.0):
  """Builds the factor of a Markov path, params (b, u) of sizes d and d - 1.

  It learns the scale of every coordinate and the coupling of neighbors, for
  exactly the covariances whose inverse B^T B is tridiagonal. It costs O(d) in
  time and memory. The order of the coordinates matters.

    C = B^-1,   B = diag(b) + superdiag(u),   log |det C| = -sum log b_i.

  A tangent is a change of (b, u). A move is a natural gradient step, with the
  variances v of C C^T from b_i^2 v_i = 1 + u_i^2 v_{i+1}.

  Args:
    init_scale: First scale of all coordinates, in units of the state: a
      positive float or a function of the event size. By default the adaptation
      finds this scale.
    min_scale: Smallest 1 / b_i, the scale of a coordinate given its next
      neighbor, after a step of an optimizer that works on raw params
      (`rmsprop`, `adam`). With `relative_gradient` b stays positive anyway.

  Returns:
    An `interfaces.Preconditioner`.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(100))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob, 1000, preconditioner=tfpa.preconditioners.tridiagonal()
    )
  """
  return banded(1, init_scale, min_scale)._replace(
    name='tridiagonal', init=markov_path.initial, move=_move
  )


def _move(params, tangent):
  diag, upper = params
  diag_tangent, upper_tangent = tangent
  # e = b t_b + u t_u and g = 2 t_u / v_{i+1}; see `row_step`.
  stretch = diag * diag_tangent + tf.pad(upper * upper_tangent, [[0, 1]])
  variances = markov_path.variances(params)[1:]
  shear = 2.0 * upper_tangent / variances
  shrink = row_step.row_shrink(stretch, tf.pad(shear**2 * variances, [[0, 1]]))
  stretch, shear = shrink * stretch, shrink[:-1] * shear
  change = (diag * stretch, upper * stretch[:-1] + shear)
  shrink = row_step.global_shrink(
    lambda rows: banded_lib.multiply(change, banded_lib.solve(params, rows)),
    lambda rows: banded_lib.solve(
      params, banded_lib.multiply(change, rows, adjoint=True), adjoint=True
    ),
    ps.shape(diag)[0],
    diag.dtype,
  )
  growth = tf.exp(shrink * stretch)
  return diag * growth, upper * growth[:-1] + shrink * shear
