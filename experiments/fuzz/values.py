"""Nested values, changed in one place: what a YAML file can hold."""

import copy

from experiments.fuzz.case import pick

__all__ = ['at', 'changed', 'leaves', 'renamed', 'shuffled', 'wrong_value']

_MISSING = object()


def leaves(values, kinds=object, path=()):
  """Returns the paths of all entries that hold one of `kinds` and no more."""
  if isinstance(values, dict):
    entries = values.items()
  elif isinstance(values, list):
    entries = enumerate(values)
  else:
    is_one = isinstance(values, kinds) and not (
      isinstance(values, bool) and kinds is not bool and kinds is not object
    )
    return [path] if is_one else []
  return [
    found
    for key, value in entries
    for found in leaves(value, kinds, path + (key,))
  ]


def at(values, path):
  """Returns the entry at a path."""
  for key in path:
    values = values[key]
  return values


def changed(values, path, value=_MISSING):
  """Returns a copy with the entry at a path set; without a value, gone."""
  values = copy.deepcopy(values)
  node = at(values, path[:-1])
  if value is _MISSING:
    del node[path[-1]]
  else:
    node[path[-1]] = value
  return values


def renamed(values, path, name):
  """Returns a copy with the key at a path renamed."""
  value = at(values, path)
  return changed(changed(values, path), path[:-1] + (name,), value)


def shuffled(rng, values):
  """Returns the same values, the keys of all dicts in another order."""
  if isinstance(values, list):
    return [shuffled(rng, value) for value in values]
  if not isinstance(values, dict):
    return values
  keys = list(values)
  rng.shuffle(keys)
  return {key: shuffled(rng, values[key]) for key in keys}


def wrong_value(rng, value):
  """Returns a value of a type that cannot stand for that of `value`."""
  wrong = [[], {}, [[]], ['x'], {'a': 1}, [None], {'': {}}, [{'name': 'mala'}]]
  if isinstance(value, bool):
    wrong += [2, 0.5, 'perhaps', -1]
  elif isinstance(value, int):
    wrong += [True, False, 1.5, 'three', '3', None, -(10**6)]
  elif isinstance(value, float):
    wrong += [True, 'half', '0.5', float('nan'), float('inf'), -float('inf')]
  else:
    wrong += [True, 3, 1.5, '', '\u00e9' * 300, 'no such name', 'x' * 5000]
  return pick(rng, wrong)
