"""Generalised speed measure: acceptance plus the entropy of the proposal.

  F = E[ min(0, log_accept_ratio) ] + beta H[q]

Source: Titsias and Dellaportas (2019), equations 3-6 and Algorithm 1,
https://arxiv.org/abs/1911.01373.
"""

import collections

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.internal import schedule

__all__ = ['GeneralizedSpeedMeasureState', 'generalized_speed_measure']


class GeneralizedSpeedMeasureState(
  collections.namedtuple(
    'GeneralizedSpeedMeasureState', ['entropy_weight', 'num_updates']
  )
):
  """State of the criterion.

  Attributes:
    entropy_weight: beta, [], of the dtype of the state.
    num_updates: Updates since the first scale was found, [] float.
  """

  __slots__ = ()


def generalized_speed_measure(
  target_accept_prob,
  entropy_weight_rule='balance',
  init_entropy_weight=1.0,
  entropy_weight_rate=0.02,
  min_entropy_weight=None,
  max_entropy_weight=1e4,
  use_accept_flag=False,
):
  """Builds the generalised speed measure.

  High entropy asks for wide proposals in all directions at once, the log
  acceptance ratio for proposals that are accepted; beta weighs the two. At the
  optimum the acceptance is the wanted one and the gradient in the log scale
  vanishes. Two rules reach it:

  * `'balance'`: beta follows the weight at which the slope in the log scale
    vanishes, and the optimizer moves the scale by the acceptance itself. It
    settles without oscillation. For optimizers on tangents.
  * `'acceptance'`: the paper's Algorithm 1. beta follows the acceptance, the
    scale follows beta:

      beta <- beta (1 + rate (mean accept prob - target_accept_prob))

  A chain whose proposal diverged pulls the scale in as hard as the entropy
  pushes it out, so that diverging everywhere cannot inflate the proposal.

  Args:
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    entropy_weight_rule: `'balance'` or `'acceptance'`.
    init_entropy_weight: First beta of the rule `'acceptance'`, positive.
    entropy_weight_rate: Rate of beta per step of the rule `'acceptance'`.
    min_entropy_weight: Lower bound of beta; by default 1e-4 for the rule
      `'acceptance'` (the paper's) and 1e-10 for `'balance'`.
    max_entropy_weight: Upper bound of beta.
    use_accept_flag: Whether acceptance is the decision (the paper's Algorithm
      1) rather than min(1, exp(log_accept_ratio)), which has the same mean and
      less noise.

  Returns:
    An `interfaces.Criterion`.

  Raises:
    ValueError: If `target_accept_prob` or the rule is not one of those allowed.
  """
  _check(target_accept_prob, entropy_weight_rule)
  balances = entropy_weight_rule == 'balance'
  lowest = min_entropy_weight or (1e-10 if balances else 1e-4)

  def init(adaptation):
    return GeneralizedSpeedMeasureState(
      entropy_weight=tf.constant(
        0.0 if balances else init_entropy_weight, adaptation.dtype
      ),
      num_updates=tf.zeros([], adaptation.dtype),
    )

  def value(state, transition):
    del state
    speed = tf.minimum(transition.log_accept_ratio, 0.0)
    return tf.where(
      transition.is_finite, speed + transition.control_variate, 0.0
    )

  def excess(transition):
    accept_prob = mean_accept_prob(transition, use_accept_flag)
    return accept_prob - target_accept_prob

  def update(state, transition, slopes, adaptation):
    weight = state.entropy_weight
    if balances:
      moved = _balanced(state, slopes, adaptation)
    else:
      moved = weight * (1.0 + entropy_weight_rate * excess(transition))
    return GeneralizedSpeedMeasureState(
      entropy_weight=tf.clip_by_value(moved, lowest, max_entropy_weight),
      num_updates=state.num_updates
      + tf.where(slopes.is_searching, tf.zeros_like(weight), 1.0),
    )

  def feedback(state, transition):
    return interfaces.Feedback(
      objective_scale=state.entropy_weight,
      accept_excess=excess(transition)
      if balances
      else tf.zeros_like(state.entropy_weight),
    )

  return interfaces.Criterion(
    name='generalized_speed_measure',
    init=init,
    value=value,
    entropy_weight=lambda state: state.entropy_weight,
    update=update,
    feedback=feedback,
    trace=lambda state: {'entropy_weight': state.entropy_weight},
    bounds={'entropy_weight': (lowest, max_entropy_weight)},
    target_accept_prob=target_accept_prob,
  )


def mean_accept_prob(transition, use_accept_flag=False):
  """Returns the acceptance averaged over chains; diverged chains count 0."""
  if use_accept_flag:
    accept = tf.cast(transition.is_accepted, transition.log_accept_ratio.dtype)
  else:
    accept = tf.exp(tf.minimum(transition.log_accept_ratio, 0.0))
  return tf.reduce_mean(tf.where(transition.is_finite, accept, 0.0))


def _balanced(state, slopes, adaptation):
  """Moves beta towards the weight at which the two slopes cancel."""
  # A batch that mostly diverged has no entropy slope to divide by.
  wanted = -slopes.value / tf.maximum(slopes.entropy, 0.1)
  smoothing = schedule.smoothing_weight(
    state.num_updates, adaptation, slopes.is_searching
  )
  is_first = state.entropy_weight <= 0.0
  smoothing = tf.where(is_first, tf.ones_like(smoothing), smoothing)
  return state.entropy_weight + smoothing * (wanted - state.entropy_weight)


def _check(target_accept_prob, rule):
  if not 0.0 < target_accept_prob < 1.0:
    raise ValueError(
      '`target_accept_prob` must lie strictly between 0 and 1, but got '
      f'{target_accept_prob}. Usual values: 0.25 random walk, 0.55 Langevin.'
    )
  if rule not in ('balance', 'acceptance'):
    raise ValueError(
      "`entropy_weight_rule` must be 'balance' or 'acceptance', but got "
      f'{rule!r}.'
    )
