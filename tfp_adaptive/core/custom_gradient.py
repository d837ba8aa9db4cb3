"""Custom gradients that are freed with the graph they belong to.

In a graph, `tf.custom_gradient` adds the gradient of every call to a registry
of the process. An entry refers to its graph and is never removed, so that every
traced program stays in memory, 7 to 20 MB for each kernel. Here the entry moves
to the operation that it differentiates. TF looks for a gradient there first,
and the operation is freed with its graph.
"""

import functools
import warnings

import tensorflow as tf

from tfp_adaptive.core import tfp_private


def custom_gradient(function):
  """Decorates as `tf.custom_gradient` does; all arguments must be Tensors."""
  differentiable = tf.custom_gradient(function)

  @functools.wraps(function)
  def call(*args):
    outputs = differentiable(*args)
    if not tf.executing_eagerly():
      tfp_private.own_gradient(tf.nest.flatten(outputs)[0].op)
    return outputs

  return call


def let_go(graph):
  """Makes sure that a traced graph is freed once no program needs it.

  Targets and many distributions call `tf.custom_gradient`, and the cache of
  TFP's bijectors keeps graphs too. The graphs of loops and branches are treated
  as well, but not the graph of a `tf.function` that is called inside.
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


def in_graph(function, *specs):
  """Returns what a function returns in a graph of its own; computes nothing.

  `specs` describe the Tensors that the function takes.
  """
  found = []

  def trace(*args):
    found.append(function(*args))
    let_go(tf.compat.v1.get_default_graph())
    return tf.zeros([])

  with warnings.catch_warnings():
    warnings.simplefilter('ignore', UserWarning)  # About slow seeded draws.
    tf.function(trace, autograph=False).get_concrete_function(*specs)
  return found[0]
