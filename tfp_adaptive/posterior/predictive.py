"""Predictive draws of a joint distribution, and log densities of its data.

The functions work draw by draw. In all of them, nothing is pinned in `model`, a
`tfd.JointDistribution`. Given values and observed values are dicts of name ->
value, and `unknowns` of name -> array [n, event...] or structure of arrays.
"""

import warnings

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import custom_gradient
from tfp_adaptive.core import random
from tfp_adaptive.core import tfp_private
from tfp_adaptive.posterior.model import data
from tfp_adaptive.posterior.model import exact
from tfp_adaptive.posterior.model import kinds
from tfp_adaptive.posterior.model import support_of_data

tfd = tfp.distributions


def simulated(model, unknowns, seed, given=None, computed=()):
  """Returns dict of name -> [n, ...]: draws of all other parts, given unknowns.

  Parts in `given` keep their values; names that the model does not have are
  ignored. The parts `computed` are functions of other parts, and not data.
  """
  names = _checked_names(model, unknowns)
  given = {name: v for name, v in (given or {}).items() if name in names}
  given = _cast(model, names, given)
  _check_shapes(model, names, given)
  known = {*unknowns, *given, *computed}
  drawn = [name for name in names if name not in known]
  if not drawn:
    kept = f', and these do not depend on them: {", ".join(given)}'
    raise ValueError(
      'The model has no data to draw. Its unknowns are '
      f'{", ".join(unknowns)}{kept if given else ""}.'
    )
  seed = random.sanitize(seed)

  def draw(index, values):
    parts = model.sample(
      seed=random.fold_in(seed, index),
      value=tfp_private.by_name(model, {**values, **given}),
    )
    parts = zip(names, data.in_order(parts)[1])
    return {name: part for name, part in parts if name in drawn}

  found = _for_each(draw, unknowns)
  data.check_axes(model, {**unknowns, **found}, given)
  return found


def prior_draws(model, given, num_draws, seed):
  """Returns dict of name -> [num_draws, ...]: draws of all parts not given.

  The model has no flat part.
  """
  names, _ = data.parts_and_events(model)
  given = _cast(model, names, given)
  seed = random.sanitize(seed)

  def draw(index, nothing):
    del nothing
    parts = model.sample(
      seed=random.fold_in(seed, index),
      value=tfp_private.by_name(model, given) if given else None,
    )
    parts = zip(names, data.in_order(parts)[1])
    return {name: part for name, part in parts if name not in given}

  found = _for_each(draw, dict(nothing=np.zeros([num_draws])))
  data.check_axes(model, found, given)
  return found


def fixed(model, unknowns, values, computed=()):
  """Returns dict of the values that stay fixed when data are simulated.

  A value is fixed if its distribution depends on no unknown, or if the
  distribution of an unknown depends on it, perhaps through `computed` parts.
  """
  if not values:
    return {}
  names = _checked_names(model, unknowns)
  both = [name for name in unknowns if name in values]
  if both:
    raise ValueError(
      f'{", ".join(both)}: pinned in the model, but drawn. Pass a model that '
      'leaves the unknowns open.'
    )
  children = _children(model, names)
  below = _below(children, unknowns)

  def is_above(name):
    through = {n: c for n, c in children.items() if n in {name, *computed}}
    return bool(_below(through, [name]) & set(unknowns))

  return {
    name: value
    for name, value in values.items()
    if name not in below or is_above(name)
  }


def depending(model, unknowns, values):
  """Returns dict of the values whose distribution depends on an unknown."""
  names = _checked_names(model, unknowns)
  below = _below(_children(model, names), unknowns)
  return {name: value for name, value in values.items() if name in below}


def _below(children, names):
  """Returns the given names and the names of all parts that depend on them."""
  below, reached = set(), set(names)
  while reached - below:
    below |= reached
    reached = set().union(*(children.get(name, ()) for name in below))
  return below


def _children(model, names):
  """Returns dict of name -> the parts whose distribution depends on that part.

  The graph of the parts' densities shows the dependence; nothing is computed.
  """

  def look(values):
    children = {name: set() for name in names}
    laws = kinds.parts(model, tfp_private.by_name(model, values))
    for name, law in zip(names, laws):
      above = support_of_data.ancestors(law.log_prob(values[name]))
      for other in set(names) - {name}:
        leaves = tf.nest.flatten(values[other])
        if any(leaf.op in above for leaf in leaves):
          children[other].add(name)
    return children

  return custom_gradient.in_graph(look, kinds.specs(model, names))


def _check_shapes(model, names, given):
  """Refuses values whose shape differs from that in the model."""
  events = dict(zip(names, data.in_order(model.event_shape)[1]))
  for name, value in given.items():
    pairs = zip(tf.nest.flatten(events[name]), tf.nest.flatten(value))
    for shape, part in pairs:
      if not shape.is_compatible_with(part.shape):
        raise ValueError(
          f'{name} has the shape {part.shape}, but {shape} in the model that '
          f'was passed. Pin {name} in the model that you pass.'
        )


def _cast(model, names, values):
  """Returns values of parts in the dtypes that the model has."""
  dtypes = dict(zip(names, data.in_order(model.dtype)[1]))
  return {
    name: tf.nest.map_structure(tf.cast, value, dtypes[name])
    for name, value in values.items()
  }


def log_likelihood(model, unknowns, observed, of=None, inexact=frozenset()):
  """Returns dict of name -> [n, ...]: log densities of data, given unknowns.

  There is one log density for each number that is independent of the others,
  given the unknowns. To find these numbers, `tfd.Sample` and `tfd.Independent`
  are replaced by their inner distributions. All observed parts are in
  `observed`, and `of` names the data among them; `None` names all. The density
  in TFP of the parts `inexact` is wrong at some values, and is corrected.
  """
  names = _checked_names(model, unknowns)
  observed = _cast(model, names, observed)
  data.check_axes(model, unknowns, observed)

  def evaluate(index, values):
    del index
    value = tfp_private.by_name(model, {**values, **observed})
    laws = dict(zip(names, kinds.parts(model, value)))
    return {
      n: _pointwise(laws[n], observed[n], n in inexact) for n in of or observed
    }

  return _for_each(evaluate, unknowns)


def _checked_names(model, unknowns):
  """Returns the names of all parts; refuses unknowns that do not fit."""
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
  """Returns results of `function(index, unknowns)` for all draws, [n, ...]."""

  @tf.function(autograph=False)
  def run(*rows):
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', UserWarning)  # About slow seeded draws.
      one = function(*tf.nest.map_structure(lambda column: column[0], rows))
      like = tf.nest.map_structure(tf.TensorSpec.from_tensor, one)
      found = tf.map_fn(
        lambda row: function(*row), rows, fn_output_signature=like
      )
    custom_gradient.let_go(tf.compat.v1.get_default_graph())
    return found

  with tf.device('/CPU:0'):
    unknowns = tf.nest.map_structure(tf.constant, unknowns)
    rows = tf.range(len(tf.nest.flatten(unknowns)[0])), unknowns
    found = run.get_concrete_function(*rows)(*rows)
  return tf.nest.map_structure(np.asarray, found)


def _pointwise(law, value, is_inexact, num_front=0):
  """Returns log densities of all numbers that are drawn independently.

  For a joint distribution inside the model, the result is a dict by part. The
  value is [..., batch..., event...], with `num_front` axes before the batch.
  """
  if isinstance(law, tfd.JointDistribution):
    names, _ = data.parts_and_events(law)
    parts = zip(names, kinds.parts(law, value), data.in_order(value)[1])
    return {
      name: _pointwise(inner, part, is_inexact) for name, inner, part in parts
    }
  if isinstance(law, tfd.Independent):
    return _pointwise(law.distribution, value, is_inexact, num_front)
  if not isinstance(law, tfd.Sample):
    return (exact.exact(law) if is_inexact else law).log_prob(value)
  # The value is [..., batch..., sample..., event...]. The inner distribution
  # needs the sample axes before the batch, so the axes are swapped, and swapped
  # back afterwards.
  inner = law.distribution
  begin, to = num_front, num_front + inner.batch_shape.rank
  end = len(value.shape) - inner.event_shape.rank
  value = support_of_data.swapped(value, begin, to, end)
  found = _pointwise(inner, value, is_inexact, begin + end - to)
  return support_of_data.swapped(found, begin, begin + end - to, end)
