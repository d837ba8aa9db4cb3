"""A penalty on large eigenvalues of the Jacobian of a Hamiltonian proposal.

  h(x) = 0 below delta,  (x - delta)^2 up to 1 + delta,
         1 + slope (x - delta - 1) above
  gamma <- clip(gamma (1 + rate (min(mean of h(|mu|), 1) - slack)))

mu is the eigenvalue of D with the largest absolute value, gamma is the weight
of the penalty, and delta is its threshold. The mean is over chains. `slack` is
the mean at which gamma stays. The slope is 1 with rule `'acceptance'`, as in
Appendix A.2 and in the authors' code. Otherwise it is 2, like that of the
quadratic branch at 1 + delta.

The gradients of log det (I + D) and of h grow with the curvature. One chain in
a narrow region, with |mu| far above 1, would outweigh all others and shrink the
proposal to nothing. Except with rule `'acceptance'`, a chain has the weight

  w(|mu|) = 1 / max(1, |mu|)^2,

so that its gradients fall as 1 / |mu|. Its energy error still counts in the
acceptance, where all chains have equal shares.

Source: Hirt, Titsias and Dellaportas (2021), Algorithm 1 and Appendix A.2,
https://arxiv.org/abs/2110.14625. Here gamma changes in proportion to gamma and
may fall. w is ours.
"""

import collections
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments

PenaltyState = collections.namedtuple(
  'PenaltyState', ['weight', 'mean_abs_eigenvalue', 'num_log_det_terms']
)


class Penalty(NamedTuple):
  """A term that is subtracted from the entropy, with its own weight."""

  init: Callable[..., Any]
  # (state, transition) -> [chains...]
  value: Callable[..., Any]
  # (state, transition) -> state
  update: Callable[..., Any]
  trace: Callable[..., dict]
  bounds: dict


def none():
  """Returns the penalty that is always 0."""
  return Penalty(
    init=lambda problem: [],
    value=lambda state, transition: 0.0,
    update=lambda state, transition: state,
    trace=lambda state: {},
    bounds={},
  )


def eigenvalue_penalty(
  threshold, weights, rate, slack, slope=2.0, bound_influence=False
):
  """Builds the penalty gamma h(|mu|).

  Args:
    threshold: delta, in (0, 1); a smaller |mu| costs nothing.
    weights: Bounds of gamma, which starts at the lower bound.
    rate: Relative rate of gamma per step.
    slack: Mean of h below which gamma falls; with 0, gamma only rises.
    slope: Slope of h above 1 + delta.
    bound_influence: Whether to weigh chains by w, and to count at most 1 for
      each chain in the move of gamma.
  """
  arguments.check_inner_share(
    threshold, 'threshold', 'The paper uses 0.75 and 0.95.'
  )
  arguments.check_positive(rate, 'penalty_rate', 0.1)
  arguments.check_positive(weights, 'penalty_weights', (1.0, 100.0), True)
  if np.shape(weights) != (2,) or weights[0] > weights[1]:
    raise ValueError(
      '`penalty_weights` must be the least and the greatest weight, but got '
      f'{weights!r}. Write for example `penalty_weights=(1.0, 100.0)`.'
    )

  def cost(transition):
    excess = tf.maximum(_size(transition) - threshold, 0.0)
    return tf.where(excess < 1.0, excess**2, 1.0 + slope * (excess - 1.0))

  def value(state, transition):
    weight = influence(transition) if bound_influence else 1.0
    return state.weight * weight * cost(transition)

  def update(state, transition):
    costs = cost(transition)
    costs = tf.minimum(costs, 1.0) if bound_influence else costs
    mean_cost = adaptation_base.mean_of_alive(transition.is_alive, costs)
    surplus = tf.minimum(mean_cost, 1.0) - slack
    grown = state.weight * (1.0 + rate * surplus)
    return PenaltyState(
      weight=tf.clip_by_value(grown, *weights),
      mean_abs_eigenvalue=adaptation_base.mean_of_alive(
        transition.is_alive, _size(transition)
      ),
      num_log_det_terms=tf.convert_to_tensor(
        transition.num_log_det_terms, tf.int32
      ),
    )

  return Penalty(
    init=lambda problem: PenaltyState(
      weight=tf.constant(weights[0], problem.dtype),
      mean_abs_eigenvalue=tf.zeros([], problem.dtype),
      num_log_det_terms=tf.zeros([], tf.int32),
    ),
    value=value,
    update=update,
    trace=lambda state: {
      'penalty_weight': state.weight,
      'mean_abs_eigenvalue': state.mean_abs_eigenvalue,
      'num_log_det_terms': state.num_log_det_terms,
    },
    bounds={'penalty_weight': (0.0, weights[1])},
  )


def influence(transition):
  """Returns w of each chain, [chains...], held constant in the factor C."""
  return tf.stop_gradient(1.0 / tf.maximum(_size(transition), 1.0) ** 2)


def _size(transition):
  """Returns |mu|, [chains...]."""
  return tf.abs(
    tf.cast(transition.jacobian_eigenvalue, transition.log_accept_ratio.dtype)
  )
