"""Generalised speed measure: acceptance plus the entropy of the proposal.

  F = E[ min(0, log_accept_ratio) ] + beta H[q]

Source: Titsias and Dellaportas (2019), equations 3-6 and Algorithm 1,
https://arxiv.org/abs/1911.01373.
"""

import collections

import tensorflow as tf

from tfp_adaptive import interfaces

__all__ = ['GeneralizedSpeedMeasureState', 'generalized_speed_measure']


class GeneralizedSpeedMeasureState(
  collections.namedtuple('GeneralizedSpeedMeasureState', ['entropy_weight'])
):
  """State of the criterion.

  Attributes:
    entropy_weight: beta, [], of the dtype of the state.
  """

  __slots__ = ()


def generalized_speed_measure(
  target_accept_prob,
  init_entropy_weight=1.0,
  entropy_weight_rate=0.02,
  min_entropy_weight=1e-4,
  max_entropy_weight=1e4,
  use_accept_flag=False,
):
  """Builds the generalised speed measure.

  High entropy asks for wide proposals in all directions at once, the log
  acceptance ratio for proposals that are accepted. The weight beta moves until
  the acceptance is the wanted one:

    beta <- beta (1 + rate (mean accept prob - target_accept_prob))

  A chain whose proposal diverged pulls the scale in as hard as the entropy
  pushes it out, so that diverging everywhere cannot inflate the proposal.

  Args:
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    init_entropy_weight: First beta, positive.
    entropy_weight_rate: Rate of beta per step.
    min_entropy_weight: Lower bound of beta.
    max_entropy_weight: Upper bound of beta.
    use_accept_flag: Whether beta follows the accept decision (the paper's
      Algorithm 1) rather than min(1, exp(log_accept_ratio)), which has the
      same mean and less noise.

  Returns:
    An `interfaces.Criterion`.

  Raises:
    ValueError: If `target_accept_prob` is not in (0, 1).
  """
  if not 0.0 < target_accept_prob < 1.0:
    raise ValueError(
      '`target_accept_prob` must lie strictly between 0 and 1, but got '
      f'{target_accept_prob}. Usual values: 0.25 random walk, 0.55 Langevin.'
    )

  def init(adaptation):
    return GeneralizedSpeedMeasureState(
      entropy_weight=tf.constant(init_entropy_weight, adaptation.dtype)
    )

  def value(state, transition):
    speed = tf.minimum(transition.log_accept_ratio, 0.0)
    entropy = state.entropy_weight * transition.proposal_entropy
    return tf.where(
      transition.is_finite,
      speed + transition.control_variate + entropy,
      -entropy,
    )

  def update(state, transition, adaptation):
    del adaptation
    excess = mean_accept_prob(transition, use_accept_flag) - target_accept_prob
    return state._replace(
      entropy_weight=tf.clip_by_value(
        state.entropy_weight * (1.0 + entropy_weight_rate * excess),
        min_entropy_weight,
        max_entropy_weight,
      )
    )

  return interfaces.Criterion(
    name='generalized_speed_measure',
    init=init,
    value=value,
    update=update,
    trace=lambda state: {'entropy_weight': state.entropy_weight},
    bounds={'entropy_weight': (min_entropy_weight, max_entropy_weight)},
    target_accept_prob=target_accept_prob,
  )


def mean_accept_prob(transition, use_accept_flag=False):
  """Returns the acceptance averaged over chains; diverged chains count 0."""
  if use_accept_flag:
    accept = tf.cast(transition.is_accepted, transition.log_accept_ratio.dtype)
  else:
    accept = tf.exp(tf.minimum(transition.log_accept_ratio, 0.0))
  return tf.reduce_mean(tf.where(transition.is_finite, accept, 0.0))
