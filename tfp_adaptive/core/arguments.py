"""Checks arguments that many kernels take, before anything is computed.

A value that only the run knows, such as a symbolic Tensor, is not checked.
"""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec
from typing import SupportsIndex
from typing import TypeVar

import numpy as np
import tensorflow as tf

_Arguments = ParamSpec('_Arguments')
_Result = TypeVar('_Result')


def by_keyword(
  example: str,
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
  """Makes a decorator that explains how a builder is called.

  Python refuses a wrong call by itself, but does not say what to write. The
  `TypeError` of the decorated function shows `example`, a correct call.
  """

  def decorate(function):
    parameters = inspect.signature(function).parameters.values()
    leading = [p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]
    by_name = [p.name for p in parameters if p.kind == p.KEYWORD_ONLY]
    takes_all = any(p.kind == p.VAR_KEYWORD for p in parameters)
    needed = [
      p.name
      for p in parameters
      if p.default is p.empty and p.kind != p.VAR_KEYWORD
    ]

    @functools.wraps(function)
    def build(*args, **options):
      positional = leading[: len(args)]
      wrong = []
      if len(args) > len(leading):
        wrong.append(f'{len(args)} arguments are given by position')
      wrong += [f'`{n}` is given twice' for n in positional if n in options]
      for name in options:
        if not takes_all and name not in leading + by_name:
          wrong.append(f'`{name}` is not an argument')
      given = {*positional, *options}
      wrong += [f'`{n}` is not given' for n in needed if n not in given]
      if wrong:
        raise TypeError(
          f'`{function.__name__}` takes {", ".join(leading)} by position and '
          f'{", ".join(by_name)} by keyword, but {", ".join(wrong)}. Write for '
          f'example `{example}`.'
        )
      return function(*args, **options)

    return build

  return decorate


def is_int(value):
  """Returns whether a value is an integer of any type, and no bool."""
  return isinstance(value, SupportsIndex) and not isinstance(value, bool)


def check_num_adaptation_steps(num_adaptation_steps):
  """Refuses a value that is not a non-negative int."""
  if not is_int(num_adaptation_steps) or num_adaptation_steps < 0:
    raise ValueError(
      '`num_adaptation_steps` must be a non-negative int, but got '
      f'{num_adaptation_steps!r}. Write for example '
      '`num_adaptation_steps=5000`; 0 samples without adapting.'
    )


def check_accept_prob(value, name='target_accept_prob'):
  """Refuses a value that is not a probability in (0, 1)."""
  check_inner_share(
    value,
    name,
    'Usual values: 0.25 random walk, 0.55 Langevin, 0.67 Hamiltonian.',
  )


def check_inner_share(value, name, advice):
  """Refuses a value outside (0, 1); `advice` says what to write instead."""
  if not _holds(value, lambda x: (x > 0.0) & (x < 1.0)):
    raise ValueError(
      f'`{name}` must lie strictly between 0 and 1, but got {value!r}. {advice}'
    )


def check_share(value, name, advice):
  """Refuses a value outside [0, 1); `advice` says what to write instead."""
  if not _holds(value, lambda x: (x >= 0.0) & (x < 1.0)):
    raise ValueError(f'`{name}` must be in [0, 1), but got {value!r}. {advice}')


def check_positive(value, name, usual, is_array=False):
  """Refuses a value that is not positive and finite, and suggests `usual`."""
  if not _holds(value, lambda x: (x > 0.0) & np.isfinite(x), is_array):
    number = '' if is_array else ', one number'
    raise ValueError(
      f'`{name}` must be positive and finite{number}, but got {value!r}. Write '
      f'for example `{name}={usual}`.'
    )


def check_count(value, name, example):
  """Refuses a value that is not a positive int."""
  if not is_int(value) or value < 1:
    raise ValueError(
      f'`{name}` must be a positive int, but got {value!r}. Write for example '
      f'`{name}={example}`.'
    )


def check_num_leapfrog_steps(given):
  """Returns (fewest, most); refuses a value that is no range of counts."""
  pair = given if isinstance(given, (tuple, list)) else (given, given)
  is_range = len(pair) == 2 and all(map(is_int, pair))
  if not is_range or not 1 <= pair[0] <= pair[1]:
    raise ValueError(
      '`num_leapfrog_steps` must be a positive int or a pair (fewest, most) of '
      f'them, but got {given!r}. Write for example `num_leapfrog_steps=5` or '
      '`num_leapfrog_steps=(1, 5)`.'
    )
  return tuple(int(n) for n in pair)


def check_gain(gain):
  """Refuses gains below 1, which would weigh early steps more than later."""
  if not _holds(gain, lambda x: x >= 1.0):
    raise ValueError(
      f'`gain` must be at least 1, but got {gain!r}. Write `gain=1.0` to weigh '
      'all steps alike.'
    )


def check_seed(seed):
  """Refuses a value that is no seed, such as `None`."""
  if not _is_seed(seed):
    raise ValueError(
      '`seed` must be an int of at most 61 bits, or a pair or a [2] Tensor of '
      f'32-bit ints, so that the run can be repeated, but got {seed!r}. Write '
      'for example `seed=(0, 1)`.'
    )


def _holds(value, is_allowed, is_array=False):
  """Returns whether all numbers are allowed, or True if one is unknown."""
  leaves = tf.nest.flatten(value)
  known = [tf.get_static_value(x) if tf.is_tensor(x) else x for x in leaves]
  if any(x is None for x, leaf in zip(known, leaves) if tf.is_tensor(leaf)):
    return True
  try:
    array = np.asarray(tf.nest.pack_sequence_as(value, known))
  except (TypeError, ValueError):
    return False
  if array.dtype.kind in 'bcOSU' or (array.ndim and not is_array):
    return False
  return bool(np.all(is_allowed(array.astype(np.float64))))


def _is_seed(seed):
  if isinstance(seed, (int, np.integer)):
    return not isinstance(seed, bool) and -(2**61) <= seed < 2**61
  try:
    words = np.asarray(seed)
  except (TypeError, ValueError):
    return False
  if words.shape != (2,) or not np.issubdtype(words.dtype, np.integer):
    return False
  # Larger words would be cut, and different seeds be the same.
  return bool(np.all((words >= -(2**31)) & (words < 2**32)))
