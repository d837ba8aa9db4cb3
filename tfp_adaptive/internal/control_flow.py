"""A conditional that leaves large Tensors in place."""

import tensorflow as tf

__all__ = ['apply_if']


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
