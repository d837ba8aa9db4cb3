"""Describes the identity of a run, so that another run can be recognized.

Digests of programs cover graphs and their constants. A digest of Python code
covers the code that a graph calls. Values of the target at fixed points (see
`probe`) reveal changes of anything that is read from outside during the run.
"""

import hashlib

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import _version
from tfp_adaptive.core import block_fits
from tfp_adaptive.core import custom_gradient
from tfp_adaptive.core import stack
from tfp_adaptive.core import structures
from tfp_adaptive.driver import code_digest
from tfp_adaptive.driver import diagnosis
from tfp_adaptive.driver import probe
from tfp_adaptive.driver import program_digest

# Entries that `differences` describes in words of its own.
_IN_WORDS = (
  'settings',
  'start',
  'start_program',
  'step_program',
  'python_code',
  'fits',
  'readings',
)
_SCALARS = (bool, int, float, str, np.generic, type(None))
_MOST_NAMED = 4
_LONGEST = 80


def describe(kernel, plan, seed, jit_compile, state, recorded, trace_fn, step):
  """Returns dict of JSON values that must be equal for a run to be resumed.

  `recorded` are the Tensors that a step records, and `step` is the `Program` of
  the steps. `jit_compile` counts too, because XLA changes the rounding.
  """
  bootstrap, start = _traced_bootstrap(kernel, state)
  code = None
  # The digest comes before any evaluation, because Python code may count calls.
  if step.calls_python or start is None or start.calls_python:
    code = code_digest.digest([_parameters(kernel), trace_fn])
  fits = block_fits.code(kernel)
  return dict(
    kernel=diagnosis.kernel_names(kernel),
    **plan._asdict(),
    seed=[int(word) for word in seed],
    jit_compile=bool(jit_compile),
    start=[_digest(part) for part in tf.nest.flatten(state)],
    recorded=_shapes(tf.nest.flatten(recorded)),
    versions=versions(),
    settings=_settings(kernel),
    start_program=start and start._asdict(),
    step_program=step._asdict(),
    python_code=code,
    fits=code_digest.digest(fits) if fits else None,
    readings=_readings(bootstrap, trace_fn, state),
  )


def differences(saved, wanted):
  """Returns the differences between two runs, a list of phrases."""
  found = [
    f'{key} (saved {_short(saved.get(key))}, asked for {_short(wanted[key])})'
    for key in wanted
    if key not in _IN_WORDS and saved.get(key) != wanted[key]
  ]
  if saved.get('start') != wanted['start']:
    found.append('the start (`init_state`)')
  found += _changed(saved.get('settings', {}), wanted['settings'])
  programs = []
  for key, name in (
    ('start_program', 'the target, its data, or how the kernel starts'),
    ('step_program', 'a step of the kernel, or what it records'),
  ):
    one, two = saved.get(key) or {}, wanted[key] or {}
    if one.get('digest') != two.get('digest'):
      # If another difference is named, details are not needed.
      programs.append(name + ('' if found else _details(one, two)))
  if saved.get('python_code') != wanted.get('python_code'):
    programs.append(
      'the Python code that the graph calls, or the data of that code '
      '(`python_code`)'
    )
  if saved.get('fits') != wanted.get('fits'):
    programs.append('the code that fits the map of the kernel (`fits`)')
  if not found and not programs and 'readings' in saved:
    # The digests are equal, so the change is outside of the programs.
    words = probe.differences(saved['readings'], wanted['readings'])
    if words:
      return [f'the target, or what it reads while it runs: {words}']
  return found + programs


def _details(saved, wanted):
  """Returns words on how the contents of two programs differ, or ''."""
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


def _traced_bootstrap(kernel, state):
  """Returns the function of the start and the function's `Program`.

  The program is `None` if the function cannot be traced, for example because
  the kernel needs the values of Tensors.
  """
  try:
    traced = tf.function(kernel.bootstrap_results, autograph=False)
    concrete = traced.get_concrete_function(state)
  except (AttributeError, TypeError, ValueError, NotImplementedError):
    return kernel.bootstrap_results, None
  custom_gradient.let_go(concrete.graph)
  return concrete, program_digest.describe(concrete)


def _readings(bootstrap, trace_fn, state):
  """Returns the reading of the target and of `trace_fn`'s results."""

  def evaluate(at):
    results = bootstrap(at)
    found = dict(probe.fields_of_density(results))
    if not any('grad' in name for name in found):
      found.update(_gradients(bootstrap, at))
    if trace_fn is not None:
      extra = tf.nest.flatten(trace_fn(at, results))
      found.update((f'extra.{i}', leaf) for i, leaf in enumerate(extra))
    return found

  return probe.read(evaluate, probe.points(state))


def _gradients(bootstrap, state):
  """Returns the target's gradients, by name, for a kernel that uses none."""
  parts = tf.nest.map_structure(tf.identity, state)
  try:
    with tf.GradientTape() as tape:
      tape.watch(tf.nest.flatten(parts))
      fields = dict(probe.fields_of_density(bootstrap(parts)))
      total = tf.add_n([tf.reduce_sum(leaf) for leaf in fields.values()])
    found = tape.gradient(total, tf.nest.flatten(parts))
  except Exception:  # Python code and many operations have no gradient.
    return {}
  return {f'grad.{i}': g for i, g in enumerate(found) if g is not None}


def _digest(part):
  array = np.ascontiguousarray(part)
  content = hashlib.sha256(array.tobytes()).hexdigest()
  return f'{array.dtype.name}{list(array.shape)} {content}'


def versions():
  """Returns the versions that can change a run's draws, dict of strings."""
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
  """Returns {'Class.parameter': repr} of numbers and strings of all kernels."""
  settings = {}
  for k in stack.kernels(kernel):
    for name, value in stack.parameters(k).items():
      for path, scalar in _scalars(value, f'{type(k).__name__}.{name}'):
        # Another kernel of the same class may have this path.
        while path in settings:
          path += "'"
        settings[path] = repr(scalar)
  return settings


def _scalars(value, path):
  value = structures.as_dict(value)
  if isinstance(value, tf.Tensor) and value.shape.rank == 0:
    value = value.numpy()
  if isinstance(value, _SCALARS):
    yield path, value.item() if isinstance(value, np.generic) else value
  elif isinstance(value, dict):
    for name, inner in value.items():
      yield from _scalars(inner, f'{path}.{name}')
  elif isinstance(value, list | tuple):
    for i, inner in enumerate(value):
      yield from _scalars(inner, f'{path}.{i}')
