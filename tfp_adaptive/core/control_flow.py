"""A conditional without copies under XLA, and code that XLA runs only once."""

import tensorflow as tf


def apply_if(predicate, function, *values):
  """Returns `function(*values)` if the predicate holds, else `values`, a tuple.

  The conditional is a loop of at most one iteration instead of `tf.cond`. XLA
  keeps values of a loop in place, but copies them in branches of `tf.cond`.
  """
  _, results = tf.while_loop(
    lambda goes_on, _: goes_on,
    lambda _, values: (tf.constant(False), tuple(function(*values))),
    (predicate, values),
  )
  return results


def in_stage(function, *args):
  """Returns `function(*args)`, computed once under XLA.

  XLA on CPU fuses a value into the code that uses the value, and computes it
  again for every entry of the result. This made a chain of small decompositions
  a thousand times slower. A loop of one iteration prevents the fusion.

  The function may use no other Tensor than `args`. These are structures of
  Tensors with static shapes, a floating Tensor first.
  """
  first = tf.reshape(tf.nest.flatten(args)[0], [-1])[0]
  specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, args)
  traced = tf.function(function, autograph=False).get_concrete_function(*specs)
  start = tf.nest.map_structure(
    lambda spec: tf.zeros(spec.shape, spec.dtype), traced.structured_outputs
  )
  # Always true, also for NaN, but XLA and graph optimizers do not know. They
  # would rewrite a negated comparison, which would then be False for NaN.
  goes = tf.math.is_nan(first) | (first <= 0.0) | (first > 0.0)
  (results,) = apply_if(goes, lambda _: [traced(*args)], start)
  return results
