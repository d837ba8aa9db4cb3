"""What a joint distribution and its data must be to be sampled.

Distributions extend their densities beyond their supports where nobody looks:
of data there, and of one number for many, TFP tells nothing.
"""

import warnings

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import target_call
from tfp_adaptive.posterior import supports

__all__ = [
  'as_arrays',
  'checked_parts',
  'computed',
  'in_order',
  'parts_and_events',
]

tfb = tfp.bijectors
tfd = tfp.distributions


def checked_parts(model, pins):
  """Returns the names of all parts, once model and data fit each other.

  Args:
    model: `tfd.JointDistribution`, or one with pins.
    pins: dict of more values, by name.

  Raises:
    ValueError: If the model cannot be built or has a batch of its own, if an
      unknown is discrete, or if data have no part, another shape, or values
      that are not finite or out of the support.
  """
  whole = getattr(model, 'distribution', model)
  before = getattr(model, 'pins', {})
  parts, events = parts_and_events(whole)
  _check_pins([part for part in parts if part not in before], pins)
  values = {**before, **pins}
  _check_is_of_one_chain(whole)
  laws = dict(zip(parts, _laws(whole, parts)))
  events = dict(zip(parts, events))
  given = {
    part: _leaves(part, events[part], values[part])
    for part in parts
    if part in values
  }
  for part, leaves in given.items():
    for (_, law, _), leaf in zip(laws[part], leaves):
      _check_values(law, *leaf)
  for part, inner in laws.items():
    if part not in values:
      for one in inner:
        _check_unknown(*one)
    else:
      for one, (_, _, value) in zip(inner, given[part]):
        _check_support(*one, value)
  if not values:
    warnings.warn(
      f'No data were given: the prior of {", ".join(parts)} is sampled. Data '
      f'are given by name, `sample_posterior(model, {parts[-1]}=...)`.',
      stacklevel=6,
    )
  return parts


def computed(model):
  """Returns the names of parts that are functions of others, and not drawn."""
  names, _ = parts_and_events(model)
  kinds = tfd.Deterministic, tfd.VectorDeterministic
  return {
    name
    for name, laws in zip(names, _laws(model, names))
    if len(laws) == 1 and isinstance(laws[0][1], kinds)
  }


def _laws(model, names):
  """Returns for all parts the (name, distribution, map onto the support).

  A list of one, or of the parts of a joint distribution inside of the model.
  Unbatched, without `tfd.Sample`; `None` where TFP has no map. They are of a
  graph, and nothing is computed.
  """
  found = []

  def look():
    laws, _ = model.sample_distributions(seed=(0, 1))
    found.extend(map(_named_laws, names, in_order(laws)[1]))
    return tf.zeros([])

  with warnings.catch_warnings():
    warnings.simplefilter('ignore', UserWarning)  # Seeded draws are slow.
    tf.function(look, autograph=False).get_concrete_function()
  return found


def _named_laws(name, law):
  law = _inside(law)
  if not isinstance(law, tfd.JointDistribution):
    return [(name, law, _bijector(law))]
  names, _ = parts_and_events(law)
  laws, _ = law.sample_distributions(seed=(0, 1))
  return [
    one
    for inner, part in zip(names, in_order(laws)[1])
    for one in _named_laws(f'{name}.{inner}', part)
  ]


def _bijector(law):
  try:
    return law.experimental_default_event_space_bijector()
  except NotImplementedError:
    return None


def _inside(law):
  while isinstance(law, (tfd.Sample, tfd.Independent)):
    law = law.distribution
  return law


def in_order(structure):
  """Returns names, `None` of a sequence, and parts of a joint structure."""
  if hasattr(structure, '_asdict'):
    structure = structure._asdict()
  if isinstance(structure, dict):
    return list(structure), list(structure.values())
  return None, list(structure)


def parts_and_events(model):
  """Returns names of the parts of a joint distribution, and event shapes."""
  try:
    events = model.event_shape
  except (TypeError, ValueError, tf.errors.OpError) as error:
    what = 'The model cannot be built'
    raise target_call.explained(error, what) from error
  names, events = in_order(events)
  return names or [name for name, _ in model.resolve_graph()], events


def as_arrays(model):
  """Returns dict of name -> values of the pins of a model, numpy."""
  if not hasattr(model, 'pins'):
    return {}
  names, events = parts_and_events(model.distribution)
  nested = [n for n, e in zip(names, events) if tf.nest.is_nested(e)]
  # A list of numbers is an array, and no structure of the model.
  return {
    name: tf.nest.map_structure(np.asarray, value)
    if name in nested
    else np.asarray(value)
    for name, value in model.pins.items()
  }


def _check_pins(parts, pins):
  """Refuses values of no part of a model that is unknown."""
  unknown = sorted(set(pins) - set(parts))
  if unknown:
    raise ValueError(
      f'{", ".join(map(repr, unknown))}: no unknown part of the model, and no '
      f'argument, has this name; the parts are {", ".join(parts)}.'
    )


def _leaves(name, event, value):
  """Returns [(name, event shape, value)] of a part, of all inside of it."""
  if isinstance(event, tf.TensorShape):
    return [(name, event, value)]
  names, events = in_order(event)
  try:
    inner, values = in_order(value)
    if names and inner:
      values = [dict(zip(inner, values))[inner_name] for inner_name in names]
    if len(values) != len(events):
      raise ValueError(f'{len(values)} values')
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(
      f'The data {name!r} are of a model inside of the model: give a structure '
      f'like that of its events, {event}.'
    ) from error
  names = names or range(len(events))
  return [
    leaf
    for inner_name, *pair in zip(names, events, values)
    for leaf in _leaves(f'{name}.{inner_name}', *pair)
  ]


def _check_values(law, name, event, value):
  """Refuses data that are not finite numbers, or of other shapes."""
  missing = np.ma.getmaskarray(value) if np.ma.is_masked(value) else False
  # Of these TFP leaves out what is masked, whatever it is.
  may_be_nan = isinstance(law, tfd.Masked)
  is_missing = np.any(missing & _is_valid(law, np.shape(missing)))
  try:
    value = np.asarray(value)
  except ValueError:  # Rows of several lengths.
    value = np.asarray(None)
  is_number = value.dtype.kind in 'fiub' and not is_missing
  if not is_number or not (may_be_nan or np.all(np.isfinite(value))):
    raise ValueError(
      f'The data {name!r} are not finite numbers throughout. Leave missing '
      'ones out, or make them unknowns of the model.'
    )
  if not event.is_compatible_with(value.shape):
    raise ValueError(
      f'The data {name!r} have the shape {value.shape}, but the model draws '
      f'{event} there. Write the model for as many, or check the data.'
    )


def _is_valid(law, shape):
  """Returns where a law takes data into account, if that is known."""
  if not isinstance(law, tfd.Masked):
    return True
  valid = tf.get_static_value(law.validity_mask)
  is_known = valid is not None and np.shape(valid) in ((), shape)
  return np.asarray(valid, bool) if is_known else False


def _whole(law, value):
  return value == np.floor(value), 'whole numbers'


def _shares(law, value):
  if tf.as_dtype(law.dtype).is_integer:  # TFP rounds an array's down.
    is_allowed = (value == 0) | (value == 1)
    return is_allowed, '0 or 1, shares with `dtype=tf.float32` there'
  return (value >= 0) & (value <= 1), '0 or 1, or between'


def _not_negative(law, value):
  return value >= 0, 'not negative'


def _counts(law, value):
  return _is_count(value), 'whole numbers from 0'


def _counts_of_trials(law, value):
  is_allowed = _is_count(value) & _is(np.less_equal, value, law.total_count)
  return is_allowed, 'whole numbers from 0 to `total_count`'


def _shared_trials(law, value):
  is_allowed = _is(np.equal, np.sum(value, axis=-1), law.total_count)
  is_allowed = np.all(_is_count(value), axis=-1) & is_allowed
  return is_allowed, 'whole numbers from 0 that sum to `total_count`'


def _one_hot(law, value):
  is_allowed = np.all(_is_count(value), axis=-1) & (np.sum(value, axis=-1) == 1)
  return is_allowed, 'one-hot, a single 1 and else 0'


def _simplex(law, value):
  # Shares that were rounded before they are data are data still.
  is_allowed = np.abs(np.sum(value, axis=-1) - 1) <= 0.01
  return np.all(value >= 0, axis=-1) & is_allowed, 'not negative and sum to 1'


def _labels(law, value):
  size = (law.probs if law.logits is None else law.logits).shape[-1]
  if size is None:
    return _counts(law, value)
  return _is_count(value) & (value < size), f'labels from 0 to {size - 1}'


def _is_count(value):
  return (value >= 0) & (value == np.floor(value))


def _is(compare, value, parameter):
  """Compares with a parameter; true where it is not known, or not of each."""
  known = tf.get_static_value(parameter)
  if known is None or np.shape(known) not in ((), np.shape(value)):
    return True
  return compare(value, known)


# Laws or maps onto supports, and which data are allowed, in words as well.
_SUPPORTS = (
  ((tfd.Bernoulli, tfd.ProbitBernoulli), _shares),
  ((tfb.Exp, tfb.Softplus), _not_negative),
  ((tfd.Geometric, tfd.NegativeBinomial, tfd.Poisson), _counts),
  ((tfd.BetaBinomial, tfd.Binomial), _counts_of_trials),
  ((tfd.DirichletMultinomial, tfd.Multinomial), _shared_trials),
  (tfd.OneHotCategorical, _one_hot),
  (tfb.SoftmaxCentered, _simplex),
  (tfd.Categorical, _labels),
)


def _check_support(name, law, bijector, value):
  """Refuses data where TFP goes on with a density, out of the support."""
  rules = [
    allowed_by
    for kinds, allowed_by in _SUPPORTS
    if isinstance(law, kinds) or isinstance(bijector, kinds)
  ]
  is_whole = isinstance(law.dtype, tf.DType) and law.dtype.is_integer
  if is_whole and not isinstance(law, tfd.Masked):
    rules.append(_whole)
  for allowed_by in rules:
    value = np.asarray(value)
    is_allowed, allowed = allowed_by(law, value)
    if not np.all(is_allowed):
      with np.printoptions(threshold=6):
        raise ValueError(
          f'The data {name!r} are drawn from `tfd.{type(law).__name__}`, and '
          f'must be {allowed}, but {value[~is_allowed][0]} is among them. Code '
          'them so, or give them another distribution.'
        )


def _check_unknown(name, law, bijector):
  """Refuses an unknown without a map from all real numbers, or a wrong one."""
  if bijector is None:
    raise ValueError(
      f'{name} is drawn from `{type(law).__name__}`, onto whose support TFP '
      'has no map from all real numbers. If it is data, give it by name; if it '
      'is discrete, sum it out, as `tfd.HiddenMarkovModel` does of data, for '
      'gradients need continuous unknowns; else write a log density, with '
      '`init` and `bijectors`.'
    )
  if supports.instead_of(law):
    raise ValueError(
      f'{name} is drawn from `tfd.{type(law).__name__}`, '
      f'{supports.instead_of(law)}.'
    )


def _check_is_of_one_chain(model):
  """Refuses a model whose own batches would be taken for chains."""
  for shape in tf.nest.flatten(model.batch_shape):
    if shape.rank:
      raise ValueError(
        f'A part of the model has the batch shape {shape.as_list()}, where '
        'chains are to be. Write it for one chain as '
        '`tfd.JointDistributionCoroutineAutoBatched`, or make the axes of '
        'events: `tfd.Sample`, `tfd.Independent`.'
      )
