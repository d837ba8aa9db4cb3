"""Learns the factor of least Fisher divergence from states and gradients.

  F(C) = E |z + s|^2,   z = C^-1 (x - mean x),   s = C^T (g - mean g)

Here x are the states of all chains, and g the gradients of the log target
there. F is the Fisher divergence between the target and a normal of covariance
C C^T at its best center. F is least if z and s have the same covariance.

For a target N(m, S), every draw has s = -z if C C^T = S. S is therefore found
without noise, even if the chains have moved little. For other targets, C C^T
lies between the covariance of the states and the inverse covariance of the
gradients. On a curved ridge, the covariance of the states measures the length,
and the inverse covariance of the gradients measures the width.

The structure decides how C is found:

* A dense factor has a closed form, which is fitted now and then: the geometric
  mean C C^T = Cov x # (Cov g)^-1.
* A low-rank factor is fitted to half of the pairs (x, g) of a history. The fit
  is kept if it is better on the other half.
* Every other structure moves a little at every step, by a part of the Newton
  step of F near its minimum. E is projected onto the structure. k is a chain:

    E = 1/4 mean_k w_k (z_k z_k^T - s_k s_k^T),   C <- C (I + rho_t E)

  Outlying pairs, as in narrow regions with large gradients, count less:
  w = 2 / (1 + (|z|^2 + |s|^2) / (2 d)). Such moves find long directions slowly.

The closed form shrinks correlations if there are few states. With n states the
correlations are multiplied by 1 - 0.1 d^4 / (n^4 + d^4), and by 0 if n < d / 2.
A target with condition number 1e6 needs about 20 states for each dimension.

Source: Seyboldt, Carlson and Carpenter (2026), Preconditioning Hamiltonian
Monte Carlo by minimizing Fisher divergence, https://arxiv.org/abs/2603.18845,
for the divergence and the dense factor.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import history as history_lib
from tfp_adaptive.core import merging
from tfp_adaptive.core import random
from tfp_adaptive.core import short_steps
from tfp_adaptive.core import stack
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.interfaces import types
from tfp_adaptive.linear import closed_form
from tfp_adaptive.linear import fisher_fit
from tfp_adaptive.linear import kept_momentum
from tfp_adaptive.linear import num_steps
from tfp_adaptive.linear import running_moments
from tfp_adaptive.linear import schedule
from tfp_adaptive.linear import trajectory_length
from tfp_adaptive.linear.hamiltonian import (
  UncalibratedPreconditionedHamiltonian,
)
from tfp_adaptive.linear.langevin import UncalibratedPreconditionedLangevin
from tfp_adaptive.preconditioners.per_part import as_preconditioner

_PRIOR_STEPS = 1.0  # Weight of the start in the means, in steps.
_FIRST_FIT = 2.0  # Step of the first fit; the intervals then grow.
_MOVE_GAIN = 2.0  # Gain of the moves, in units of the gain of the means.
# Step of the first fit to pairs, and ratio of the steps of successive fits.
_FIRST_OF_PAIRS, _GROWTH_OF_PAIRS = 4.0, 1.5
_LARGE_GAIN = 0.1  # A fit that gains more restarts the step size and lengths.
_SALT = 11  # Separates draws of the history from those of the step.


class Statistics(NamedTuple):
  """What the fit needs: moments or pairs of states and gradients."""

  time: tf.Tensor  # Steps learned from, [].
  next_fit: tf.Tensor  # Value of `time` at which the next fit is due, [].
  num_failed_fits: tf.Tensor  # [] int32.
  # `running_moments.Moments` of states and of gradients; `[]` with pairs.
  state: Any
  gradient: Any
  pairs: Any  # `Pairs`; `[]` with moments.

  merge_rules = dict(
    time=merging.largest,
    next_fit=merging.largest,
    num_failed_fits=merging.counted,
  )


class Pairs(NamedTuple):
  """Pairs of states and gradients, and the time of the last large gain."""

  history: history_lib.History  # Its points are pairs, [n, 2 d].
  last: tf.Tensor  # Time of the last fit of large gain, [].

  merge_rules = dict(last=merging.largest)


class UncalibratedMomentumHamiltonian(
  kept_momentum.KeepsMomentum, UncalibratedPreconditionedHamiltonian
):
  """Proposes the end of a trajectory that starts with a given momentum.

  Put `MomentumMetropolisHastings` around this kernel.
  """


@arguments.by_keyword(
  'fisher_divergence_hamiltonian(target_log_prob_fn, 500)',
)
def fisher_divergence_hamiltonian(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  num_leapfrog_steps: types.NumSteps | None = None,
  preconditioner: types.Preconditioners | None = None,
  target_accept_prob: float = 0.8,
  step_size: float = 1.0,
  max_num_leapfrog_steps: int | None = None,
  keep_momentum: bool = False,
  experimental_shard_axis_names: types.Structure = None,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds HMC whose inverse mass matrix has the least Fisher divergence.

  It learns from the states and gradients that chains compute anyway, without
  other target calls and without Hessian products. With random effects and heavy
  tails, the curvature of some directions depends on the state. In these
  directions this sampler learns how wide the target is, and
  `entropy_adaptive_hamiltonian` learns its curvature.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    num_leapfrog_steps: L, the number of gradients of every step, or a pair
      (fewest, most) from which each step draws it. A pair is better, because
      trajectories of one length return to their start in directions with that
      period. By default the pair with the most effective draws per gradient is
      learned.
    preconditioner: Structure of the scale factor C, or a list with one for each
      part of the state; dense by default. C C^T is the inverse mass matrix.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: First step size, which the adaptation changes.
    max_num_leapfrog_steps: Largest number that may be learned; 32 by default.
    keep_momentum: Whether a step keeps part of the momentum of the step before,
      and takes about half as many leapfrog steps.
    experimental_shard_axis_names: As in TFP; the same for all parts.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target or the preconditioner has the wrong type.
    ValueError: If a number is out of its range, or if `num_leapfrog_steps` and
      its maximum are both given.

  References:
    Seyboldt, Carlson and Carpenter (2026), https://arxiv.org/abs/2603.18845.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.fisher_divergence_hamiltonian(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  first, most = num_steps.resolve(num_leapfrog_steps, max_num_leapfrog_steps)
  proposal = (
    UncalibratedMomentumHamiltonian
    if keep_momentum
    else UncalibratedPreconditionedHamiltonian
  )(
    target_log_prob_fn,
    as_preconditioner(preconditioner),
    first,
    step_size,
    max_num_leapfrog_steps=most,
    experimental_shard_axis_names=experimental_shard_axis_names,
    name=name,
  )
  return FisherDivergenceAdaptation(
    kept_momentum.accepted(proposal), num_adaptation_steps, target_accept_prob
  )


@arguments.by_keyword('fisher_divergence_langevin(target_log_prob_fn, 500)')
def fisher_divergence_langevin(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  preconditioner: types.Preconditioners | None = None,
  target_accept_prob: float = 0.574,
  step_size: float = 1.0,
  short_step_share: float | None = None,
  experimental_shard_axis_names: types.Structure = None,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds a MALA with the factor that minimizes the Fisher divergence.

  For a Gaussian target and the dense factor, the learned covariance is exact
  after some tens of states for each dimension, even if the chains have moved
  little. `FisherDivergenceAdaptation` also wraps other proposals that use
  gradients.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    preconditioner: Structure of the scale factor, or a list with one for each
      part of the state; dense by default.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: First step size, which the adaptation changes.
    short_step_share: See `gradient_adaptive_langevin`.
    experimental_shard_axis_names: As in TFP; the same for all parts.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target or the preconditioner has the wrong type.
    ValueError: If a number is out of its range.

  References:
    Seyboldt, Carlson and Carpenter (2026), https://arxiv.org/abs/2603.18845.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.fisher_divergence_langevin(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  proposal = UncalibratedPreconditionedLangevin(
    target_log_prob_fn,
    as_preconditioner(preconditioner),
    step_size,
    experimental_shard_axis_names=experimental_shard_axis_names,
    name=name,
  )
  kernel = short_steps.around(
    MetropolisHastings(proposal), num_adaptation_steps, short_step_share
  )
  return FisherDivergenceAdaptation(
    kernel, num_adaptation_steps, target_accept_prob
  )


class FisherDivergenceAdaptation(closed_form.ClosedFormAdaptation):
  """Learns a scale factor from states and their gradients.

  A dense factor adds a product of [d, chains] and [chains, d] to each step. It
  is fitted some tens of times in a run, less often in many dimensions. Each fit
  makes 10 to 20 decompositions of [d, d]. A low-rank factor is fitted about 8
  to 20 times, to n pairs, with some products of [n, d] and [d, rank] in each
  fit. Other structures move at each step.

  Results are `linear.closed_form.ClosedFormAdaptationResults`. Fits and moves
  whose factor is not finite are left out, and counted in
  `statistics.num_failed_fits`.
  """

  def __init__(
    self,
    inner_kernel,
    num_adaptation_steps,
    target_accept_prob=0.574,
    gain=2.0,
    name=None,
  ):
    """Builds the wrapper; no Tensor is created here.

    Args:
      inner_kernel: `tfpa.MetropolisHastings` around a proposal that uses
        gradients and has a preconditioner.
      num_adaptation_steps: Steps that adapt, a non-negative int.
      target_accept_prob: Wanted mean acceptance, in (0, 1).
      gain: How fast the past is forgotten, at least 1. With 1, all steps have
        the same weight.
      name: Prefix of op names.

    Raises:
      ValueError: If an argument is not one of those allowed.
    """
    super().__init__(
      inner_kernel,
      num_adaptation_steps,
      target_accept_prob,
      gain=gain,
      name=name,
    )

  @property
  def _is_fitted(self):
    """Whether the structure has a closed form in the two covariances."""
    return self.preconditioner.fisher_factor is not None

  @property
  def _keeps_pairs(self):
    """Whether the structure is fitted to pairs instead of moments."""
    return self.preconditioner.fisher_fit is not None

  def warnings_after(self, results, trace):
    yield from super().warnings_after(results, trace)
    statistics = results.statistics
    num_failed = int(statistics.num_failed_fits)
    if num_failed and num_failed >= self._most_failures(int(statistics.time)):
      yield (
        f'The scale factor was never learned: all {num_failed} fits were not '
        'finite, so that it is still a multiple of the first. Start where '
        'every coordinate can move and has a gradient, or adapt longer.'
      )

  def _most_failures(self, time):
    """Returns the number of failures in `time` steps if every fit fails."""
    if not (self._is_fitted or self._keeps_pairs):
      return time  # There is a move at every step.
    step = _FIRST_OF_PAIRS if self._keeps_pairs else _FIRST_FIT
    count = 0
    while step <= time:
      count, step = count + 1, float(fisher_fit.time_after_failure(step))
    return count

  def _start(self, params, state, inner):
    """Returns moments at the first means with spread 0, or no pairs."""
    states, gradients, is_finite = self._states_and_gradients(state, inner)
    zero = tf.zeros([], states.dtype)
    first = _FIRST_OF_PAIRS if self._keeps_pairs else _FIRST_FIT
    num_failed = tf.zeros([], tf.int32)
    statistics = Statistics(zero, zero + first, num_failed, [], [], [])
    if self._keeps_pairs:
      count, size = self.preconditioner.num_fisher_pairs, ps.shape(states)[-1]
      history = history_lib.start(count, 2 * size, states.dtype)
      return statistics._replace(pairs=Pairs(history, last=zero))
    return statistics._replace(
      state=running_moments.start(states, is_finite, self._is_fitted),
      gradient=running_moments.start(gradients, is_finite, self._is_fitted),
    )

  def _learn(self, params, statistics, gradients, next_state, inner):
    """Adds one state of every chain, then moves or fits the factor."""
    del gradients
    states, gradients, is_finite = self._states_and_gradients(next_state, inner)
    gain = self._parameters['gain']
    time = statistics.time + 1.0
    if self._keeps_pairs:
      pairs = tf.concat([states, gradients], axis=-1)
      pairs = tf.where(is_finite, pairs, float('nan'))  # Histories skip NaN.
      return self._fit_pairs(params, statistics, time, inner, pairs)
    num_chains = tf.reduce_sum(tf.cast(is_finite, time.dtype))
    weight = gain / (time + gain * _PRIOR_STEPS)
    state = running_moments.add(statistics.state, states, is_finite, weight)
    gradient = running_moments.add(
      statistics.gradient, gradients, is_finite, weight
    )
    statistics = statistics._replace(time=time, state=state, gradient=gradient)
    if self._is_fitted:
      params, statistics = self._fit(params, statistics, num_chains)
    else:
      rate = schedule.covariance_rate(
        time - 1.0, self.problem(inner), _MOVE_GAIN * gain
      )
      moved = fisher_fit.moved(
        self.preconditioner,
        params,
        tf.where(is_finite, states - state.mean, 0.0),
        tf.where(is_finite, gradients - gradient.mean, 0.0),
        1.0 / tf.maximum(num_chains, 1.0),
        rate,
      )
      params, num_failed = _if_finite(moved, params, statistics.num_failed_fits)
      statistics = statistics._replace(num_failed_fits=num_failed)
    return params, statistics, tf.ones_like(time)

  def _fit(self, params, statistics, num_chains):
    """Fits the factor if a fit is due."""
    time = statistics.time
    is_due = time >= statistics.next_fit

    def fit(params, num_failed):
      factor = fisher_fit.factor(
        self.preconditioner,
        statistics.state.spread,
        statistics.gradient.spread,
        time * num_chains,
      )
      return _if_finite(factor, params, num_failed)

    params, num_failed = control_flow.apply_if(
      is_due, fit, params, statistics.num_failed_fits
    )
    following = fisher_fit.next_time(
      time, ps.shape(params)[-1], self.num_adaptation_steps
    )
    return params, _with_fit(statistics, is_due, num_failed, following)

  def _fit_pairs(self, params, statistics, time, inner, pairs):
    """Adds a pair of every chain to the history, and fits if a fit is due.

    A fit replaces the params only if it is better. Returns params, statistics
    and the factor of the step size.
    """
    seed = self._mh_results(inner).proposed_results.seed
    history = history_lib.add(
      statistics.pairs.history, pairs, random.fold_in(seed, _SALT)
    )

    def fit(params, step_size, last, num_failed):
      fitted, gain = fisher_fit.fit_and_gain(
        self.preconditioner,
        params,
        *tf.split(history.points, 2, axis=-1),
        history_lib.weights(history),
      )
      is_finite = adaptation_base.is_finite(fitted)
      is_better = is_finite & (gain > 0.0)
      is_new = is_better & (gain > _LARGE_GAIN)
      # In fitted coordinates the scale is 1, and steps of d^(-1/4) suit.
      size = tf.cast(self.problem(inner).event_size, time.dtype)
      return (
        adaptation_base.choose(is_better, fitted, params),
        tf.where(is_new, size**-0.25, step_size),
        tf.where(is_new, time, last),
        num_failed + tf.cast(~is_finite, tf.int32),
      )

    step_size = stack.proposal_results(inner).step_size
    is_due = time >= statistics.next_fit
    params, moved, last, num_failed = control_flow.apply_if(
      is_due,
      fit,
      params,
      step_size,
      statistics.pairs.last,
      statistics.num_failed_fits,
    )
    statistics = _with_fit(
      statistics._replace(time=time, pairs=Pairs(history, last)),
      is_due,
      num_failed,
      _GROWTH_OF_PAIRS * time,
    )
    return params, statistics, moved / step_size

  def _forget_lengths(
    self, lengths, rows, is_finite, before, statistics, params
  ):
    if not self._keeps_pairs:
      return lengths
    is_new = statistics.pairs.last > before.pairs.last

    def restart(lengths):
      places = self._turning(rows, params)
      return [trajectory_length.restart(lengths, places, is_finite)]

    return control_flow.apply_if(is_new, restart, lengths)[0]

  def _num_updates_of_map(self, results, statistics):
    if not self._keeps_pairs:
      return results.num_updates
    # A step that ends with a fit used the old shape, and gets the least rate.
    steps = statistics.time - statistics.pairs.last
    return tf.where(steps > 0.0, steps, float('inf'))


def _with_fit(statistics, is_due, num_failed, following):
  """Returns statistics after a step whose fit, if due, is followed by another.

  After a failure the next fit does not wait until the step `following`.
  """
  time = statistics.time
  has_failed = num_failed > statistics.num_failed_fits
  following = tf.where(
    has_failed,
    tf.minimum(fisher_fit.time_after_failure(time), following),
    following,
  )
  return statistics._replace(
    next_fit=tf.where(is_due, following, statistics.next_fit),
    num_failed_fits=num_failed,
  )


def _if_finite(candidate, params, num_failed):
  """Returns (candidate if it is finite, else `params`; number of failures)."""
  is_good = adaptation_base.is_finite(candidate)
  return (
    adaptation_base.choose(is_good, candidate, params),
    num_failed + tf.cast(~is_good, tf.int32),
  )
