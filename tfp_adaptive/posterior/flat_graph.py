"""A traced function as one flat graph, and the same graph in float64.

If a graph holds function calls, XLA treats some arguments as constants and
compiles again for every new value. `flat` inlines the calls, which avoids this.

A model with TFP's default dtype computes in float32. If data are many, the
rounding errors of its log density decide acceptance. `in_float64` makes every
float32 tensor, constant and loop variable of the graph float64. Numbers that
the model rounded to float32 keep their rounded values.
"""

import itertools

import tensorflow as tf

from tfp_adaptive.core import tfp_private
from tfp_adaptive.driver import quiet

# Operations whose result depends on the bits of a float32, or that leave the
# graph. In float64 they would compute something else.
_OF_FLOAT32 = ('Bitcast', 'PyFunc', 'Random', 'Quantize', 'XlaCallModule')
_NUMBERS = itertools.count()
_FLOAT, _DOUBLE = tf.float32.as_datatype_enum, tf.float64.as_datatype_enum


def flat(concrete):
  """Returns a concrete function without calls; variables become constants.

  If the graph holds an object that cannot be frozen, such as a lookup table,
  this is a `ValueError` or an error of TensorFlow.
  """
  with quiet.while_freezing():
    found = tfp_private.inlined(concrete)
  num_arguments = len(concrete.inputs) - len(concrete.captured_inputs)
  if len(found.inputs) != num_arguments:
    raise ValueError('The graph reads a resource that cannot be frozen.')
  return found


def refuses_float64(concrete):
  """Returns the type of an operation that float64 would change, or ''."""
  definition = concrete.graph.as_graph_def()
  graphs = [definition.node, *(f.node_def for f in definition.library.function)]
  kinds = {node.op for nodes in graphs for node in nodes}
  found = [k for k in sorted(kinds) if any(part in k for part in _OF_FLOAT32)]
  return found[0] if found else ''


def in_float64(concrete):
  """Returns what `flat` returned with float64 instead of float32.

  TensorFlow raises an error if an operation has no kernel for float64.
  """
  definition = concrete.graph.as_graph_def()
  # TensorFlow finds the bodies of loops by name. The float32 bodies stay, so
  # the float64 bodies need new names.
  names = [f.signature.name for f in definition.library.function]
  renamed = {name: f'{name}_float64_{next(_NUMBERS)}' for name in names}
  for node in definition.node:
    _widen(node, renamed)
  for function in definition.library.function:
    _widen_function(function, renamed)
  for gradient in definition.library.gradient:
    gradient.function_name = renamed[gradient.function_name]
    gradient.gradient_func = renamed[gradient.gradient_func]
  wide = tf.compat.v1.wrap_function(
    lambda: tf.graph_util.import_graph_def(definition, name=''), []
  )
  inside = [
    [wide.graph.get_tensor_by_name(tensor.name) for tensor in tensors]
    for tensors in (concrete.inputs, concrete.outputs)
  ]
  return wide.prune(*inside)


def _widen_function(function, renamed):
  """Changes a function in a graph's library from float32 to float64."""
  signature = function.signature
  signature.name = renamed[signature.name]
  for argument in (*signature.input_arg, *signature.output_arg):
    if argument.type == _FLOAT:
      argument.type = _DOUBLE
  for node in function.node_def:
    _widen(node, renamed)


def _widen(node, renamed):
  """Changes a node to float64 and renames the functions that the node calls."""
  for value in node.attr.values():
    kind = value.WhichOneof('value')
    if kind == 'type' and value.type == _FLOAT:
      value.type = _DOUBLE
    elif kind == 'list':
      for i, entry in enumerate(value.list.type):
        if entry == _FLOAT:
          value.list.type[i] = _DOUBLE
      for function in value.list.func:
        function.name = renamed[function.name]
    elif kind == 'func':
      value.func.name = renamed[value.func.name]
    elif kind == 'tensor' and value.tensor.dtype == _FLOAT:
      array = tf.make_ndarray(value.tensor).astype('float64')
      value.tensor.CopyFrom(tf.make_tensor_proto(array))
