"""Data as a joint distribution draws them, and how likely those that came are.

Draw by draw: the unknowns of one draw are put into the model, which then has a
distribution for each part.
"""

import warnings

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import custom_gradient
from tfp_adaptive.core import random
from tfp_adaptive.posterior import data

__all__ = ['log_likelihood', 'simulated']

tfd = tfp.distributions

_NUM_TRIES = 8  # Of values that differ, as of counts.


def simulated(model, unknowns, seed, given=None):
  """Returns dict of name -> [n, ...]: draws of all other parts, given unknowns.

  Args:
    model: `tfd.JointDistribution`, nothing pinned.
    unknowns: dict of name -> array [n, event...] or a structure of them.
    seed: int or [2] int32.
    given: dict of name -> value of parts that keep it; those that the model
      has not are ignored.

  Raises:
    ValueError: If the model has no such parts, or of other shapes.
  """
  names = _checked_names(model, unknowns)
  given = {name: v for name, v in (given or {}).items() if name in names}
  given = _cast(model, names, given)
  _checked_names(
    model, tf.nest.map_structure(lambda value: value[tf.newaxis], given)
  )
  drawn = [name for name in names if name not in {*unknowns, *given}]
  if not drawn:
    kept = f', {", ".join(given)} no data that depend on them' if given else ''
    raise ValueError(
      f'{", ".join(unknowns)} are unknowns{kept}: no data are drawn.'
    )
  seed = random.sanitize(seed)

  def draw(index, values):
    parts = model.sample(seed=random.fold_in(seed, index), **values, **given)
    parts = zip(names, data.in_order(parts)[1])
    return {name: part for name, part in parts if name in drawn}

  return _for_each(draw, unknowns)


def fixed(model, unknowns, observed):
  """Returns the names of values that are no data to be drawn anew.

  No unknown has a say in their law, or they have one in that of an unknown. It
  is seen by changing each part in turn, and looking which densities change.

  Args:
    model: As in `simulated`.
    unknowns: As in `simulated`.
    observed: dict of name -> the values.
  """
  names = _checked_names(model, unknowns)
  observed = _cast(model, names, observed)
  first, last = (
    tf.nest.map_structure(lambda x, row=row: tf.constant(x[row]), unknowns)
    for row in (0, -1)
  )
  values = {**first, **observed}
  others = {**last, **_other_values(model, names, first, observed)}

  @tf.function(autograph=False)
  def densities(values):
    laws, _ = model.sample_distributions(seed=(0, 1), **values)
    # What bijectors registered would keep the graph in memory.
    custom_gradient.let_go(tf.compat.v1.get_default_graph())
    laws = zip(names, data.in_order(laws)[1])
    return {name: law.log_prob(values[name]) for name, law in laws}

  before = densities(values)
  children = {}
  for name in names:
    after = densities({**values, name: others[name]})
    changed = (n for n in names if not _same(before[n], after[n]))
    children[name] = {n for n in changed if n != name}
  data_parts, reached = set(), set(unknowns)
  while reached - data_parts:
    data_parts |= reached
    reached = set().union(*(children[name] for name in data_parts))
  return [
    name
    for name in observed
    if name not in data_parts or children[name] & set(unknowns)
  ]


def _other_values(model, names, first, observed):
  """Returns values that differ from those observed, as the model draws them."""
  found = dict(observed)
  for seed in range(_NUM_TRIES):
    parts = model.sample(seed=(0, seed), **first)
    for name, part in zip(names, data.in_order(parts)[1]):
      if name in observed and _same(found[name], observed[name]):
        found[name] = part
  return found


def _same(value, other):
  """Returns whether two structures have the same numbers throughout."""
  pairs = zip(tf.nest.flatten(value), tf.nest.flatten(other))
  return all(np.array_equal(*pair) for pair in pairs)


def _cast(model, names, values):
  """Returns values of parts in the dtypes that the model has."""
  dtypes = dict(zip(names, data.in_order(model.dtype)[1]))
  return {
    name: tf.nest.map_structure(tf.cast, value, dtypes[name])
    for name, value in values.items()
  }


def log_likelihood(model, unknowns, observed):
  """Returns dict of name -> [n, ...]: log densities of data, given unknowns.

  One for each number that is independent of the others, given the unknowns:
  `tfd.Sample` and `tfd.Independent` are taken apart.

  Args:
    model: As in `simulated`.
    unknowns: As in `simulated`.
    observed: dict of name -> the data.
  """
  names = _checked_names(model, unknowns)
  observed = _cast(model, names, observed)

  def evaluate(index, values):
    del index
    laws, _ = model.sample_distributions(seed=(0, 1), **values, **observed)
    laws = dict(zip(names, data.in_order(laws)[1]))
    return {n: _pointwise(laws[n], value) for n, value in observed.items()}

  return _for_each(evaluate, unknowns)


def _checked_names(model, unknowns):
  """Returns the names of all parts, once the unknowns are among them."""
  names, events = data.parts_and_events(model)
  for name, values in unknowns.items():
    if name not in names:
      raise ValueError(
        f'The model has no part {name!r}, but it was drawn: the parts are '
        f'{", ".join(names)}. Pass a model of the same unknowns.'
      )
    event = events[names.index(name)]
    for shape, value in zip(tf.nest.flatten(event), tf.nest.flatten(values)):
      if not shape.is_compatible_with(value.shape[1:]):
        raise ValueError(
          f'{name} was drawn with the shape {value.shape[1:]}, but the model '
          f'has {shape} there. Pass a model of the same unknowns.'
        )
  return names


def _for_each(function, unknowns):
  """Returns dict of arrays [n, ...] of what a function returns for each draw.

  Args:
    function: (index, dict of one draw) -> dict of Tensors.
    unknowns: dict of name -> [n, event...].
  """

  @tf.function(autograph=False)
  def run(*rows):
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', UserWarning)  # Seeded draws are slow.
      one = function(*tf.nest.map_structure(lambda column: column[0], rows))
      like = tf.nest.map_structure(tf.TensorSpec.from_tensor, one)
      found = tf.map_fn(
        lambda row: function(*row), rows, fn_output_signature=like
      )
    # What bijectors registered would keep the graph in memory.
    custom_gradient.let_go(tf.compat.v1.get_default_graph())
    return found

  with tf.device('/CPU:0'):
    unknowns = tf.nest.map_structure(tf.constant, unknowns)
    rows = tf.range(len(tf.nest.flatten(unknowns)[0])), unknowns
    found = run.get_concrete_function(*rows)(*rows)
  return tf.nest.map_structure(np.asarray, found)


def _pointwise(law, value):
  """Returns log densities of all numbers that a law draws independently.

  A dict by part of a joint distribution inside of the model.
  """
  if isinstance(law, tfd.JointDistribution):
    names, _ = data.parts_and_events(law)
    laws, _ = law.sample_distributions(seed=(0, 1), value=value)
    parts = zip(names, data.in_order(laws)[1], data.in_order(value)[1])
    return {name: _pointwise(inner, part) for name, inner, part in parts}
  if isinstance(law, tfd.Independent):
    return _pointwise(law.distribution, value)
  if not isinstance(law, tfd.Sample):
    return law.log_prob(value)
  # [batch..., sample..., event...]: samples go in front, and back.
  inner = law.distribution
  num_batch = inner.batch_shape.rank
  num_event = inner.event_shape.rank
  num_sample = len(value.shape) - num_batch - num_event
  axes = list(range(len(value.shape)))
  to, end = num_batch, num_batch + num_sample
  value = tf.transpose(value, axes[to:end] + axes[:to] + axes[end:])
  found = _pointwise(inner, value)
  axes = list(range(len(found.shape)))
  to = num_sample
  return tf.transpose(found, axes[to:end] + axes[:to] + axes[end:])
