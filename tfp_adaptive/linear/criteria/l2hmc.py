"""The objective of L2HMC: jump distance with a penalty for short moves.

  F = alpha |y - x|^2 / lambda - lambda / (alpha |y - x|^2)

lambda is a moving mean of alpha |y - x|^2, with alpha = min(1, exp(r)). The
burn-in term of Levy et al. is left out. The second term counts a distance below
0.01 lambda as 0.01 lambda, which the papers do not, so that the gradient of a
rejected chain is bounded.

Sources: Levy, Hoffman and Sohl-Dickstein (2018), Generalizing Hamiltonian Monte
Carlo with neural networks, equation 8, https://arxiv.org/abs/1711.09268; for
lambda, Hirt, Titsias and Dellaportas (2021), Appendix D,
https://arxiv.org/abs/2110.14625.
"""

import tensorflow as tf

from tfp_adaptive.core import shown
from tfp_adaptive.linear.criteria.expected_squared_jump_distance import (
  expected_squared_jump_distance,
)
from tfp_adaptive.linear.criteria.expected_squared_jump_distance import (
  jump_distance,
)
from tfp_adaptive.linear.criteria.expected_squared_jump_distance import scale_of

# Smallest distance in the second term, in units of lambda.
_FLOOR = 1e-2


@shown.remembers_call
def l2hmc(target_accept_prob=0.55):
  """Builds the L2HMC objective.

  Use `tfpa.optimizers.adam(1e-3)` or `rmsprop`. Relative optimizers refuse this
  criterion, because its gradient is 0 if every move is rejected.

  Args:
    target_accept_prob: Acceptance at which the scale search ends, in (0, 1);
      the criterion itself has no target.

  Returns:
    An `interfaces.Criterion`.

  Raises:
    ValueError: If `target_accept_prob` is not in its range.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob,
      num_adaptation_steps=1000,
      criterion=tfpa.criteria.l2hmc(),
      optimizer=tfpa.optimizers.adam(1e-3),
    )
  """

  def value(state, transition):
    distance = jump_distance(transition)
    ratio = distance / scale_of(state, transition)
    return tf.where(
      transition.is_finite,
      ratio - 1.0 / tf.maximum(ratio, tf.constant(_FLOOR, ratio.dtype)),
      -transition.proposal_entropy,
    )

  return expected_squared_jump_distance(target_accept_prob)._replace(
    name='l2hmc', value=value
  )
