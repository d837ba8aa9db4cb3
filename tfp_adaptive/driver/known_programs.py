"""Reuses compiled programs of this process if their whole content is equal.

A kernel may be built again, for example if a notebook cell runs again or
`sample_posterior` is called again. The kernel is then traced, which reads all
that may have changed. If an equal program was compiled before, that one runs.
"""

import collections

import numpy as np
import tensorflow as tf

from tfp_adaptive.driver import program_digest

_MOST = 4  # Most programs to keep; each takes some megabytes.
_LARGEST = 2**26  # Most bytes of a program to keep, with its data.
_HANDLES = (tf.resource, tf.variant)


class Entry:
  """A `ConcreteFunction`, and all results that were derived from it."""

  def __init__(self, function):
    self.function, self._made = function, {}

  def once(self, name, make):
    """Returns the result of the first call of `make()` for a hashable name."""
    if name not in self._made:
      self._made[name] = make()
    return self._made[name]


class Known:
  """The programs that ran last."""

  def __init__(self):
    self._entries = collections.OrderedDict()

  def same(self, concrete, jit_compile):
    """Returns the concrete function of an equal program, or the given one.

    A program that reads a variable, a table or a file, or that calls Python, is
    never shared, because what it reads may change while its digest stays equal.
    A program with much data is not shared either.
    """
    return self.entry(concrete, jit_compile).function

  def entry(self, concrete, jit_compile=None):
    """Returns the `Entry` of an equal program, or a new one, see `same`."""
    new = Entry(concrete)
    definition = concrete.graph.as_graph_def()
    is_large = _num_bytes(concrete, definition) > _LARGEST
    if is_large or _reads_state(concrete, definition):
      return new
    program = program_digest.describe(concrete)
    if program.calls_python:
      return new
    # The digest does not cover the field names and the shapes of the arguments.
    key = program.digest, jit_compile, str(concrete.structured_input_signature)
    found = self._entries.pop(key, new)
    if not _returns_the_same(found.function, concrete):
      found = new
    self._entries[key] = found
    while len(self._entries) > _MOST:
      self._entries.popitem(last=False)
    return found


def _reads_state(concrete, definition):
  """Returns whether the program reads a variable, a table or a file."""
  inner = (function.node_def for function in definition.library.function)
  return any(
    tensor.dtype in _HANDLES for tensor in concrete.captured_inputs
  ) or any(
    'File' in node.op for nodes in (definition.node, *inner) for node in nodes
  )


def _num_bytes(concrete, definition):
  """Returns the size of the graph and of its captured Tensors."""
  captured = sum(
    int(np.prod(tensor.shape)) * tensor.dtype.size
    for tensor in concrete.captured_inputs
    if tensor.shape.is_fully_defined()
  )
  return captured + definition.ByteSize()


def _returns_the_same(one, other):
  """Returns whether two functions return the same structure and classes."""
  try:
    tf.nest.assert_same_structure(
      one.structured_outputs, other.structured_outputs, check_types=True
    )
  except (TypeError, ValueError):
    return False
  return True
