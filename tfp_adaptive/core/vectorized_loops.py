"""Lets `tf.vectorized_map` keep loops that all elements leave together.

Elements are the rows over which a function is mapped. An automatically batched
joint distribution vectorizes its density. TF then converts a loop to a loop in
which elements may end at different iterations. XLA cannot compile the converted
loop, and without XLA this loop is slow. If the condition is the same for all
elements, as in `tf.scan`, a plain loop with the vectorized body gives the same
results.
"""

import contextlib
import threading

import tensorflow as tf

from tfp_adaptive.core.tfp_private import pfor

_KINDS = 'While', 'StatelessWhile'
_LOCK = threading.RLock()


@contextlib.contextmanager
def in_step():
  """Keeps loops that all elements leave together while the context is open."""
  registry = pfor._pfor_converter_registry
  with _LOCK:
    before = {kind: registry[kind] for kind in _KINDS}
    registry.update(dict.fromkeys(_KINDS, _converted))
    try:
      yield
    finally:
      registry.update(before)


def _converted(pfor_input):
  """Returns the converted outputs of a loop."""
  loop = _Loop(pfor_input)
  is_stacked = loop.is_stacked()
  if is_stacked is not None:
    before = list(pfor_input.inputs)
    to_stack = [
      i for i, x in enumerate(before) if is_stacked[i] and not x.is_stacked
    ]
    pfor_input.stack_inputs(stack_indices=to_stack, tile_variants=True)
    try:
      return loop.vectorized()
    except _OtherStackingError:
      pfor_input.inputs[:] = before
  return pfor.WhileV2(pfor_input)()


class _OtherStackingError(Exception):
  """Raised if an iteration makes a common value differ between elements."""


class _Loop:
  """A loop inside of a vectorized function, from TF's `_PforInput`."""

  def __init__(self, pfor_input):
    self._input, self._pfor = pfor_input, pfor_input.pfor
    # WhileV2 reads the attributes of the operation.
    self._known = pfor.WhileV2(pfor_input)
    length = tf.get_static_value(self._pfor.loop_len_vector)
    length = self._pfor.loop_len_vector if length is None else length
    self._length = length[0]

  def is_stacked(self):
    """Returns which values of the loop depend on the element, [inputs].

    `None` if elements may leave the loop at different iterations.
    """
    is_stacked = [x.is_stacked for x in self._input.inputs]
    while True:
      found = _depends(self._known._body_func.graph, is_stacked)
      both = [old or new for old, new in zip(is_stacked, found, strict=True)]
      if both == is_stacked:
        break
      is_stacked = both
    goes_on = _depends(self._known._cond_func.graph, is_stacked)
    return None if any(goes_on) else is_stacked

  def vectorized(self):
    """Returns the outputs of one loop for all elements."""
    kinds = [x.is_stacked for x in self._input.inputs]

    def call(function, tensors):
      return self._call(function, list(map(pfor.wrap, tensors, kinds)))

    def turn(*tensors):
      outputs = call(self._known._body_func, tensors)
      if any(x.is_stacked > is_it for x, is_it in zip(outputs, kinds)):
        raise _OtherStackingError
      # An output may be the same for all elements although the input is not.
      return [
        (out if out.is_stacked or not is_stacked else self._stacked(out)).t
        for out, is_stacked in zip(outputs, kinds, strict=True)
      ]

    outputs = tf.while_loop(
      lambda *tensors: call(self._known._cond_func, tensors)[0].t,
      turn,
      [x.t for x in self._input.inputs],
      shape_invariants=self._known._output_shapes(),
      parallel_iterations=self._known._parallel_iterations,
      maximum_iterations=self._most_turns(),
    )
    return list(map(pfor.wrap, outputs, kinds))

  def _most_turns(self):
    """Returns the largest number of iterations, which XLA needs, or `None`."""
    most = tf.get_static_value(self._input.op.inputs[1])
    is_count = most is not None and most.shape == () and most.dtype == 'int32'
    return int(most) if is_count and most >= 0 else None

  def _stacked(self, wrapped):
    tensor = pfor._stack(wrapped.t, [self._length]).t
    if tensor.dtype == tf.variant:
      tensor = pfor._tile_variant_with_length(tensor, [self._length])
    return pfor.wrap(tensor, True)

  def _call(self, function, inputs):
    """Returns the converted outputs of a function of the loop."""
    converter = pfor.PFor(
      loop_var=self._pfor.loop_var,
      loop_len=self._length,
      pfor_ops=function.graph.get_operations(),
      fallback_to_while_loop=self._pfor.fallback_to_while_loop,
      all_indices=self._pfor.all_indices,
      all_indices_partitioned=self._pfor.all_indices_partitioned,
      pfor_config=self._pfor.pfor_config,
    )
    return pfor._convert_function_call(function, converter, inputs)


def _depends(graph, is_stacked):
  """Returns which outputs of a graph depend on its stacked inputs."""
  reached = {x.name for x, is_it in zip(graph.inputs, is_stacked) if is_it}
  for operation in graph.get_operations():  # In the order of their creation.
    if any(x.name in reached for x in operation.inputs):
      reached.update(x.name for x in operation.outputs)
  return [x.name in reached for x in graph.outputs]
