"""A digest of Python functions: their code and the data that the code reads.

Programs that call Python (`tf.py_function`) need it, because their graph holds
a number instead of the function. The digest follows bytecode, defaults,
closures and the globals that the code names. It also covers the contents of
containers and instances, and of classes and modules that users wrote.

Library modules, and values without stable content, are identified by name.
Functions of libraries are identified by their names, defaults and the values in
their closures. If the digested value holds more than 20,000 others, as a
compiled function of PyTensor does, only its names and its code are digested.
"""

import ctypes
import dis
import functools
import hashlib
import itertools
import logging
import sys
import sysconfig
import types

import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_DEEPEST = 50
_MOST_PARTS = 20_000
_LIBRARIES = tuple(
  sysconfig.get_path(kind)
  for kind in ('stdlib', 'platstdlib', 'purelib', 'platlib')
)
# Bytecode operations that store a name, and those that may stand between an
# addition in place and its store.
_STORES = frozenset(['STORE_ATTR', 'STORE_DEREF', 'STORE_GLOBAL'])
_MOVES = frozenset(['CACHE', 'ROT_TWO', 'SWAP'])
_PACKAGE = __name__.partition('.')[0]
# Types of class attributes that are digested. Other attributes may be caches.
_DEFINED = (
  types.FunctionType,
  property,
  functools.cached_property,
  staticmethod,
  classmethod,
  tuple,
  frozenset,
  np.ndarray,
  *_PLAIN[:6],
)
# Attributes of TensorFlow's and TFP's classes that change with use, or that
# depend on objects created earlier.
_CACHES = frozenset(
  [
    '__class__',
    '_cache',
    '_constructor_name_scope',
    '_name_scope',
    '_single_sample_distributions',
  ]
)
# Classes of TensorFlow whose attributes differ between processes: names, counts
# and addresses.
_GRAPHS = frozenset(
  [
    'AtomicFunction',
    'ConcreteFunction',
    'FuncGraph',
    'Graph',
    'WrappedFunction',
  ]
)
# Types whose state belongs to the process and changes with use.
_BY_TYPE = (
  np.random.RandomState,
  np.random.Generator,
  np.random.BitGenerator,
  itertools.count,
)


class _TooLarge(Exception):
  """A value holds too many other values."""


def digest(value):
  """Returns hex digits for a function with its code and data, or any value."""
  try:
    return _digest(_parts(value, {}, 0, itertools.count()))
  except _TooLarge:
    if isinstance(value, dict):
      value = [*value, *value.values()]
    if isinstance(value, (list, tuple)):  # Other items may be small enough.
      return _digest(digest(item).encode() for item in value)
    code = [type(value).__qualname__, None, None]
    if isinstance(value, types.FunctionType):
      code[1:] = value.__qualname__, value.__code__
    return _digest(_parts(code, {}, 0, itertools.count()))


def _digest(parts):
  reader = hashlib.sha256()
  for part in parts:
    reader.update(len(part).to_bytes(8, 'little') + part)
  return reader.hexdigest()


def _parts(value, seen, depth, count):
  """Yields bytes that identify `value`; for a value seen before, its number.

  `seen` maps the ids of all earlier values to (number, value); it grows.
  `depth` is the number of values that contain this value. `count` counts all
  values of the digest. Too many of them raise `_TooLarge`.
  """
  if next(count) > _MOST_PARTS:
    raise _TooLarge
  if isinstance(value, _PLAIN):
    yield repr(value).encode()
    return
  if id(value) in seen or depth > _DEEPEST:
    yield f'seen {seen[id(value)][0] if id(value) in seen else None}'.encode()
    return
  # `seen` keeps the value, because a deleted value's id may be used again.
  seen[id(value)] = len(seen), value
  kind = type(value).__qualname__
  if hasattr(value, '__array__') and not isinstance(value, type):
    yield kind.encode()
    yield from _array_parts(value)
    return
  if isinstance(value, set | frozenset):
    # Items are sorted by digest, because a set's order depends on the process.
    held = sorted(
      _digest(_parts(item, dict(seen), depth + 1, count)) for item in value
    )
  else:
    held = list(_inner(value))
  # The number separates these values from those that follow.
  yield f'{kind} of {len(held)}'.encode()
  for inner in held:
    yield from _parts(inner, seen, depth + 1, count)


def _array_parts(value):
  try:
    array = np.asarray(value)
  except NotImplementedError:  # The digest of its graph covers this Tensor.
    return
  yield f'{array.dtype}{array.shape}'.encode()
  yield (
    repr(array.tolist()).encode()
    if array.dtype == object
    else (np.ascontiguousarray(array).tobytes())
  )


def _inner(value):
  """Returns the parts of a value as a list."""
  if isinstance(value, types.ModuleType):
    return [value.__name__]
  if isinstance(value, types.BuiltinFunctionType):
    return [value.__module__, value.__qualname__]
  if isinstance(value, type):
    return [value.__name__, *_methods(value)]
  if isinstance(value, property):
    return [value.fget]
  if isinstance(value, functools.cached_property):
    return [value.func]
  if isinstance(value, logging.Logger | logging.Handler):
    return [value.name]
  if isinstance(value, ctypes.CDLL):
    return [value._name]
  if isinstance(value, staticmethod | classmethod):
    return [value.__func__]
  if isinstance(value, types.CodeType):
    return [value.co_code, value.co_names, value.co_varnames, value.co_consts]
  if isinstance(value, functools.partial):
    return [value.func, value.args, value.keywords]
  if isinstance(value, types.MethodType):
    return [value.__func__, value.__self__]
  if isinstance(value, types.FunctionType):
    if value.__code__.co_filename.startswith(_LIBRARIES):
      name = [value.__module__, value.__qualname__]
      defaults = [value.__defaults__, value.__kwdefaults__]
      return [*name, *defaults, *_held_by_function(value)]
    return _function_parts(value)
  if type(value).__name__ in _GRAPHS:  # `program_digest` covers these.
    return [type(value).__name__]
  if hasattr(value, 'python_function'):  # The value is a `tf.function`.
    return [value.python_function]
  if isinstance(value, dict):
    return [part for item in value.items() for part in item]
  if isinstance(value, list | tuple):
    return list(value)
  return [type(value), *_held(value)]


def _methods(kind):
  """Returns dicts of what a class and its bases define if users wrote them."""
  return [
    {
      name: part
      for name, part in sorted(vars(base).items())
      # Python's own attributes contain the file and the line.
      if isinstance(part, _DEFINED)
      and (callable(part) or not name.startswith('__'))
    }
    for base in kind.__mro__
    if _is_written(base.__module__)
  ]


def _is_written(name):
  """Returns whether a user wrote a module, in a file or interactively."""
  if name.partition('.')[0] == _PACKAGE:  # This library.
    return False
  file = getattr(sys.modules.get(name), '__file__', None)
  if file is None:
    return name == '__main__'
  return not file.startswith(_LIBRARIES)


def _held(value):
  """Returns the dict and slots of an instance, or else the parts of a copy."""
  if isinstance(value, _BY_TYPE):
    return []
  # Slots of a library's class may be caches.
  slots = [
    _mangled(base, name)
    for base in type(value).__mro__
    if _is_written(base.__module__)
    for name in _slots(base)
  ]
  own = getattr(value, '__dict__', {})
  held = [_own(value, own)]
  held += [getattr(value, name, None) for name in slots]
  if own or slots:
    return held
  try:
    parts = value.__reduce_ex__(2)
    # `parts[3:5]` are iterators of items.
    return [*parts[:3], *map(list, filter(None, parts[3:5]))]
  except Exception:  # For example, a lock cannot be copied.
    return held


def _own(value, held):
  """Returns the dict `held` of an instance, without caches of TFP's classes.

  TFP's distributions and bijectors keep their arguments in `_parameters`. Their
  other attributes are computed, and some change with use.
  """
  parameters = held.get('_parameters')
  if isinstance(parameters, dict) and not _is_written(type(value).__module__):
    held = parameters
  counted = _CACHES.union(
    *(
      _counted(part.__code__)
      for base in type(value).__mro__
      if _is_written(base.__module__)
      for part in vars(base).values()
      if isinstance(part, types.FunctionType)
    )
  )
  return {
    name: part
    for name, part in held.items()
    if not name.startswith('_self_') and name not in counted
  }


def _slots(kind):
  names = vars(kind).get('__slots__', ())
  return [names] if isinstance(names, str) else list(names)


def _mangled(kind, name):
  is_private = name.startswith('__') and not name.endswith('__')
  return f'_{kind.__name__.lstrip("_")}{name}' if is_private else name


def _held_by_function(function, counted=()):
  """Returns the values in a function's closure, without `counted` names."""
  cells = zip(function.__code__.co_freevars, function.__closure__ or ())
  return [_content(cell) for name, cell in cells if name not in counted]


def _function_parts(function):
  names, counted = _names(function.__code__), _counted(function.__code__)
  held = _held_by_function(function, counted)
  read = names & {*function.__globals__} - counted
  read = {name: function.__globals__[name] for name in read}
  return [
    function.__code__,
    function.__defaults__,
    function.__kwdefaults__,
    *held,
    dict(sorted(read.items())),
    _attributes_of_modules(names, [*held, *read.values()]),
  ]


def _attributes_of_modules(names, values):
  """Returns {module.name: value} that code may read from users' modules.

  The code looks up `names`, and holds or reads `values`, some of them modules.
  """
  modules = [v for v in values if isinstance(v, types.ModuleType)]
  found, seen = {}, set()
  while modules:
    module = modules.pop()
    if module.__name__ in seen or not _is_written(module.__name__):
      continue
    seen.add(module.__name__)
    for name in names & set(vars(module)):
      found[f'{module.__name__}.{name}'] = value = vars(module)[name]
      if isinstance(value, types.ModuleType):
        modules.append(value)
  return dict(sorted(found.items()))


def _counted(code):
  """Returns the names to which a function, or one inside it, adds in place.

  Such names may count calls, and then change whenever the function runs.
  """
  found, is_added = set(), False
  for step in dis.get_instructions(code):
    if is_added and step.opname in _STORES:
      found.add(step.argval)
    is_added &= step.opname in _MOVES
    is_added |= step.opname.startswith('INPLACE_') or (
      step.opname == 'BINARY_OP' and step.argrepr.endswith('=')
    )
  inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
  return found.union(*map(_counted, inner))


def _names(code):
  """Returns the names that a function, or one inside it, looks up."""
  inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
  return set(code.co_names).union(*map(_names, inner))


def _content(cell):
  try:
    return cell.cell_contents
  except ValueError:  # The cell has no value yet.
    return None
