"""Control flow that XLA leaves alone."""

import tensorflow as tf

__all__ = ['apply_if', 'in_stage']


def apply_if(predicate, function, *values):
  """Returns `function(*values)` where the predicate holds, else `values`.

  A loop of at most one turn, not `tf.cond`: XLA passes values through a loop
  in place, but copies them in both branches of a conditional.

  Args:
    predicate: [] bool.
    function: Takes and returns structures like `values`.
    *values: Structures of Tensors.

  Returns:
    A tuple with the structure of `values`.
  """
  _, results = tf.while_loop(
    lambda goes_on, _: goes_on,
    lambda _, values: (tf.constant(False), tuple(function(*values))),
    (predicate, values),
  )
  return results


def in_stage(function, *args):
  """Returns `function(*args)`, computed once under XLA.

  XLA on CPU fuses what it computes into what uses it, reductions and small
  products too, and computes it again for every entry there: a chain of small
  decompositions took a thousand times as long. A loop of one turn ends that.

  Args:
    function: Takes `args` and no other Tensor; returns a structure of Tensors.
    *args: Structures of Tensors, of static shapes, floating first.

  Returns:
    What the function returns.
  """
  first = tf.reshape(tf.nest.flatten(args)[0], [-1])[0]
  specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, args)
  traced = tf.function(function, autograph=False).get_concrete_function(*specs)
  start = tf.nest.map_structure(
    lambda spec: tf.zeros(spec.shape, spec.dtype), traced.structured_outputs
  )
  # True of all numbers and of NaN, but neither XLA nor a graph can know: what
  # is negated here would be rewritten to be False of NaN.
  goes = tf.math.is_nan(first) | (first <= 0.0) | (first > 0.0)
  (results,) = apply_if(goes, lambda _: [traced(*args)], start)
  return results
