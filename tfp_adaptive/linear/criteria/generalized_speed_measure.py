"""Generalized speed measure: acceptance plus the entropy of the proposal.

  F = E[ min(0, log_accept_ratio) ] + beta ( H[q] - gamma h(|mu|) )

H[q] is the entropy of the proposal. The penalty h with weight gamma is for
Hamiltonian proposals. mu is an eigenvalue of D, see `penalty`.

Sources: Titsias and Dellaportas (2019), equations 3-6 and Algorithm 1,
https://arxiv.org/abs/1911.01373; for the penalty h of Hamiltonian proposals,
Hirt, Titsias and Dellaportas (2021), Algorithm 1 and Appendix A.2,
https://arxiv.org/abs/2110.14625.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import merging
from tfp_adaptive.core import shown
from tfp_adaptive.linear import control_variates
from tfp_adaptive.linear import schedule
from tfp_adaptive.linear.criteria import penalty as penalty_lib

_RULES = ('balance', 'constraint', 'acceptance')
_ENTROPY_GAIN = 0.25  # Force on the scale per unit of entropy slope.
_PENALTY_SLACK = 0.05  # Mean penalty that the default rules accept.
_SMALLEST_SLOPE = 0.1  # Least entropy slope in the denominator of beta.


class GeneralizedSpeedMeasureState(NamedTuple):
  """State of the criterion; [] Tensors of the dtype of the state."""

  entropy_weight: tf.Tensor  # beta.
  # Running means of d value / d log scale and d entropy / d log scale, per
  # coordinate.
  value_slope: tf.Tensor
  entropy_slope: tf.Tensor
  accept_excess: tf.Tensor  # Running mean of the acceptance minus its target.
  # Wanted change of the log scale, before the learning rate.
  scale_force: tf.Tensor
  penalty: Any  # State of the penalty; `[]` without a penalty.
  num_updates: tf.Tensor  # Updates since the first scale was found.

  merge_rules = dict(num_updates=merging.largest)


@shown.remembers_call
def generalized_speed_measure(
  target_accept_prob,
  entropy_weight_rule='balance',
  init_entropy_weight=1.0,
  entropy_weight_rate=0.02,
  min_entropy_weight=None,
  max_entropy_weight=1e4,
  use_accept_flag=False,
  penalty_threshold=None,
  penalty_weights=(1.0, 100.0),
  penalty_rate=0.1,
  bound_log_ratio=False,
):
  """Builds the generalized speed measure.

  High entropy means wide proposals in all directions at once, and a high log
  acceptance ratio means accepted proposals. Three rules set the weight beta of
  the entropy:

  * `'balance'`, for optimizers on tangents: beta follows the weight at which
    the derivative of F in the log scale is 0. The optimizer increases the scale
    while the acceptance is above its target, and decreases it otherwise. The
    scale settles without oscillation.
  * `'constraint'`, for optimizers on tangents: the entropy alone is maximized,
    under the constraint that the acceptance reaches its target. In each
    direction, a Hamiltonian proposal of two steps or more has the greatest
    entropy if its trajectory is about a quarter of a period. The shape is
    therefore found without the noise of the energy error. The scale stays
    smaller if the acceptance would otherwise miss its target.
  * `'acceptance'`, the papers' Algorithm 1: beta follows the acceptance, and
    the scale follows beta:

      beta <- beta (1 + rate (mean accept prob - target_accept_prob))

  The first two rules bound the influence of one chain. Let mu be the eigenvalue
  of its D with the largest absolute value (see `interfaces.Transition`). If
  |mu| > 1, they divide the gradients of its log det (I + D) and penalty by
  |mu|^2.

  The entropy of a chain that diverged counts with a negative sign. If all
  chains diverge, the gradient therefore points to a smaller scale. A chain that
  can never move has not diverged, and is in no mean.

  Args:
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    entropy_weight_rule: `'balance'`, `'constraint'` or `'acceptance'`.
    init_entropy_weight: First beta of the rule `'acceptance'`, positive.
    entropy_weight_rate: Rate of beta per step of the rule `'acceptance'`.
    min_entropy_weight: Lower bound of beta; by default 1e-4 for the rule
      `'acceptance'`, as in the papers, and 1e-10 for the others. With
      `bound_log_ratio` it is at least (1 - target_accept_prob) / (2 d).
    max_entropy_weight: Upper bound of beta.
    use_accept_flag: Whether the acceptance of a chain is its decision, 0 or 1,
      as in the papers. By default it is min(1, exp(log_accept_ratio)), which
      has the same mean and less noise.
    penalty_threshold: delta, in (0, 1). The penalty h(|mu|) of a Hamiltonian
      proposal is positive if |mu| > delta. By default there is no penalty.
    penalty_weights: Bounds of gamma, the weight of the penalty, which starts at
      the lower bound.
    penalty_rate: Relative rate of gamma per step.
    bound_log_ratio: Whether to replace min(0, r) by 3 atan(min(0, r) / 3). A
      chain in a region too narrow for the step then does not outweigh the
      others. Use it for proposals whose control variates have the same bound,
      such as MALA.

  Returns:
    An `interfaces.Criterion`.

  Raises:
    ValueError: If an argument is not one of those allowed.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob,
      num_adaptation_steps=1000,
      criterion=tfpa.criteria.generalized_speed_measure(0.5),
    )
  """
  arguments.check_accept_prob(target_accept_prob)
  if entropy_weight_rule not in _RULES:
    raise ValueError(
      f'`entropy_weight_rule` must be one of {_RULES}, but got '
      f'{entropy_weight_rule!r}.'
    )
  is_paper = entropy_weight_rule == 'acceptance'
  lowest = 1e-4 if is_paper else 1e-10
  if min_entropy_weight is not None:
    arguments.check_positive(min_entropy_weight, 'min_entropy_weight', lowest)
    lowest = min_entropy_weight
  for name, value, usual in (
    ('max_entropy_weight', max_entropy_weight, 1e4),
    ('init_entropy_weight', init_entropy_weight, 1.0),
    ('entropy_weight_rate', entropy_weight_rate, 0.02),
  ):
    arguments.check_positive(value, name, usual)
  if max_entropy_weight < lowest:
    raise ValueError(
      f'`max_entropy_weight` must be at least the lower bound, {lowest!r}, but '
      f'got {max_entropy_weight!r}. Give a larger one, or a smaller '
      '`min_entropy_weight`.'
    )
  penalty = penalty_lib.none()
  if penalty_threshold is not None:
    penalty = penalty_lib.eigenvalue_penalty(
      penalty_threshold,
      penalty_weights,
      penalty_rate,
      slack=0.0 if is_paper else _PENALTY_SLACK,
      slope=1.0 if is_paper else 2.0,
      bound_influence=not is_paper,
    )
  measure = _Measure(
    target_accept_prob=target_accept_prob,
    rule=entropy_weight_rule,
    init_weight=init_entropy_weight if is_paper else 0.0,
    weight_rate=entropy_weight_rate,
    weight_bounds=(lowest, max_entropy_weight),
    use_accept_flag=use_accept_flag,
    bound_log_ratio=bound_log_ratio,
    penalty=penalty,
  )
  return interfaces.Criterion(
    name='generalized_speed_measure',
    init=measure.init,
    value=measure.value,
    entropy=measure.entropy,
    entropy_weight=lambda state: state.entropy_weight,
    update=measure.update,
    feedback=lambda state, transition: interfaces.Feedback(
      state.entropy_weight, state.scale_force
    ),
    trace=lambda state: {
      'entropy_weight': state.entropy_weight,
      **penalty.trace(state.penalty),
    },
    bounds=lambda problem: {
      'entropy_weight': measure.bounds(problem),
      **penalty.bounds,
    },
    target_accept_prob=target_accept_prob,
    may_exceed_target=entropy_weight_rule == 'constraint',
    needs_slopes=not is_paper,
  )


class _Measure(NamedTuple):
  """The constants of the criterion, and its functions."""

  target_accept_prob: float
  rule: str
  init_weight: float
  weight_rate: float
  weight_bounds: tuple
  use_accept_flag: bool
  bound_log_ratio: bool
  penalty: penalty_lib.Penalty

  def init(self, problem):
    zero = tf.zeros([], problem.dtype)
    return GeneralizedSpeedMeasureState(
      entropy_weight=zero + self.init_weight,
      value_slope=zero,
      entropy_slope=zero,
      accept_excess=zero,
      scale_force=zero,
      penalty=self.penalty.init(problem),
      num_updates=zero,
    )

  def value(self, state, transition):
    del state
    if self.rule == 'constraint':
      # beta then weighs log |det C| against log det (I + D), the value.
      speed = penalty_lib.influence(transition) * transition.log_jacobian
    else:
      speed = tf.minimum(transition.log_accept_ratio, 0.0)
      if self.bound_log_ratio:
        speed = control_variates.bounded(speed)
      speed += transition.control_variate
    return tf.where(transition.is_finite, speed, 0.0)

  def entropy(self, state, transition):
    total = transition.proposal_entropy
    if self.rule == 'constraint':
      total -= transition.log_jacobian
    elif self.rule == 'balance':
      weight = penalty_lib.influence(transition)
      total += (weight - 1.0) * transition.log_jacobian
    return total - self.penalty.value(state.penalty, transition)

  def update(self, state, transition, slopes, problem):
    accept_prob = mean_accept_prob(transition, self.use_accept_flag)
    excess = accept_prob - self.target_accept_prob
    if self.rule == 'acceptance':
      grown = state.entropy_weight * (1.0 + self.weight_rate * excess)
      state = state._replace(entropy_weight=grown)
    else:
      state = _balanced(state, slopes, excess, problem)
    if self.rule == 'constraint':
      state = _force_by_entropy(state, slopes)
    return state._replace(
      entropy_weight=tf.clip_by_value(
        state.entropy_weight, *self.bounds(problem)
      ),
      penalty=adaptation_base.choose(
        slopes.is_searching,
        state.penalty,
        self.penalty.update(state.penalty, transition),
      ),
      num_updates=state.num_updates
      + tf.where(slopes.is_searching, tf.zeros_like(excess), 1.0),
    )

  def bounds(self, problem):
    """Returns the least and the greatest beta.

    Steps are divided by beta, which must not vanish. Bounded ratios have almost
    no slope if they are all far beyond the bound, and beta follows the slope.
    In equilibrium beta is 2 E[-min(0, r)] / d, which is at least
    2 (1 - accept) / d. The lower bound is a quarter of this.
    """
    lower, upper = self.weight_bounds
    if self.bound_log_ratio:
      size = tf.cast(problem.event_size, problem.dtype)
      lower = tf.maximum(0.5 * (1.0 - self.target_accept_prob) / size, lower)
    return lower, upper


def default_rule(optimizer, relative='balance'):
  """Returns the rule of beta: `relative`, or 'acceptance' for raw params."""
  return relative if optimizer.is_relative else 'acceptance'


def mean_accept_prob(transition, use_accept_flag=False):
  """Returns the mean acceptance of live chains; diverged ones count 0, []."""
  if use_accept_flag:
    accept = tf.cast(transition.is_accepted, transition.log_accept_ratio.dtype)
  else:
    accept = tf.exp(tf.minimum(transition.log_accept_ratio, 0.0))
  return adaptation_base.mean_of_alive(
    transition.is_alive, tf.where(transition.is_finite, accept, 0.0)
  )


def _balanced(state, slopes, excess, problem):
  """Moves beta to the weight at which both terms of F have opposite slopes."""
  smoothing = schedule.smoothing_weight(
    state.num_updates, problem, slopes.is_searching
  )
  is_first = state.entropy_weight <= 0.0
  smoothing = tf.where(is_first, tf.ones_like(smoothing), smoothing)

  def follow(mean, new):
    return mean + smoothing * (new - mean)

  value_slope = follow(state.value_slope, slopes.value)
  entropy_slope = follow(state.entropy_slope, slopes.entropy)
  return state._replace(
    # A batch that mostly diverged has no entropy slope to divide by.
    entropy_weight=-value_slope / tf.maximum(entropy_slope, _SMALLEST_SLOPE),
    value_slope=value_slope,
    entropy_slope=entropy_slope,
    accept_excess=follow(state.accept_excess, excess),
    scale_force=excess,
  )


def _force_by_entropy(state, slopes):
  """Lets the entropy move the scale if the second constraint is tighter.

  Two constraints bound the scale from above: acceptance >= target, and
  d entropy / d log scale >= 0. Running means show which constraint is tighter.
  """
  slope = state.value_slope + state.entropy_slope
  return state._replace(
    scale_force=tf.where(
      _ENTROPY_GAIN * slope < state.accept_excess,
      _ENTROPY_GAIN * (slopes.value + slopes.entropy),
      state.scale_force,
    )
  )
