"""What tells a run from another: settings, shapes, and numbers at its start."""

import numpy as np
import tensorflow as tf

from tfp_adaptive.internal import diagnosis

__all__ = ['describe', 'start_values']

_SCALARS = (bool, int, float, str, np.generic, type(None))


def describe(kernel, plan, seed, leaves, recorded):
  """Returns dict of JSON values that must agree for a run to be continued.

  Args:
    kernel: The kernel.
    plan: namedtuple of the counts of steps.
    seed: Two words.
    leaves: State and kernel results, flat.
    recorded: What a step records, flat.
  """
  return dict(
    kernel=diagnosis.kernel_names(kernel),
    **plan._asdict(),
    seed=[int(word) for word in seed],
    leaves=_shapes(leaves),
    recorded=_shapes(recorded),
    **_settings(kernel),
  )


def start_values(leaves):
  """Returns two float64 numbers of each floating leaf, which rounding leaves.

  Size and direction, absolute where small, so that the sum of a few numbers in
  another order is the same start, and another target, its gradient or another
  point is not.
  """
  values = []
  for leaf in leaves:
    if leaf.dtype.is_floating:
      numbers = np.asarray(leaf, np.float64).ravel()
      # Infinities too, and what would overflow when it is squared.
      numbers = np.clip(np.nan_to_num(numbers), -1e100, 1e100)
      size = np.linalg.norm(numbers)
      direction = numbers @ np.cos(np.arange(len(numbers)))
      values += [np.arcsinh(size), direction / (1 + size)]
  return np.asarray(values)


def _shapes(leaves):
  return [f'{leaf.dtype.name}{leaf.shape.as_list()}' for leaf in leaves]


def _settings(kernel):
  """Returns {'Class.parameter': repr} of all numbers and names of the stack."""
  settings = {}
  for k in diagnosis.kernel_stack(kernel):
    for name, value in getattr(k, 'parameters', {}).items():
      for path, scalar in _scalars(value, f'{type(k).__name__}.{name}'):
        # Two kernels of one class.
        while path in settings:
          path += "'"
        settings[path] = repr(scalar)
  return settings


def _scalars(value, path):
  if isinstance(value, tf.Tensor) and value.shape.rank == 0:
    value = value.numpy()
  if isinstance(value, _SCALARS):
    yield path, value.item() if isinstance(value, np.generic) else value
  elif isinstance(value, dict) or hasattr(value, '_asdict'):
    items = value if isinstance(value, dict) else value._asdict()
    for name, inner in items.items():
      yield from _scalars(inner, f'{path}.{name}')
  elif isinstance(value, list | tuple):
    for i, inner in enumerate(value):
      yield from _scalars(inner, f'{path}.{i}')
