"""Compiled programs of this process, known again by all of their content.

A kernel that is built anew, as by a cell of a notebook that runs again or by
another call of `sample_posterior`, is traced, which reads whatever changed; if
the program is one that was compiled before, that one runs.
"""

import collections

import numpy as np
import tensorflow as tf

from tfp_adaptive.driver import program_digest

__all__ = ['Known']

_MOST = 4  # Programs, each some megabytes ...
_LARGEST = 2**26  # ... and the data that it holds, at most so many bytes.
_HANDLES = (tf.resource, tf.variant)


class Known:
  """The last programs that were run."""

  def __init__(self):
    self._functions = collections.OrderedDict()

  def same(self, concrete, jit_compile):
    """Returns the function of an equal program, or the given one.

    What reads a variable or a table, or calls Python, may change without its
    program: it is never shared. Nor is what holds much data.

    Args:
      concrete: `tf.types.experimental.ConcreteFunction`.
      jit_compile: Whether XLA compiles it.
    """
    if _num_bytes(concrete) > _LARGEST or _reads_state(concrete):
      return concrete
    program = program_digest.describe(concrete)
    if program.calls_python:
      return concrete
    # Names of fields and shapes of the arguments are no part of a program.
    key = program.digest, jit_compile, str(concrete.structured_input_signature)
    found = self._functions.pop(key, concrete)
    if not _returns_the_same(found, concrete):
      found = concrete
    self._functions[key] = found
    while len(self._functions) > _MOST:
      self._functions.popitem(last=False)
    return found


def _reads_state(concrete):
  return any(tensor.dtype in _HANDLES for tensor in concrete.captured_inputs)


def _num_bytes(concrete):
  """Returns the size of the graph and of what it has captured."""
  captured = sum(
    int(np.prod(tensor.shape)) * tensor.dtype.size
    for tensor in concrete.captured_inputs
    if tensor.shape.is_fully_defined()
  )
  return captured + concrete.graph.as_graph_def().ByteSize()


def _returns_the_same(one, other):
  """Returns whether both return the same structure, classes included."""
  try:
    tf.nest.assert_same_structure(
      one.structured_outputs, other.structured_outputs, check_types=True
    )
  except (TypeError, ValueError):
    return False
  return True
