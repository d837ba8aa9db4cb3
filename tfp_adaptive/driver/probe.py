"""Reads a target at fixed points, to detect that the target has changed.

The digest of a program does not cover what the program reads while it runs: a
file, a lookup table, a data set, Python code. Values and gradients at fixed
points change with all of these. Gradients are compared too, because a large
additive constant hides a change of a float32 value, but not of a gradient.

A reading is made by the same uncompiled function each time. Readings on one
machine are bit-identical, apart from the order of a few sums. Rounding differs
more on another machine. Numbers that differ when the same point is evaluated
again are random by design, and are not compared.
"""

import base64
import contextlib
import os
import platform
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import structures
from tfp_adaptive.interfaces import types

# Most numbers kept for an array. Longer arrays are reduced to this many sums.
_NUM_KEPT = 128
_GOLDEN = 0.6180339887498949
# Largest accepted differences on the same machine and on another one, in units
# of the rounding of a number. The first value is for log densities, the second
# for all other numbers. Gradients round more, because large terms cancel.
_SAME_MACHINE = 8.0, 32.0
_OTHER_MACHINE = 512.0, 8192.0
# A difference may be this many times the change between two evaluations of one
# point.
_TIMES_NOISE = 8.0
_RANDOM = 2.0**14  # A number that changes more at a repeated point is random.
# A small number may be left by large terms that cancel. Its rounding is
# therefore taken to be at least that of 1 for a log density, else at least that
# of a tenth of the largest number.
_SMALLEST_VALUE, _SMALLEST_SHARE = 1.0, 0.1
# Environment variables that change how TensorFlow and NumPy round.
_VARIABLES = (
  'OMP_NUM_THREADS',
  'OPENBLAS_NUM_THREADS',
  'TF_ENABLE_ONEDNN_OPTS',
  'TF_NUM_INTRAOP_THREADS',
)
_LOG_DENSITIES = ('log_prob', 'log_likelihood', 'log density')


def points(state: types.Structure, scale: Any = None) -> list:
  """Returns three states: the given one, and two fixed points near it.

  `scale` has the standard deviations of the coordinates, for a state that is
  one array. The second point is moved by up to 1 deviation, the third by up to
  2.5. Without `scale` they are moved by up to 0.7, and by up to 0.05 + 0.3 |x|.
  """
  moved = [
    tf.nest.map_structure(lambda part, n=n: _moved(part, n, scale), state)
    for n in (0, 1)
  ]
  return [state, *moved]


def _moved(part, number, scale):
  """Returns a part moved by a fixed offset of moderate size."""
  x = _array(part)
  turns = np.arange(1.0, 1.0 + x.size).reshape(x.shape) + number * x.size
  turns = np.modf(turns * _GOLDEN)[0]
  # Offsets have sizes from 0.5 to 1 and either sign, so all coordinates move.
  direction = np.where(turns < 0.5, 0.5 + turns, turns - 1.5)
  if scale is not None:
    size = (1.0, 2.5)[number] * scale
  else:
    size = 0.7 if number == 0 else 0.05 + 0.3 * np.abs(x.astype(np.float64))
  return tf.constant((x + direction * size).astype(x.dtype))


def _array(value):
  # A bfloat16 scalar cannot be converted to an array directly.
  return np.asarray(value.numpy() if tf.is_tensor(value) else value)


def read(evaluate: Callable[[Any], dict], at: list) -> dict:
  """Returns the reading of a target, a dict of JSON values.

  `evaluate` is a function of a point, which returns arrays by name. The first
  point is evaluated twice.
  """
  readings = [_evaluated(evaluate, point) for point in at]
  again = _evaluated(evaluate, at[0])
  noise = {}
  for name in readings[0]:
    one, two = readings[0][name], again.get(name)
    noise[name] = float('inf')
    if two:
      noise[name] = _distance(one, two, _sizes(name, [one]))
  return dict(machine=_machine(), points=readings, noise=noise)


def _evaluated(evaluate, point):
  """Returns dict of name -> kept values; {} if the evaluation fails."""
  found = {}
  # A density may be undefined at points that the chains never visit.
  with contextlib.suppress(Exception):
    found = {name: _kept(array) for name, array in evaluate(point).items()}
  return found


def _kept(array):
  """Returns JSON values that represent an array of any size."""
  array = _array(array)
  eps = np.finfo(array.dtype).eps if array.dtype.kind == 'f' else 2.0**-7
  flat = array.astype(np.float64).ravel()
  is_finite = np.isfinite(flat)
  flat = np.where(is_finite, flat, 0.0)
  num_kept = min(max(flat.size, 1), _NUM_KEPT)
  rows = np.pad(flat, (0, -flat.size % num_kept)).reshape(-1, num_kept)
  # The terms of these sums have both signs.
  turns = np.modf(np.arange(rows.size).reshape(rows.shape) * _GOLDEN)[0]
  signs = np.where((turns < 0.5) & (len(rows) > 1), -1.0, 1.0)
  sizes = np.max(np.abs(rows), axis=0, initial=0.0) * np.sqrt(len(rows))
  return dict(
    eps=float(eps),
    num_finite=int(np.sum(is_finite)),
    numbers=_packed(np.sum(signs * rows, axis=0)),
    sizes=_packed(sizes),
  )


def _packed(numbers):
  return base64.b64encode(numbers.astype('<f8').tobytes()).decode()


def _unpacked(text):
  return np.frombuffer(base64.b64decode(text), '<f8')


def differences(saved: dict, found: dict, where: str = 'at the start') -> str:
  """Returns a phrase about the first difference of two readings, or ''.

  `where` describes the first point. The other points are near it.
  """
  is_same_machine = saved['machine'] == found['machine']
  allowed = _SAME_MACHINE if is_same_machine else _OTHER_MACHINE
  if len(saved['points']) != len(found['points']):
    return 'the number of points'
  for number, pair in enumerate(zip(saved['points'], found['points'])):
    one, two = pair
    place = f'{where}, moved by a fixed offset' if number else where
    for name in dict.fromkeys([*one, *two]):
      noise = max(r['noise'].get(name, 0.0) for r in (saved, found))
      if noise > _RANDOM:
        continue
      if name not in one or name not in two:
        return f'{_last(name)} {place}, which only one of both can compute'
      every = [one[name]] if is_same_machine else _of(saved, name)
      most = allowed[0 if _is_log_density(name) else 1]
      sizes = _sizes(name, every)
      distance = _distance(one[name], two[name], sizes)
      if not distance <= max(most, _TIMES_NOISE * noise):
        return f'{_last(name)} {place}{_numbers(one[name], two[name], sizes)}'
  return ''


def _last(name):
  """Returns the name of a field without the path to it."""
  return [part for part in name.split('.') if not part.isdigit()][-1]


def _of(reading, name):
  return [point[name] for point in reading['points'] if name in point]


def _sizes(name, kept):
  """Returns the sizes that determine rounding, one for each number.

  `kept` are the values kept for the array `name`, at one or more points.
  """
  sizes = np.max([_unpacked(one['sizes']) for one in kept], axis=0)
  if _is_log_density(name):
    return np.maximum(sizes, _SMALLEST_VALUE)
  return np.maximum(sizes, _SMALLEST_SHARE * np.max(sizes, initial=0.0))


def _is_log_density(name):
  return 'grad' not in name and any(word in name for word in _LOG_DENSITIES)


def _distance(one, two, sizes):
  """Returns the largest difference, in units of the rounding of `sizes`."""
  is_alike = all(one[key] == two[key] for key in ('eps', 'num_finite'))
  first, second = _unpacked(one['numbers']), _unpacked(two['numbers'])
  if not is_alike or first.shape != second.shape:
    return float('inf')
  gaps = np.abs(first - second)
  # If all numbers were zero, any nonzero number is a difference.
  with np.errstate(divide='ignore', over='ignore'):
    units = np.divide(gaps, sizes * one['eps'], where=gaps > 0, out=0.0 * gaps)
  return float(np.max(units, initial=0.0))


def _numbers(one, two, sizes):
  first, second = _unpacked(one['numbers']), _unpacked(two['numbers'])
  if first.shape != second.shape or not len(first):
    return ' (another shape)'
  if one['num_finite'] != two['num_finite']:
    return (
      f' ({one["num_finite"]} finite numbers before, {two["num_finite"]} now)'
    )
  with np.errstate(divide='ignore', invalid='ignore'):
    worst = int(np.nanargmax(np.abs(first - second) / sizes))
  return f' ({first[worst]:.9g} before, {second[worst]:.9g} now)'


def _machine():
  """Returns what rounding depends on, besides the program."""
  affinity = getattr(os, 'sched_getaffinity', None)
  num_cpus = len(affinity(0)) if affinity else os.cpu_count()
  devices = [d.name for d in tf.config.list_logical_devices('GPU')]
  threads = tf.config.threading.get_intra_op_parallelism_threads()
  variables = [os.environ.get(name) for name in _VARIABLES]
  return [
    platform.node(), num_cpus, threads, devices, tf.__version__, *variables,
  ]  # fmt: skip


def fields_of_density(results: Any, path: str = '') -> Iterator[tuple]:
  """Yields (name, Tensor) of log densities and gradients in kernel results."""
  results = structures.as_dict(results)
  if isinstance(results, dict):
    items = results.items()
  elif isinstance(results, list | tuple):
    items = enumerate(results)
  else:
    return
  for name, value in items:
    here = f'{path}.{name}' if path else str(name)
    # At the start, the proposed results equal the accepted results.
    if name == 'proposed_results':
      continue
    if str(name).startswith('grads') or _is_log_density(str(name)):
      for i, leaf in enumerate(tf.nest.flatten(value)):
        if tf.is_tensor(leaf) and leaf.dtype.is_floating:
          yield (f'{here}.{i}' if i else here), leaf
    else:
      yield from fields_of_density(value, here)
