"""Step sizes tuned by TFP's dual averaging, and how far they may go.

Where every proposal is accepted, as with a flat likelihood, a search for an
acceptance below 1 raises the step size for ever. Within these bounds its square
and its inverse's are numbers of the dtype.
"""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import arguments
from tfp_adaptive.core import tfp_private

__all__ = ['bounded', 'largest', 'tuned']


def largest(dtype):
  """Returns the upper bound, 4e9 in float32; its inverse is the lower one."""
  return float(tf.as_dtype(dtype).max) ** 0.25


def bounded(step_size):
  """Returns a step size, a Tensor, within the bounds."""
  limit = largest(step_size.dtype)
  return tf.clip_by_value(step_size, 1.0 / limit, limit)


def tuned(
  kernel,
  num_adaptation_steps,
  target_accept_prob,
  log_accept_prob_fn=None,
  step_size='step_size',
):
  """Puts TFP's dual averaging of a step size around a kernel.

  Args:
    kernel: One whose results hold the step size.
    num_adaptation_steps: Steps that tune.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    log_accept_prob_fn: (results) -> log min(1, exp(r)), [chains...]; by default
      that of the innermost `log_accept_ratio`.
    step_size: Name of the innermost result that is tuned, within the bounds.

  Returns:
    A `tfp.mcmc.DualAveragingStepSizeAdaptation`.

  Raises:
    ValueError: If `target_accept_prob` is not in (0, 1).
  """
  arguments.check_accept_prob(target_accept_prob)

  def set_step_size(results, new):
    return tfp_private.replace_innermost(results, **{step_size: bounded(new)})

  return tfp.mcmc.DualAveragingStepSizeAdaptation(
    kernel,
    num_adaptation_steps=num_adaptation_steps,
    target_accept_prob=target_accept_prob,
    step_size_setter_fn=set_step_size,
    step_size_getter_fn=lambda results: tfp_private.get_innermost(
      results, step_size
    ),
    log_accept_prob_getter_fn=log_accept_prob_fn or _log_accept_prob,
  )


def _log_accept_prob(results):
  ratio = tfp_private.get_innermost(results, 'log_accept_ratio')
  return tf.minimum(ratio, 0.0)
