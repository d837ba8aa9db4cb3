"""Calls the user's log density, and explains the error if the call fails.

TFP passes a list as positional arguments, a dict as keyword arguments, and
anything else as one argument. If a density does not take these arguments, or
uses numpy, the original error names operations that the user did not write.
"""

import inspect
import re

import tensorflow as tf

from tfp_adaptive.core import structures
from tfp_adaptive.core import tfp_private

# Only these errors are explained. Users may raise other errors on purpose.
_FAILURES = (
  tf.errors.InvalidArgumentError,
  tf.errors.UnimplementedError,
  tf.errors.NotFoundError,
  tf.errors.UnknownError,
  ValueError,
  TypeError,
  LookupError,
  KeyError,
  IndexError,
  AttributeError,
  NotImplementedError,
)
# Pattern in the text of an error, and advice.
_HINTS = (
  (
    r"numpy array|NumPy call|'numpy'|gradient_tape",
    'It is compiled and differentiated: write it with TensorFlow and TFP '
    'throughout, without numpy, scipy, `.numpy()` and `tf.py_function`. (Data '
    'of a wrong shape can cause the same error.)',
  ),
  (r'Python `bool`', 'Write `tf.where` where it says `if` or `while`.'),
  (
    r'incompatible dtypes|requested dtype|not match type|expected to be a \w+ '
    r'tensor',
    'Write all data and constants in the dtype of the unknowns, for example '
    '`np.float32(data)`, or the unknowns in that of the data.',
  ),
  (
    r'[Ss]hape|[Dd]imension',
    'Do the shapes of the data fit the model, and do chains come first?',
  ),
)


class TargetError(ValueError):
  """Raised if a log density fails; says what to write instead."""


class StepError(TargetError):
  """Raised if a log density fails in a run, perhaps after many good steps."""


def call(target_log_prob_fn, state):
  """Calls a density as TFP does.

  Raises a `TargetError` if the density does not take such a state, returns
  `None`, or fails with one of `_FAILURES`. Other errors pass unchanged.
  """
  try:
    value = tfp_private.call_fn(target_log_prob_fn, state)
  except TargetError:
    raise
  except Exception as error:
    if not _is_failure(error):
      raise
    _check_arguments(target_log_prob_fn, state, error)
    raise explained(error, 'The log density cannot be computed') from error
  if value is None:
    raise TargetError(
      'The log density returned None, but must return one number for each '
      'chain. Is its `return` missing?'
    )
  return value


def explained(error, what):
  """Returns a `TargetError` that says what to write, after the words `what`."""
  if isinstance(error, TargetError):
    return error
  text = str(error).strip()
  found = (f' {h}' for words, h in _HINTS if re.search(words, text))
  # Remove the names of TensorFlow's nodes.
  plain = re.sub(r'\{\{.*?\}\}|\[\[.*?\]\]|\[Op:.*', '', text).strip()
  lines = plain.splitlines() or ['']
  # If TensorFlow says first where the operation is, the reason comes last.
  line = lines[-1] if lines[0].endswith((':', 'error')) else lines[0]
  said = f'{type(error).__name__} said: {line.strip()[:300]}'
  return TargetError(f'{what}.{next(found, "")} {said}')


def failed(error: tf.errors.OpError) -> Exception:
  """Returns the exception to raise if a step of a run fails inside a graph.

  Assertions and `tf.py_function` in the density may fail in some region only,
  after many good steps. An error that neither has raised, such as lack of
  memory, is returned as it is.
  """
  text = re.sub(r'\{\{.*?\}\}|\[\[.*?\]\]|\[Op:.*', '', str(error))
  raised = re.search(
    r'([\w.]+(?:: .*?)?)\s+Traceback \(most recent call last\)', text, re.DOTALL
  )
  if not raised and not isinstance(error, tf.errors.InvalidArgumentError):
    return error  # For example, no memory is left.
  reason = raised.group(1) if raised else text
  lines = [line.strip() for line in reason.splitlines() if line.strip()]
  # TensorFlow says first where in the graph an operation is.
  if not raised and len(lines) > 1 and lines[0].endswith((':', 'error')):
    lines = lines[-1:]
  said = ' '.join(lines)[:500].rstrip(':')
  return StepError(
    f'The log density raised an error while it was sampled: {said}. Let it '
    'return -inf where it is zero, and NaN where it cannot be computed: then '
    'the proposal is rejected.'
  )


def _is_failure(error):
  # TensorFlow raises undocumented subclasses of its documented errors.
  is_tensorflows = type(error).__module__.startswith('tensorflow')
  return type(error) in _FAILURES or (
    is_tensorflows and isinstance(error, _FAILURES)
  )


def _check_arguments(function, state, error):
  """Refuses a state whose parts do not fit the arguments of the density."""
  try:
    signature = inspect.signature(function)
  except (TypeError, ValueError):  # Some callables have no signature.
    return
  try:
    tfp_private.call_fn(signature.bind, state)
  except TypeError:
    names = ', '.join(_arguments(state))
    raise TargetError(
      f'The log density takes {signature}, but is called as TFP calls it, with '
      f'{_described(state)}. Write `def log_density({names}):`, or give the '
      'unknowns in the structure that it takes.'
    ) from error


def _arguments(state):
  if isinstance(state, dict):
    return sorted(map(str, state))
  if structures.is_sequence(state):
    names = [f'x{i}' for i in range(len(state))]
    return names if len(names) < 9 else [*names[:3], '...', names[-1]]
  return ['x']


def _described(state):
  if isinstance(state, dict):
    return 'the parts of a dict by name'
  if structures.is_sequence(state):
    return (
      f'the {len(state)} parts of a list one by one (rows of one array are '
      '`np.array(...)`)'
    )
  return 'one argument'
