"""Turns what the host engine has learned into a kernel of the library."""

import tensorflow as tf

from tfp_adaptive import learned
from tfp_adaptive.core import block_fits
from tfp_adaptive.core import tfp_private
from tfp_adaptive.transport.maps.conditional_gaussian import (
  ConditionalGaussianParams,
)


def kernel_of_host(engine, kernel):
  """Returns the engine's kernel, fixed at what the engine has learned."""
  states = tf.constant(engine.states)
  dtype = states.dtype
  with block_fits.promised(kernel):  # The kernel takes no step.
    results = kernel.bootstrap_results(states)
  results = tfp_private.replace_innermost(
    results,
    preconditioner_params=_params(engine.part, dtype),
    step_size=tf.constant(engine.step_size, dtype),
    num_leapfrog_steps=tf.constant(
      [*engine.lengths.settled, sum(engine.lengths.best)], tf.int32
    ),
  )
  return learned.frozen(kernel, results)


def _params(part, dtype):
  """Returns the params of a matrix or a map in the form of its kernel."""
  if part.is_matrix:
    return tf.constant(part.factor, dtype)
  natural, factor = part.params
  values = natural._asdict() | dict(factor=factor)
  drivers = tf.constant(values.pop('drivers'), tf.int32)
  tensors = {name: tf.constant(value, dtype) for name, value in values.items()}
  return ConditionalGaussianParams(drivers=drivers, **tensors)
