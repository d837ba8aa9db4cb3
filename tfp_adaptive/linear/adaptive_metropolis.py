"""Adaptive Metropolis: fits the proposal to the moments of the chain.

    mu <- mu + a (x - mu)
    C C^T <- C C^T + b ( (x - mu) (x - mu)^T - C C^T )
    s  <- s (1 + c (accept - target) / target),   y = x + sqrt(s) C e

mu is the running mean of x, s the square of the step size, and a, b and c are
rates. The factor moves without a decomposition: C <- C (I + b / 2 (w w^T - I))
with w = C^-1 (x - mu). The change is projected onto the structure of C.

Sources: Haario, Saksman and Tamminen (2001), An adaptive Metropolis algorithm;
for the move, Andrieu and Thoms (2008), A tutorial on adaptive MCMC, section
5.1.1.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import run_warnings
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import stack
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.interfaces import types
from tfp_adaptive.linear import checks
from tfp_adaptive.linear import scale_search
from tfp_adaptive.linear import schedule
from tfp_adaptive.linear.random_walk import UncalibratedPreconditionedRandomWalk
from tfp_adaptive.preconditioners.per_part import as_preconditioner

_MEAN_RATE = 0.01  # a, if `shape_rate` is given; else a = b.
_SCALE_RATE = 0.01  # c.


@arguments.by_keyword('adaptive_metropolis(target_log_prob_fn, 500)')
def adaptive_metropolis(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  preconditioner: types.Preconditioners | None = None,
  target_accept_prob: float = 0.25,
  step_size: float = 1.0,
  target_is_stochastic: bool = False,
  shape_rate: float | None = None,
  experimental_shard_axis_names: types.Structure = None,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds adaptive Metropolis (AM), a random walk with the chain's covariance.

  It calls the target once per step and never its gradient.

  Args:
    target_log_prob_fn: Log density up to a constant; returns [chains...]. A
      stochastic target is called with `seed` and returns the log of an unbiased
      estimate.
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: Structure of the scale factor, or a list with one for each
      part of the state; dense by default.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: First step size, which the adaptation changes.
    target_is_stochastic: Whether the target is a random estimate, drawn from
      its `seed` ([2] int32). Accepted estimates are kept, so that the chain is
      exact for the density that is estimated.
    shape_rate: First weight of a new state in the covariance, a positive float.
      At step t the weight is shape_rate / (1 + 4 t / num_adaptation_steps). By
      default it falls as 1 / t, so that all states so far count.
    experimental_shard_axis_names: As in TFP; the same for all parts.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target or a part has the wrong type.
    ValueError: If a number is out of its range, or parts do not go together.

  References:
    Haario, Saksman and Tamminen (2001); Andrieu and Thoms (2008), 5.1.1;
    stochastic targets: Andrieu and Roberts (2009).

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.adaptive_metropolis(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  proposal = UncalibratedPreconditionedRandomWalk(
    target_log_prob_fn,
    as_preconditioner(preconditioner),
    step_size,
    target_is_stochastic,
    experimental_shard_axis_names=experimental_shard_axis_names,
    name=name,
  )
  return MomentBasedAdaptation(
    MetropolisHastings(proposal),
    num_adaptation_steps,
    target_accept_prob,
    shape_rate,
  )


class MomentBasedAdaptationResults(NamedTuple):
  """Results of `MomentBasedAdaptation`."""

  # Results of the inner kernel. Their innermost `preconditioner_params` are
  # the learned shape, and `step_size` is the learned scale sqrt(s).
  inner_results: Any
  mean: tf.Tensor  # Running mean mu, [event_size].
  scale_search: scale_search.ScaleSearch
  step: tf.Tensor  # Steps taken, [] int32.
  # Mean of min(1, exp(r)) in the last adapting step, [].
  mean_accept_prob: tf.Tensor


class MomentBasedAdaptation(adaptation_base.AdaptationWrapper):
  """Learns the scale factor of a random walk from the states it visits.

  It learns nothing from rejected moves, so it starts slowly if the first
  proposal is poor. The updates of several chains are averaged. The wrapper sets
  `step_size`, so put no step-size adaptation around it.
  """

  def __init__(
    self,
    inner_kernel,
    num_adaptation_steps,
    target_accept_prob=0.25,
    shape_rate=None,
    name=None,
  ):
    """Builds the wrapper; no Tensor is created here.

    Args:
      inner_kernel: `tfpa.MetropolisHastings` around a proposal.
      num_adaptation_steps: Steps that adapt, a non-negative int.
      target_accept_prob: Wanted mean acceptance, in (0, 1).
      shape_rate: See `adaptive_metropolis`.
      name: Prefix of op names.
    """
    super().__init__(inner_kernel, num_adaptation_steps)
    arguments.check_accept_prob(target_accept_prob)
    if shape_rate is not None:
      arguments.check_positive(shape_rate, 'shape_rate', 1e-3)
    self._keep(locals())
    checks.check_has_tangent(self.proposal, type(self).__name__)
    scale_factor.check_moves(self.preconditioner, type(self).__name__)

  @property
  def adapting_cost(self):
    """Cost of one product with C^-1."""
    return interfaces.Cost(matrix_product=1)

  def scalars_at(self, results):
    return dict(mean_accept_prob=results.mean_accept_prob)

  def warnings_after(self, results, trace):
    del results
    if self.num_adaptation_steps:
      yield from run_warnings.acceptance(
        trace, self._parameters['target_accept_prob']
      )

  def bootstrap_results(self, init_state):
    """Starts the inner kernel, the search, and mu at the chains' mean."""
    inner = self.inner_kernel.bootstrap_results(init_state)
    inner, search = scale_search.begin(self.proposal, inner)
    state, alive = self._rows(init_state, inner)
    return MomentBasedAdaptationResults(
      inner_results=inner,
      mean=adaptation_base.mean_of_alive(alive, state, axis=0),
      scale_search=search,
      step=tf.zeros([], tf.int32),
      mean_accept_prob=tf.zeros([], state.dtype),
    )

  def _adapt(self, states, previous_inner, results):
    """Moves mu, C and s by one state of every chain."""
    del previous_inner
    inner = results.inner_results
    accept_prob = adaptation_base.mean_accept_prob(self._mh_results(inner))
    target = self._parameters['target_accept_prob']
    is_searching = results.scale_search.is_searching
    search = scale_search.update(results.scale_search, accept_prob, target)

    state, alive = self._rows(states[1], inner)
    centered = tf.where(alive, state - results.mean, 0.0)
    params = stack.proposal_results(inner).preconditioner_params
    mean_rate, rate = self._rates(results)
    # Without a live chain nothing is learned.
    rate = tf.where(tf.reduce_any(alive), rate, 0.0)
    # Half of the rate, because C (I + E) changes C C^T by twice E.
    moved = self.preconditioner.move(
      params,
      tf.nest.map_structure(
        lambda g: tf.where(tf.math.is_finite(g), 0.5 * rate * g, 0.0),
        self._shape_gradient(params, centered, alive),
      ),
    )
    step_size = stack.proposal_results(inner).step_size
    scale_step = _SCALE_RATE * (accept_prob - target) / target
    searched = dict(
      params=self.preconditioner.rescale(
        params, search.scale / results.scale_search.scale
      ),
      step_size=step_size,
    )
    learned = dict(
      params=moved, step_size=step_size * tf.sqrt(1.0 + scale_step)
    )
    chosen = adaptation_base.choose(is_searching, searched, learned)
    return results._replace(
      inner_results=tfp_private.replace_innermost(
        inner,
        preconditioner_params=chosen['params'],
        step_size=chosen['step_size'],
      ),
      mean=results.mean
      + mean_rate * adaptation_base.mean_of_alive(alive, centered, axis=0),
      scale_search=search,
      mean_accept_prob=accept_prob,
    )

  def _rows(self, state, inner):
    """Returns states, [num_chains, d], and which of them count, [., 1] bool.

    A chain that can never move would bend the shape for all others.
    """
    rows = state_parts.as_rows(self._flat_state(state, inner))
    alive = adaptation_base.is_alive(self._mh_results(inner))
    is_finite = tf.reduce_all(tf.math.is_finite(rows), axis=-1, keepdims=True)
    return rows, is_finite & tf.reshape(alive, [-1, 1])

  def _rates(self, results):
    """Returns a and b of a step, []."""
    problem = self.problem(results.inner_results)
    step = tf.cast(results.step, problem.dtype)
    first = self._parameters['shape_rate']
    if first is None:
      rate = schedule.covariance_rate(step, problem)
      return rate, rate
    return _MEAN_RATE, first / (1.0 + 4.0 * step / self.num_adaptation_steps)

  def _shape_gradient(self, params, rows, alive):
    """Returns the gradient of log N(x | mu, C C^T) in the tangent E at E = 0.

    C moves as C (I + E). The gradient is the mean over live chains of
    w w^T - I, projected onto the structure, with w = C^-1 (x - mu). `rows` are
    x - mu, [num_chains, d], and 0 for the other chains.
    """
    operator = self.preconditioner.operator(params)
    whitened = scale_factor.unapply(operator, rows)
    num_rows = tf.cast(tf.shape(rows)[0], rows.dtype)
    return tf.nest.map_structure(
      lambda outer, identity: adaptation_base.per_alive(
        alive, outer / num_rows, lambda mean: mean - identity
      ),
      self.preconditioner.outer(params, whitened, whitened, lambda: rows),
      self.preconditioner.log_det_gradient(params),
    )
