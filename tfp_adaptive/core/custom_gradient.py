"""Custom gradients that are freed with the graph they belong to.

In a graph `tf.custom_gradient` enters the gradient of every call, under a name
of its own, in a registry of the process. An entry refers to its graph and is
never removed: every program traced stays in memory, 7 to 20 MB a kernel. Here
the entry goes over to the operation that it differentiates, where TF looks for
a gradient first, and which dies with its graph.
"""

import functools

import tensorflow as tf

from tfp_adaptive.core import tfp_private

__all__ = ['custom_gradient', 'let_go']


def custom_gradient(function):
  """Decorates as `tf.custom_gradient` does; arguments are Tensors alone."""
  differentiable = tf.custom_gradient(function)

  @functools.wraps(function)
  def call(*args):
    outputs = differentiable(*args)
    if not tf.executing_eagerly():
      tfp_private.own_gradient(tf.nest.flatten(outputs)[0].op)
    return outputs

  return call


def let_go(graph):
  """Makes sure that a graph is freed once no program needs it.

  A target may call `tf.custom_gradient`, and many distributions do. Loops and
  branches belong to the graph; a `tf.function` called there has its own life.
  The cache of TFP's bijectors keeps graphs as well.

  Args:
    graph: A `tf.Graph`, traced to its end.
  """
  tfp_private.forget_bijections(graph)
  graphs, seen = [graph], set()
  while graphs:
    graph = graphs.pop()
    if id(graph) in seen:
      continue
    seen.add(id(graph))
    for op in graph.get_operations():
      tfp_private.own_gradient(op)
      graphs += tfp_private.inner_graphs(op)
