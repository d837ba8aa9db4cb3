"""FisherMALA: the inverse of the mean square of gradient increments.

  s_k = sqrt(a_k) (g(y_k) - g(x_k)),   a_k = min(1, e^r_k),   k = 1, ..., K
  M <- (1 - u sum_k a_k) M + u sum_k s_k s_k^T,   C C^T = M^-1

K is the number of chains, u = gain / n, and n is n_0 plus the sum of all a_k so
far. The first factor counts as n_0 increments. With gain 1, n M is the plain
sum n_0 C_0^-T C_0^-1 + sum s s^T. A larger gain forgets: the weight of
increments before n' is then (n' / n)^gain.

Chains are pooled. The K increments of a step are rows S of one update:

  M' = (1 - u A) (M + S^T S),  A = sum_k a_k,  rows sqrt(u / (1 - u A)) s_k
  C' = (1 - u A)^-1/2 C F

F is the factor of `square_root.py` for S. The cost is O(K d^2), without a d x d
decomposition.

Source: Titsias (2023), Optimal preconditioning and Fisher adaptive Langevin
sampling, https://arxiv.org/abs/2305.14442, with K = 1, gain 1 and the scale by
the trace.
"""

import collections

import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers.baselines import square_root
from tfp_adaptive.core import short_steps
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linear import closed_form

# The first factor counts as this many increments for each dimension, but as at
# least this many steps. The first increments of a chain are dependent.
_PRIOR_INCREMENTS = 1.0
_PRIOR_STEPS = 10.0

# Constants of Titsias (2023), as arguments of `FisherAdaptation`.
_PAPER = dict(
  gain=1.0, regularization=10.0, max_shrinkage=None, normalize_trace=True
)

Statistics = collections.namedtuple(
  'Statistics', ['num_increments', 'log_scale']
)


def fisher_adaptive_langevin(
  target_log_prob_fn,
  num_adaptation_steps,
  *,
  preconditioner=None,
  target_accept_prob=0.574,
  step_size=1.0,
  short_step_share=None,
  has_paper_constants=False,
):
  """Builds a MALA with the inverse Fisher information (FisherMALA).

  Its covariance is the inverse of the mean square of the gradient's increments
  between a state and its proposal. `FisherAdaptation` can also wrap other
  proposals that use gradients.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: A `tfpa.preconditioners.cholesky()`, which gives the start.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: First step size, which the adaptation moves.
    short_step_share: See `tfpa.gradient_adaptive_langevin`.
    has_paper_constants: Whether no increment is forgotten, the regularization
      is 10 and the trace fixes the scale. By default, increments and the first
      factor are forgotten.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    ValueError: If an argument is not allowed.
  """
  if preconditioner is None:
    preconditioner = tfpa.preconditioners.cholesky()
  proposal = tfpa.proposals.UncalibratedPreconditionedLangevin(
    target_log_prob_fn, preconditioner, step_size
  )
  square = proposal.copy(preconditioner=square_root.as_square(preconditioner))
  return FisherAdaptation(
    short_steps.around(
      tfpa.MetropolisHastings(square), num_adaptation_steps, short_step_share
    ),
    num_adaptation_steps,
    target_accept_prob,
    **(_PAPER if has_paper_constants else {}),
  )


class FisherAdaptation(closed_form.ClosedFormAdaptation):
  """Learns a dense scale factor from increments of the gradient.

  For a Gaussian N(m, S), increments have covariance proportional to S^-1 once
  moves are as long as the target is wide. The start does not matter. The
  adaptation needs no criterion, and no gradients besides those of the step. The
  factor is a square matrix that is not triangular. Unlike the generalized speed
  measure, this adaptation learns little from a rejected proposal.

  Results are `linear.closed_form.ClosedFormAdaptationResults`.
  """

  def __init__(
    self,
    inner_kernel,
    num_adaptation_steps,
    target_accept_prob=0.574,
    gain=3.0,
    regularization=None,
    max_shrinkage=2.0,
    normalize_trace=False,
    name=None,
  ):
    """Builds the wrapper; no Tensor is created here.

    Args:
      inner_kernel: `tfpa.MetropolisHastings` around a proposal that uses
        gradients and has a preconditioner of `square_root.as_square`.
      num_adaptation_steps: Steps that adapt, a non-negative int.
      target_accept_prob: Wanted mean acceptance, in (0, 1).
      gain: How fast the past is forgotten, at least 1. With 1, never.
      regularization: lambda, in units of the squared gradient: M starts as
        lambda times the identity. With `None`, M starts as one increment for
        each dimension, with the precision of the first factor.
      max_shrinkage: Largest factor by which the increment of one chain shrinks
        a direction in one step; `None` for no bound.
      normalize_trace: Whether the trace of C C^T fixes the scale, as in the
        paper. Otherwise the gradients give the scale of M.
      name: Prefix of op names.

    Raises:
      ValueError: If an argument is not allowed.
    """
    super().__init__(
      inner_kernel,
      num_adaptation_steps,
      target_accept_prob,
      gain=gain,
      regularization=regularization,
      max_shrinkage=max_shrinkage,
      normalize_trace=normalize_trace,
      name=name,
    )
    # A kernel that never adapts may have any structure.
    if num_adaptation_steps and self.preconditioner.name != square_root.NAME:
      raise ValueError(
        'Fisher adaptation learns a square factor, but got '
        f'`{self.preconditioner.name}`. Write '
        '`square_root.as_square(tfpa.preconditioners.cholesky())`.'
      )

  def scalars_at(self, results):
    # The determinant of a square matrix is expensive, so it is stored.
    log_scale = results.statistics.log_scale
    return super().scalars_at(results) | dict(log_scale=log_scale)

  @property
  def adapting_cost(self):
    """Cost of two products, F = S C and C F^T."""
    return tfpa.interfaces.Cost(matrix_product=2)

  def bootstrap_results(self, init_state):
    """Starts like the base class, with the log scale by a decomposition."""
    results = super().bootstrap_results(init_state)
    params = tfp_private.get_innermost(results, 'preconditioner_params')
    event_size = tf.cast(ps.shape(params)[-1], params.dtype)
    log_det = self.preconditioner.operator(params).log_abs_determinant()
    return results._replace(
      statistics=results.statistics._replace(log_scale=log_det / event_size)
    )

  def _start(self, params, state, inner):
    """Returns n_0, and a log scale for `bootstrap_results` to fill in."""
    del state
    ratio = self._mh_results(inner).log_accept_ratio
    event_size = tf.cast(ps.shape(params)[-1], params.dtype)
    regularization = self._parameters['regularization']
    if regularization is None:
      num_chains = tf.cast(ps.size(ratio), params.dtype)
      count = tf.maximum(
        _PRIOR_INCREMENTS * event_size, _PRIOR_STEPS * num_chains
      )
    else:
      count = regularization * _trace(params) / event_size
    return Statistics(
      num_increments=tf.cast(self._parameters['gain'] * count, params.dtype),
      log_scale=tf.zeros([], params.dtype),
    )

  def _rescale(self, start, statistics, by):
    return start._replace(log_scale=statistics.log_scale + tf.math.log(by))

  def _learn(self, params, statistics, gradients, next_state, inner):
    """Moves C by the increments of one step."""
    del next_state, inner
    event_size = tf.cast(ps.shape(params)[-1], params.dtype)
    accept = tf.exp(tf.minimum(gradients.log_accept_ratio, 0.0))
    total = tf.reduce_sum(accept)
    count = statistics.num_increments + total
    weight = self._parameters['gain'] / count
    kept = 1.0 - weight * total
    increments = gradients.proposed - gradients.current
    rows = tf.sqrt(weight / kept * accept)[:, tf.newaxis] * increments
    root, change = square_root.contract(
      params, rows, self._parameters['max_shrinkage']
    )
    root *= tf.math.rsqrt(kept)
    change -= 0.5 * event_size * tf.math.log(kept)
    # In float32, huge increments may have no Cholesky factor.
    is_good = tf.math.is_finite(change)
    root = tf.where(is_good, root, params)
    factor = tf.ones([], params.dtype)
    if self._parameters['normalize_trace']:
      factor = tf.sqrt(_trace(params) / _trace(root))
    return (
      root,
      Statistics(
        num_increments=tf.where(is_good, count, statistics.num_increments),
        log_scale=statistics.log_scale
        + tf.where(is_good, change, 0.0) / event_size,
      ),
      factor,
    )


def _trace(root):
  return tf.reduce_sum(root**2)
