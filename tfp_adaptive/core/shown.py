"""Prints kernels and parts as the calls that build them."""

import functools
import inspect
import math
import textwrap
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import ParamSpec
from typing import TypeVar

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces

_Arguments = ParamSpec('_Arguments')
_Part = TypeVar('_Part')

# Types with a field `shown`.
_PARTS = (
  interfaces.Criterion,
  interfaces.GaussianPrior,
  interfaces.Optimizer,
  interfaces.Preconditioner,
  interfaces.Surrogate,
  interfaces.Transport,
)
_WIDTH = 80
# Inner kernels have lines of their own; names and TFP's functions are left out.
_NOT_SHOWN = {
  'inner_kernel',
  'name',
  'reduce_fn',
  'step_size_setter_fn',
  'step_size_getter_fn',
  'log_accept_prob_getter_fn',
}


def remembers_call(
  factory: Callable[_Arguments, _Part],
) -> Callable[_Arguments, _Part]:
  """Decorates a factory, so that a part shows the arguments of the factory.

  Arrays are shown by shape and dtype, so that a part does not keep them alive.
  A part is a NamedTuple with a field `shown`.
  """
  signature = inspect.signature(factory)

  @functools.wraps(factory)
  def build(*args, **options):
    part = factory(*args, **options)
    given = signature.bind(*args, **options).arguments
    return part._replace(shown=_call(factory.__name__, given))

  return build


def kernel(kernel: Any) -> str:
  """Returns nested kernels with their arguments, one below the other, as text.

  Arguments that are `None` or have their default are left out.
  """
  defaults = {
    name: parameter.default
    for name, parameter in inspect.signature(
      type(kernel).__init__
    ).parameters.items()
  }
  given = {
    name: value
    for name, value in kernel.parameters.items()
    if name not in _NOT_SHOWN and not _is_same(value, defaults.get(name))
  }
  lines = _call(type(kernel).__name__, given)
  inner = kernel.parameters.get('inner_kernel')
  if inner is None:
    return lines
  return f'{lines}\n{textwrap.indent(_kernel(inner), "  ")}'


_kernel = kernel


def _is_same(value: Any, default: Any) -> bool:
  if tf.is_tensor(value):  # TFP's kernels convert their arguments to Tensors.
    value = tf.get_static_value(value)
    value = value.item() if value is not None and value.size == 1 else value
  if isinstance(value, float) and isinstance(default, float):
    return math.isclose(value, default, rel_tol=1e-6)
  is_plain = isinstance(value, (bool, int, float, str, tuple))
  return value is None or (is_plain and value == default)


def _call(name: str, arguments: Mapping[str, Any]) -> str:
  """Returns a call of a function, in one line or with a line per argument."""
  shown = [
    f'{key}={_value(value)}'
    for key, value in arguments.items()
    if value is not None
  ]
  line = f'{name}({", ".join(shown)})'
  if len(line) <= _WIDTH:
    return line
  # Four spaces, because kernels inside are indented by two.
  rows = textwrap.indent(',\n'.join(shown), '    ')
  return f'{name}(\n{rows})'


def _value(value: Any) -> str:
  """Returns an argument as it is shown, without addresses of memory."""
  if isinstance(value, (bool, int, str, type(None))):
    return repr(value)
  if isinstance(value, (float, np.floating)):
    return repr(float(f'{value:.4g}'))
  if isinstance(value, functools.partial):
    return _call(function(value.func), value.keywords)
  if isinstance(value, _PARTS):
    return repr(value)
  if tf.is_tensor(value) or isinstance(value, np.ndarray):
    return _array(value)
  if isinstance(value, (list, tuple)):
    items = ', '.join(map(_value, value))
    return f'[{items}]' if isinstance(value, list) else f'({items})'
  if isinstance(value, Mapping):
    items = [f'{key!r}: {_value(item)}' for key, item in value.items()]
    return f'{{{", ".join(items)}}}'
  if callable(value):
    return function(value)
  return type(value).__name__


def function(called: Callable) -> str:
  """Returns the name of a function, or of the type of another callable."""
  if inspect.ismethod(called):
    return f'{type(called.__self__).__name__}.{called.__name__}'
  name = getattr(called, '__qualname__', type(called).__name__)
  return name.rpartition('<locals>.')[-1]


def _array(value):
  known = tf.get_static_value(value) if tf.is_tensor(value) else value
  if known is not None and known.size == 1:
    return _value(known.item())
  dtype = tf.as_dtype(value.dtype).name
  return f'{dtype}{list(value.shape)}'
