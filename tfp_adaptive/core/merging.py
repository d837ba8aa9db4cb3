"""Merges the results of several shards into one.

By default floating values are averaged, and integers are taken from the first
shard. A result tuple with other rules has a class attribute `merge_rules`, a
dict of field -> function of (values of the shards, merged value of the last
merge). If its fields depend on each other, it has a class method `merged` of
(tuples of the shards, merged tuple of the last merge).
"""

import tensorflow as tf


def merged(parts, before):
  """Returns the merged results of all shards, a list of structures.

  `before` is the structure that all shards had after the last merge.
  """
  one = parts[0]
  kind = type(one)
  if callable(getattr(kind, 'merged', None)):
    return kind.merged(parts, before)
  if isinstance(one, dict):
    return {k: merged([part[k] for part in parts], before[k]) for k in one}
  if isinstance(one, (list, tuple)):
    values = [list(value) for value in zip(*parts)]
    rules = getattr(kind, 'merge_rules', {})
    if isinstance(one, tuple) and kind is not tuple:
      return kind(
        *(
          rules.get(name, merged)(value, old)
          for name, value, old in zip(one._fields, values, before)
        )
      )
    return kind(merged(value, old) for value, old in zip(values, before))
  return mean(parts)


def mean(parts):
  """Returns the mean of floating Tensors of one shape; else the first Tensor.

  Equal values are returned unchanged, also infinite ones. The mean has no
  weights, because all shards have the same number of chains.
  """
  one = parts[0]
  if not (one.dtype.is_floating and len(parts) > 1):
    return one
  if any(part.shape != one.shape for part in parts):
    return one
  rows = tf.stack(parts)
  is_equal = tf.reduce_all(rows == one, axis=0)
  return tf.where(is_equal, one, tf.reduce_mean(rows, axis=0))


def counted(values, before):
  """Returns the count of the last merge plus what all shards added since."""
  return before + tf.add_n([value - before for value in values])


def largest(values, before):
  """Returns the largest value, for the step numbers of a schedule.

  Step numbers differ between shards, because searches for a first scale end at
  different steps. Their mean need not be a whole number. With such a number, an
  optimizer that acts at every n-th update would never act.
  """
  del before
  return tf.reduce_max(tf.stack(values), axis=0)


def first(values, before):
  """Returns the first value. The mean of two fitted surrogates is not a fit."""
  del before
  return values[0]


def stacked(values, before):
  """Merges results with a leading axis of samplers, each sampler on its own."""
  count = tf.nest.flatten(before)[0].shape[0]
  each = [
    merged([_at(value, i) for value in values], _at(before, i))
    for i in range(count)
  ]
  return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *each)


def _at(structure, index):
  return tf.nest.map_structure(lambda leaf: leaf[index], structure)
