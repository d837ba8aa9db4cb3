"""Computes a digest of a traced program; equal programs have equal digests.

  digest(node) = hash(op, attributes, digests of its inputs)

The digest follows a graph from its outputs backwards, and is the same in any
process. Functions are identified by their own digests. Constants and captured
Tensors are identified by their content. These do not count: names, devices, the
order in which nodes were made, and nodes that no output needs.
"""

import collections
import hashlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Attributes that only name or place a computation.
_NO_CONTENT = frozenset(
  ['config', 'config_proto', 'container', 'executor_type', 'shared_name']
)
_IN_PYTHON = frozenset(['EagerPyFunc', 'PyFunc', 'PyFuncStateless'])
# The order in which a tape sums the terms of a gradient may vary.
_COMMUTATIVE = frozenset(['Add', 'AddN', 'AddV2', 'Mul'])
_MAX_NAMED = 400


class Program(NamedTuple):
  """The digest and the contents of a traced program."""

  digest: str  # Hex digits, equal for equal programs.
  # JSON values that show how two programs differ: counts of ops, digests of
  # constants by shape, and values of scalars.
  contents: dict
  # Whether the program calls Python code, which its digest does not cover.
  calls_python: bool


def describe(concrete, ignored_ops=()):
  """Returns the `Program` of a concrete function.

  For `ignored_ops` of the outermost function only the first input counts. Their
  other inputs are sizes of arrays that hold results.
  """
  definition = concrete.graph.as_graph_def()
  reader = _Reader(definition.library.function)
  num_arguments = len(concrete.graph.inputs) - len(concrete.captured_inputs)
  variables = {id(v.handle): v for v in concrete.variables}
  given = {}
  for i, tensor in enumerate(concrete.graph.inputs):
    if i < num_arguments:
      given[tensor.op.name] = _hash('argument', str(i))
    else:
      captured = concrete.captured_inputs[i - num_arguments]
      value = variables.get(id(captured), captured)
      given[tensor.op.name] = reader.captured(value)
  wanted = [_reference(tensor) for tensor in concrete.graph.outputs]
  wanted += [f'^{op.name}' for op in concrete.graph.control_outputs]
  digest = reader.graph(definition.node, given, wanted, frozenset(ignored_ops))
  return Program(
    digest.hex(),
    reader.contents(),
    any(op in reader.num_ops for op in _IN_PYTHON),
  )


class _Reader:
  """Hashes graphs that share a library of functions; records their contents."""

  def __init__(self, functions):
    self._functions = {f.signature.name: f for f in functions}
    self._digests = {}
    self._tensors = collections.defaultdict(list)
    self._numbers = set()
    self.num_ops = collections.Counter()

  def graph(self, nodes, given, wanted, ignored_ops=frozenset()):
    """Returns the digest of the `wanted` outputs of `NodeDef`s.

    `given` has digests of the arguments by name. `wanted` are references in the
    form of nodes' inputs: name, name:0, ^name. The order of ^name, which are
    side effects, does not count. For `ignored_ops` only the first input counts.
    """
    by_name = {node.name: node for node in nodes}
    done = dict(given)
    stack = [_name(reference) for reference in wanted]
    while stack:
      name = stack[-1]
      if name in done:
        stack.pop()
        continue
      node = by_name[name]
      is_ignored = node.op in ignored_ops
      inputs = node.input[:1] if is_ignored else node.input
      missing = [n for n in map(_name, inputs) if n not in done]
      if missing:
        stack += missing
      else:
        done[name] = self._node(node, inputs, done, is_ignored)
        stack.pop()
    data = [_refer(ref, done) for ref in wanted if not ref.startswith('^')]
    control = sorted(_refer(ref, done) for ref in wanted if ref[0] == '^')
    return _hash(*data, 'after', *control)

  def _node(self, node, inputs, done, is_ignored):
    self.num_ops[node.op] += 1
    data = [_refer(ref, done) for ref in inputs if not ref.startswith('^')]
    control = sorted(_refer(ref, done) for ref in inputs if ref[0] == '^')
    if node.op in _COMMUTATIVE:
      data.sort()
    attributes = []
    if not is_ignored:
      for key in sorted(node.attr):
        if not key.startswith('_') and key not in _NO_CONTENT:
          attributes += [key, self._attribute(node.attr[key], node.op)]
    return _hash(node.op, *attributes, 'inputs', *data, 'after', *control)

  def _attribute(self, value, op):
    kind = value.WhichOneof('value')
    if kind == 'func':
      return self._function(value.func)
    if kind == 'tensor':
      return self.array(tf.make_ndarray(value.tensor))
    if kind == 'list' and value.list.func:
      return _hash(*map(self._function, value.list.func))
    if kind == 's' and op in _IN_PYTHON:
      return b''  # Leaves out the number of a Python function.
    return value.SerializeToString(deterministic=True)

  def _function(self, reference):
    name = reference.name
    if name not in self._digests:
      function = self._functions[name]
      signature = function.signature
      given = {
        argument.name: _hash('argument', str(i))
        for i, argument in enumerate(signature.input_arg)
      }
      wanted = [function.ret[out.name] for out in signature.output_arg]
      wanted += [
        f'^{function.control_ret[name]}' for name in signature.control_output
      ]
      self._digests[name] = self.graph(function.node_def, given, wanted)
    return self._digests[name]

  def captured(self, value):
    """Returns the digest of a captured Tensor or variable."""
    try:
      return self.array(np.asarray(value))
    except (TypeError, ValueError, NotImplementedError, tf.errors.OpError):
      # This is a handle of a table or a data set, see `probe`.
      return _hash('handle', value.dtype.name)

  def array(self, array):
    """Returns the digest of a constant."""
    if array.dtype == object:
      content = repr(array.tolist()).encode()
    else:
      content = np.ascontiguousarray(array).tobytes()
    kind = f'{array.dtype.name}{list(array.shape)}'
    digest = _hash(kind, content)
    self._tensors[kind].append(digest)
    if array.ndim == 0 and len(self._numbers) < _MAX_NAMED:
      self._numbers.add(f'{array.dtype.name} {array.item()!r}')
    return digest

  def contents(self):
    tensors = {
      kind: f'{len(digests)} of them, {_hash(*sorted(digests)).hex()[:8]}'
      for kind, digests in self._tensors.items()
    }
    return dict(
      ops=dict(self.num_ops), tensors=tensors, numbers=sorted(self._numbers)
    )


def _hash(*parts):
  digest = hashlib.sha256()
  for part in parts:
    content = part.encode() if isinstance(part, str) else part
    digest.update(len(content).to_bytes(8, 'little') + content)
  return digest.digest()


def _name(reference):
  return reference.lstrip('^').partition(':')[0]


def _refer(reference, done):
  _, _, output = reference.partition(':')
  return _hash(done[_name(reference)], output or '0')


def _reference(tensor):
  return f'{tensor.op.name}:{tensor.value_index}'
