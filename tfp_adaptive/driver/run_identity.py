"""What tells a run from another: programs with their data, start, settings."""

import hashlib

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import _version
from tfp_adaptive.core import custom_gradient
from tfp_adaptive.core import stack
from tfp_adaptive.driver import code_digest
from tfp_adaptive.driver import diagnosis
from tfp_adaptive.driver import program_digest

__all__ = ['describe', 'differences']

_SCALARS = (bool, int, float, str, np.generic, type(None))
_MOST_NAMED = 4
_LONGEST = 80


def describe(kernel, plan, seed, jit_compile, state, recorded, trace_fn, step):
  """Returns dict of JSON values that must agree for a run to be continued.

  Args:
    kernel: The kernel.
    plan: namedtuple of the counts of steps.
    seed: Two words.
    jit_compile: Whether XLA compiles the steps: it rounds otherwise.
    state: The start, a structure of Tensors.
    recorded: What a step records, a structure of Tensors.
    trace_fn: What the user records beside it, or `None`.
    step: The `Program` of the steps.
  """
  start = _bootstrap_program(kernel, state)
  code = None
  if step.calls_python or start is None or start.calls_python:
    code = code_digest.digest([_parameters(kernel), trace_fn])
  return dict(
    kernel=diagnosis.kernel_names(kernel),
    **plan._asdict(),
    seed=[int(word) for word in seed],
    jit_compile=bool(jit_compile),
    start=[_digest(part) for part in tf.nest.flatten(state)],
    recorded=_shapes(tf.nest.flatten(recorded)),
    versions=_versions(),
    settings=_settings(kernel),
    start_program=start and start._asdict(),
    step_program=step._asdict(),
    python_code=code,
  )


def differences(saved, wanted):
  """Returns what two runs differ in, a list of a few words each."""
  found = [
    f'{key} (saved {_short(saved.get(key))}, asked for {_short(wanted[key])})'
    for key in wanted
    if key not in ('settings', 'start', 'start_program', 'step_program')
    and saved.get(key) != wanted[key]
  ]
  if saved.get('start') != wanted['start']:
    found.append('the start (`init_state`)')
  found += _changed(saved.get('settings', {}), wanted['settings'])
  programs = []
  for key, name in (
    ('start_program', 'the target, its data, or how the kernel starts'),
    ('step_program', 'a step of the kernel, or what is recorded of it'),
  ):
    one, two = saved.get(key) or {}, wanted[key] or {}
    if one.get('digest') != two.get('digest'):
      # What has a name says enough.
      programs.append(name + ('' if found else _details(one, two)))
  return found + programs


def _details(saved, wanted):
  """Returns what two programs consist of that the other does not."""
  saved, wanted = saved.get('contents', {}), wanted.get('contents', {})
  gone = sorted(set(saved.get('numbers', ())) - set(wanted.get('numbers', ())))
  new = sorted(set(wanted.get('numbers', ())) - set(saved.get('numbers', ())))
  found = []
  if gone or new:
    found.append(
      f'numbers {_list(gone) or "none"} became {_list(new) or "none"}'
    )
  for kind in ('tensors', 'ops'):
    found += _changed(saved.get(kind, {}), wanted.get(kind, {}))
  shown = '; '.join(found[:_MOST_NAMED])
  return f': {shown}' if shown else ''


def _changed(saved, wanted):
  return [
    f'{key} (saved {_short(saved.get(key))}, asked for '
    f'{_short(wanted.get(key))})'
    for key in sorted(set(saved) | set(wanted))
    if saved.get(key) != wanted.get(key)
  ]


def _short(value):
  text = value if isinstance(value, str) else repr(value)
  return text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'


def _list(names):
  more = ', ...' if len(names) > _MOST_NAMED else ''
  return ', '.join(names[:_MOST_NAMED]) + more


def _bootstrap_program(kernel, state):
  """Returns the `Program` of the start; `None` if it cannot be traced."""
  try:
    traced = tf.function(kernel.bootstrap_results, autograph=False)
    concrete = traced.get_concrete_function(state)
  except (AttributeError, TypeError, ValueError, NotImplementedError):
    # A kernel of others that reads numbers where only Tensors are.
    return None
  custom_gradient.let_go(concrete.graph)
  return program_digest.describe(concrete)


def _digest(part):
  array = np.ascontiguousarray(part)
  content = hashlib.sha256(array.tobytes()).hexdigest()
  return f'{array.dtype.name}{list(array.shape)} {content}'


def _versions():
  return dict(
    numpy=np.__version__,
    tensorflow=tf.__version__,
    tensorflow_probability=tfp.__version__,
    tfp_adaptive=_version.__version__,
  )


def _parameters(kernel):
  return [k.parameters for k in stack.kernels(kernel)]


def _shapes(leaves):
  return [f'{leaf.dtype.name}{leaf.shape.as_list()}' for leaf in leaves]


def _settings(kernel):
  """Returns {'Class.parameter': repr} of all numbers and names of the stack."""
  settings = {}
  for k in stack.kernels(kernel):
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
