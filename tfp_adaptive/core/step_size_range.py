"""How far a tuned step size may go.

Where every proposal is accepted, as with a flat likelihood, a search for an
acceptance below 1 raises the step size for ever. Within these bounds its square
and its inverse's are numbers of the dtype.
"""

import tensorflow as tf

from tfp_adaptive.core import tfp_private

__all__ = ['bounded', 'largest', 'setter']


def largest(dtype):
  """Returns the upper bound, 4e9 in float32; its inverse is the lower one."""
  return float(tf.as_dtype(dtype).max) ** 0.25


def bounded(step_size):
  """Returns a step size, a Tensor, within the bounds."""
  limit = largest(step_size.dtype)
  return tf.clip_by_value(step_size, 1.0 / limit, limit)


def setter(name='step_size'):
  """Returns TFP's `step_size_setter_fn`, within the bounds.

  Args:
    name: Of the innermost result that is set.
  """

  def set_step_size(results, step_size):
    return tfp_private.replace_innermost(results, **{name: bounded(step_size)})

  return set_step_size
