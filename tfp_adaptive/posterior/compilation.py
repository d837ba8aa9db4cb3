"""Decides from the operations of a density whether XLA compiles its steps.

On a CPU, XLA factors a matrix in its own loops, but TensorFlow calls an
optimized library. For 8 chains and 100 x 100 matrices, value and gradient of a
Cholesky factor take 29 ms with XLA and 3 ms without. At 10 x 10 both take the
same time. XLA cannot compile some operations at all, for example a log
determinant.
"""

import tensorflow as tf

from tfp_adaptive.driver import blocks

# Operations that are slow in XLA on a CPU if matrices exceed `_LARGEST_SIZE`.
_SLOW = frozenset({'Cholesky', 'SelfAdjointEigV2', 'Svd', 'Qr', 'MatrixSolve'})
_LARGEST_SIZE = 20


def choose(jit_compile, density):
  """Returns whether XLA compiles the steps, and why not, as words or ''."""
  if density.in_python:
    return False, '; steps in NumPy'
  if jit_compile is not None:
    return jit_compile, ''
  reason = obstacle(density.graph) or refusal(density.lower)
  return not reason, reason and f'; steps without XLA: {reason}'


def obstacle(graph):
  """Returns why XLA should not compile the graph of a density, or ''."""
  is_on_cpu = not tf.config.list_logical_devices('GPU')
  # Operations inside loops are not checked, because most are small and of
  # unknown size.
  for operation in graph.get_operations():
    kind, size = operation.type, _last(operation.inputs)
    if is_on_cpu and kind in _SLOW and (size or 0) > _LARGEST_SIZE:
      return f'XLA is slow at {kind} of {size} x {size} on a CPU'
  return ''


def refusal(lower):
  """Returns why XLA refuses a density, or ''; `lower()` raises XLA's error."""
  try:
    lower()
  except (ValueError, TypeError, LookupError, tf.errors.OpError) as error:
    said = str(error).split("HLO text: '")[-1]
    operation = blocks.refused_operation(said)
    lines = said.splitlines() or [type(error).__name__]
    return f'XLA has no {operation}' if operation else f'it says {lines[0]:.99}'
  return ''


def _last(inputs):
  shape = inputs[0].shape if inputs else tf.TensorShape([])
  return shape[-1] if shape.rank else None
