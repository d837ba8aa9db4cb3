"""Rules that adapt step sizes to the acceptance rate, and their bounds.

TFP's dual averaging wraps a kernel (`tuned`). Wrappers that learn more than a
step size use the rule of Robbins and Monro (`change`):

  log s <- log s + rate_t (accept - target).

Adaptive Metropolis has a rule of its own. `linear/scale_search.py` searches a
first scale by doubling.

If every proposal is accepted, as with a flat likelihood, the step size s grows
without end. `bounded` limits s, so that s^2 and s^-2 are finite in its dtype.
"""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import shown
from tfp_adaptive.core import stack
from tfp_adaptive.core import tfp_private


def largest(dtype):
  """Returns the upper bound of s, 4e9 in float32; its inverse is the lower."""
  return float(tf.as_dtype(dtype).max) ** 0.25


def bounded(step_size):
  """Returns a step size, a Tensor, within the bounds."""
  limit = largest(step_size.dtype)
  return tf.clip_by_value(step_size, 1.0 / limit, limit)


def change(accept_prob, target_accept_prob, rate):
  """Returns the factor by which the rule of Robbins and Monro changes s."""
  return tf.exp(rate * (accept_prob - target_accept_prob))


class DualAveragingStepSizeAdaptation(tfp.mcmc.DualAveragingStepSizeAdaptation):
  """TFP's kernel, which shows the kernels inside when it is printed."""

  __repr__ = shown.kernel


def tuned(
  kernel,
  num_adaptation_steps,
  target_accept_prob,
  step_size='step_size',
  log_accept_ratio='log_accept_ratio',
  says_nothing_fn=None,
):
  """Puts TFP's dual averaging of a step size around a kernel.

  A step that says nothing about the step size, such as a short step, counts as
  accepted at the target rate. `says_nothing_fn` maps results to [] bool. Steps
  of a chain whose density or gradient is not finite count likewise, because
  such a chain never moves.
  `step_size` and `log_accept_ratio` are names of fields of the innermost
  results.
  """
  arguments.check_accept_prob(target_accept_prob)

  def set_step_size(results, new):
    return tfp_private.replace_innermost(results, **{step_size: bounded(new)})

  def log_accept_prob(results):
    ratio = tfp_private.get_innermost(results, log_accept_ratio)
    wanted = tf.math.log(tf.constant(target_accept_prob, ratio.dtype))
    says_nothing = (says_nothing_fn or stack.is_short)(results)
    if stack.target_log_prob(results) is not None:
      says_nothing |= ~adaptation_base.is_alive(results)
    return tf.where(says_nothing, wanted, tf.minimum(ratio, 0.0))

  return DualAveragingStepSizeAdaptation(
    kernel,
    num_adaptation_steps=num_adaptation_steps,
    target_accept_prob=target_accept_prob,
    step_size_setter_fn=set_step_size,
    step_size_getter_fn=lambda results: tfp_private.get_innermost(
      results, step_size
    ),
    log_accept_prob_getter_fn=log_accept_prob,
  )
