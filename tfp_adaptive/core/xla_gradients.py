"""Lets slices have second derivatives under XLA, where TF lacks a gradient.

In a compiled function the reverse rule of `tf.slice` is the op
`XlaDynamicUpdateSlice`. TF registers no gradient of this op, so that a second
derivative of a sliced target raises a LookupError. The gradient is

  out = update(x, y, at):   dx = dout, zero where y was written;
                            dy = dout, sliced where y was written.
"""

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops


def register():
  """Registers the gradient, unless it is registered already."""
  try:
    tf.RegisterGradient('XlaDynamicUpdateSlice')(_update_slice_gradient)
  except KeyError:
    pass


def _update_slice_gradient(op, cotangent):
  _, update, indices = op.inputs
  return (
    gen_xla_ops.xla_dynamic_update_slice(
      cotangent, tf.zeros_like(update), indices
    ),
    gen_xla_ops.xla_dynamic_slice(cotangent, indices, tf.shape(update)),
    None,
  )
