"""Checks that a joint distribution and its data can be sampled.

One graph holds the distributions of all parts, with the unknowns as arguments.
If a condition on data does not depend on the unknowns, it is computed and
checked. The parts whose conditions depend on unknowns are reported, so that
their density can be corrected.
"""

import difflib
import re
import warnings
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import custom_gradient
from tfp_adaptive.core import run_warnings
from tfp_adaptive.core import structures
from tfp_adaptive.core import target_call
from tfp_adaptive.core import tfp_private
from tfp_adaptive.posterior.model import exact
from tfp_adaptive.posterior.model import kinds
from tfp_adaptive.posterior.model import support_of_data
from tfp_adaptive.posterior.model import supports

tfd = tfp.distributions

in_order = kinds.in_order

# Words of TFP's errors for nested joint distributions that are not supported.
_NESTED = r"unhashable type: 'slice'|could not be converted to a dimension"
# Largest error of rounding data to the dtype of their part, in standard
# deviations of the data. With more, adjacent numbers of the dtype are a tenth
# of a deviation apart, and data are refused.
_MOST_ROUNDED = 0.05
# With more than this, there is a warning: a model may explain most of the
# spread, and what is left may be as small as the error.
_NOTABLY_ROUNDED = 1e-3
# Fewest rows for a standard deviation of each column.
_FEWEST_ROWS = 10
# Largest relative difference of one log density in a batch of draws and alone.
_LARGEST_DIFFERENCE = 1e-2
_AUTO_BATCHED = (
  tfd.JointDistributionCoroutineAutoBatched,
  tfd.JointDistributionNamedAutoBatched,
  tfd.JointDistributionSequentialAutoBatched,
)
# Number of prior draws to try if data lie at an end of their support.
_NUM_PRIOR_DRAWS = 8


class Checked(NamedTuple):
  """What the checks found out about a joint distribution and its data."""

  # Names of all parts.
  names: list
  # Names of parts whose density in TFP is not right everywhere.
  inexact: frozenset
  # Names of data that are possible only for some values of the unknowns.
  bounding: frozenset
  # Names of the unknowns that decide whether data are possible.
  bounded: frozenset


class _Leaf(NamedTuple):
  """A part of the model, or of a joint distribution inside the model."""

  name: str
  law: Any
  # The data [event...] as they were given; None for an unknown.
  value: Any


def joined(data: Mapping[str, Any] | None, pins: dict) -> dict:
  """Returns the data of a mapping and the keywords, in one dict."""
  if data is None:
    return pins
  if not isinstance(data, Mapping) or not all(isinstance(n, str) for n in data):
    raise TypeError(
      '`data` must be a mapping of the names of parts to their values, but got '
      f"{type(data).__name__}. Write for example `data={{'y': y}}`, also for a "
      "part whose own name is 'data'."
    )
  twice = sorted(set(data) & set(pins))
  if twice:
    raise ValueError(
      f'Values of {", ".join(map(repr, twice))} are given both in `data` and '
      'by keyword. Leave one of them out.'
    )
  return {**data, **pins}


def checked(model: Any, pins: dict, options: tuple = ()) -> Checked:
  """Checks that a model, with or without pins, fits its data; or refuses them.

  Messages suggest one of the `options` of `sample_posterior` if a name in
  `pins` is misspelled.
  """
  whole, before = kinds.unpinned(model)
  parts, events = parts_and_events(whole)
  _check_pins([part for part in parts if part not in before], pins, options)
  values = {**before, **pins}
  _check_is_of_one_chain(whole)
  given = {
    part: _leaves(part, event, values[part])
    for part, event in zip(parts, events)
    if part in values
  }
  for leaves in given.values():
    for leaf in leaves:
      _check_values(*leaf)
  found = _check_laws(whole, parts, given)
  if not values:
    run_warnings.warn(
      f'No data were given: the prior of {", ".join(parts)} is sampled. Data '
      f'are given by name, `sample_posterior(model, {parts[-1]}=...)`.',
    )
  return Checked(parts, *map(frozenset, found))


def check_axes(model: Any, rows: dict, given: dict) -> None:
  """Refuses a model whose densities count axes from the front.

  `axis=1` is the first axis of an event in a batch of draws, but the second
  axis for one draw. The densities of parts are compared for both.

  Args:
    model: A joint distribution with nothing pinned.
    rows: dict of name -> draws of a part, [n, event...] or a structure.
    given: dict of name -> the value of a part, the same for all draws.
  """
  if isinstance(model, _AUTO_BATCHED):
    return
  names, _ = parts_and_events(model)
  compared = {*rows, *given} - computed(model)

  def densities(rows):
    values = {**rows, **given}
    laws = kinds.parts(model, tfp_private.by_name(model, values))
    return [
      (name, law.log_prob(values[name]))
      for name, law in zip(names, laws)
      if name in compared
    ]

  # No axis of a value has as many numbers as there are draws.
  shapes = [x.shape[1:] for x in tf.nest.flatten(rows)]
  shapes += [np.shape(x) for x in tf.nest.flatten(given)]
  sizes = {size for shape in shapes for size in shape}
  count = next(n for n in range(2, len(sizes) + 3) if n not in sizes)
  pick = lambda index: tf.nest.map_structure(
    lambda x: tf.gather(x, index % len(x)), rows
  )
  with tf.device('/CPU:0'):
    try:
      batch = densities(pick(np.arange(count)))
    except Exception:  # A model may be written for one draw.
      return
    singles = [densities(pick(index)) for index in range(count)]
  for (name, many), *ones in zip(batch, *singles):
    if many.shape == []:
      continue  # It depends on no draw, or is a model for one draw.
    if many.shape != [count]:
      return  # The model is written for one draw.
    ones = np.stack([np.sum(one) for _, one in ones])
    many = np.asarray(many)
    both = np.isfinite(ones) & np.isfinite(many)
    neither = ~np.isfinite(ones) & ~np.isfinite(many)
    with np.errstate(invalid='ignore'):
      is_near = np.abs(ones - many) <= _LARGEST_DIFFERENCE * (1 + np.abs(ones))
    if not np.all(np.where(both, is_near, neither)):
      raise ValueError(
        f'The log density of {name!r} at one draw differs from that at the '
        'same draw among several, because the model counts axes from the '
        'front. The first axis of several draws is no axis of an event. Count '
        'axes from the end, for example `axis=-1` instead of `axis=1`, or '
        'write the model for one chain as '
        '`tfd.JointDistributionCoroutineAutoBatched`.'
      )


def computed(model: Any) -> set:
  """Returns the names of parts that are computed from other parts."""

  def is_computed(law):
    while kinds.is_a(law, tfd.Sample, tfd.Independent):
      law = law.distribution
    return kinds.is_a(law, tfd.Deterministic, tfd.VectorDeterministic)

  return _parts_whose(model, is_computed)


def has_probs(model: Any) -> bool:
  """Returns whether a part is a `tfd.Bernoulli` with `probs`."""

  def is_of_probs(law):
    is_bernoulli = kinds.is_a(law, tfd.Bernoulli) and law.logits is None
    return is_bernoulli or any(map(is_of_probs, kinds.inside(law)))

  return bool(_parts_whose(model, is_of_probs))


def _parts_whose(model, is_one):
  """Returns the names of the parts for whose distribution `is_one` is true."""
  names, _ = parts_and_events(model)

  def look():
    return {n for n, law in zip(names, kinds.parts(model)) if is_one(law)}

  return custom_gradient.in_graph(look)


def _check_laws(model, names, given):
  """Checks all distributions in one graph; returns the sets of `Checked`.

  `given` is a dict of name -> leaves (name, event shape, value) of the data.
  """
  specs = kinds.specs(model, names)
  unknowns = {name: specs[name] for name in names if name not in given}
  inputs, found = {}, {}

  def look(*leaves):
    values = tf.nest.pack_sequence_as(unknowns, leaves)
    inputs.update(values)
    for name, data in given.items():
      values[name] = _as_tensors(data, specs[name])
    laws = kinds.parts(model, tfp_private.by_name(model, values))
    for name, law in zip(names, laws):
      data = [leaf[2] for leaf in given[name]] if name in given else None
      found[name] = [
        _look_at(leaf) for leaf in _flat(name, law, values[name], data)
      ]
    custom_gradient.let_go(tf.compat.v1.get_default_graph())
    return tf.zeros([])

  with warnings.catch_warnings():
    warnings.simplefilter('ignore', UserWarning)  # About slow seeded draws.
    graph = tf.compat.v1.wrap_function(look, tf.nest.flatten(unknowns))
  looks = {name: found[name] for name in names}
  return _check_data(model, graph, inputs, looks, given)


def _as_tensors(leaves, specs):
  """Returns data in the structure of a part, in its dtypes.

  The leaves are [(name, event shape, value)], in the order of the model.
  """
  if isinstance(specs, tf.TensorSpec):
    ((_, _, value),) = leaves
    return _tensor(value, specs.dtype)
  names, inner = in_order(specs)
  parts, begin = [], 0
  for one in inner:
    end = begin + len(tf.nest.flatten(one))
    parts.append(_as_tensors(leaves[begin:end], one))
    begin = end
  if structures.is_namedtuple(specs):
    return type(specs)(*parts)
  return dict(zip(names, parts)) if names else type(specs)(parts)


def _tensor(value, dtype):
  value = np.ma.filled(np.ma.asarray(value), 0)
  if tf.as_dtype(dtype).is_integer:
    value = np.nan_to_num(value)  # The values of masked numbers do not matter.
  return tf.constant(value.astype(tf.as_dtype(dtype).as_numpy_dtype))


def _flat(name, law, value, data):
  """Yields a `_Leaf` for a part, or for each part of a model inside it.

  `value` is a structure of Tensors. `data` is a list of the user's values for
  the leaves, or `None` for an unknown.
  """
  inner = law
  while kinds.is_a(inner, tfd.Sample, tfd.Independent):
    inner = inner.distribution
  if not isinstance(inner, tfd.JointDistribution):
    yield _Leaf(name, law, None if data is None else data[0])
    return
  if data is None and inner is not law:
    yield _Leaf(name, law, None)  # The wrapper's own map is checked too.
  names, _ = parts_and_events(inner)
  begin = 0
  laws = kinds.parts(inner, value)
  for part, one, its in zip(names, laws, in_order(value)[1]):
    size = len(tf.nest.flatten(its))
    given = None if data is None else data[begin : begin + size]
    begin += size
    yield from _flat(f'{name}.{part}', one, its, given)


def _look_at(leaf):
  """Returns (leaf, its support, its folds), after checks without the graph."""
  return leaf, _support_of(leaf), _folds(leaf)


def _folds(leaf):
  try:
    return support_of_data.folds(leaf.law)
  except Exception:  # A user's own distribution or bijector may raise anything.
    return []


def _support_of(leaf):
  """Returns the support of a leaf's data."""
  if leaf.value is None:
    _check_unknown(leaf.name, leaf.law)
    return support_of_data.Support()
  _check_missing(leaf)
  is_floating = isinstance(leaf.law.dtype, tf.DType) and (
    leaf.law.dtype.is_floating
  )
  value = _tensor(leaf.value, leaf.law.dtype if is_floating else tf.float64)
  try:
    return support_of_data.allowed(leaf.law, value)
  except (AttributeError, NotImplementedError):
    # A user's own distribution need not have all methods.
    return support_of_data.Support()


def _check_data(model, graph, inputs, looks, given):
  """Refuses data that are impossible; returns the sets of `Checked`.

  The wrapped function `graph` holds all distributions and masks. `inputs` is a
  dict of name -> placeholders of an unknown, and `looks` a dict of name ->
  [(leaf, support, folds)] of all parts.
  """
  owners = {
    leaf.op: name
    for name, part in inputs.items()
    for leaf in tf.nest.flatten(part)
  }

  def movers_of(mask):
    above = support_of_data.ancestors(mask)
    return {owners[op] for op in owners if op in above}

  inexact, bounding, bounded = set(), set(), set()
  for name, leaves in looks.items():
    for leaf, found, folds in leaves:
      _check_rounding(leaf)
      _check_folds(model, graph, inputs, leaf, folds, movers_of, given)
      known, movers = [], set()
      for rule in found.rules:
        said = movers_of(rule.mask)
        movers |= said
        if not said:
          known.append(rule)
        elif rule.is_point:
          _refuse_point(leaf, rule)
      for rule, mask in zip(known, _values(graph, [r.mask for r in known])):
        _check_mask(leaf, rule, mask)
      _check_ends(model, graph, inputs, leaf, known, movers_of, given)
      bounded |= movers
      bounding |= {name} if movers else set()
      fixed = [mask for mask in found.inside if not movers_of(mask)]
      is_right = len(fixed) == len(found.inside)
      is_right &= all(map(np.all, _values(graph, fixed)))
      if exact.is_beyond_tfp(leaf.law) or not is_right:
        inexact.add(name)
  return inexact, bounding, bounded


def _values(graph, masks):
  """Returns arrays of masks that depend on no unknown."""
  return [np.asarray(m) for m in graph.prune([], masks)()] if masks else []


def _check_mask(leaf, rule, mask):
  """Refuses data that violate a condition."""
  if not np.all(mask):
    wrong = _offending(np.asarray(leaf.value), mask, rule.rank)
    raise ValueError(
      f'The data {leaf.name!r} are drawn from `{kinds.described(leaf.law)}`, '
      f'and must be {rule.words}, but {wrong} is among them. Recode the data, '
      'or give them another distribution.'
    )


def _offending(value, mask, rank=0):
  """Returns the first wrong number, or its whole event of `rank` axes."""
  mask = np.broadcast_to(mask, value.shape)
  index = tuple(np.argwhere(~mask)[0])
  with np.printoptions(threshold=6):
    return ' '.join(str(value[index[: len(index) - rank]]).split())


def _refuse_point(leaf, rule):
  """Refuses data that are possible only for single values of the unknowns."""
  raise ValueError(
    f'The data {leaf.name!r} are drawn from `{kinds.described(leaf.law)}`, and '
    f'must be {rule.words}. This depends on unknowns, so the data are '
    'impossible except at single points. Let unknowns change the parameters of '
    'the distribution, and not its values; or add noise to numbers that are '
    'computed from unknowns, `tfd.Normal(value, scale)`.'
  )


def _check_ends(model, graph, inputs, leaf, rules, is_open, given):
  """Refuses data at an end of the support if the log density is not finite."""
  rules = [r for r in rules if r.is_end is not None and not is_open(r.is_end)]
  if not rules:
    return
  ends = graph.prune([], [rule.is_end for rule in rules])()
  for rule, is_end in zip(rules, map(np.asarray, ends)):
    if not np.any(is_end):
      continue
    never = is_end
    for feed in _prior_draws(model, given) if is_open(rule.is_dead) else [None]:
      feeds = [] if feed is None else tf.nest.flatten(inputs)
      dead = graph.prune(feeds, [rule.is_dead])(*(feed or []))
      never = never & np.asarray(dead[0])
    if np.any(never):
      raise ValueError(
        f'The data {leaf.name!r} are drawn from `{kinds.described(leaf.law)}`, '
        f'and {_offending(np.asarray(leaf.value), ~never)} is among them, at '
        'the end of its support, where the density is zero or infinite '
        'whatever the unknowns are. If it was rounded, move it inside; else '
        'give the data another distribution.'
      )


def _check_folds(model, graph, inputs, leaf, folds, is_open, given):
  """Refuses a transformed distribution if its density misses some draws."""
  for law, is_folded in folds:
    feeds, values = [], [[]]
    if is_open(is_folded):
      feeds = tf.nest.flatten(inputs)
      ones = [tf.ones(feed.shape, feed.dtype) for feed in feeds]
      values = list(_prior_draws(model, given)) or [ones]
    run = graph.prune(feeds, [is_folded])
    try:
      is_wrong = any(np.any(run(*value)[0]) for value in values)
    except tf.errors.OpError:
      continue  # The bijector does not take such numbers.
    if is_wrong:
      base = kinds.described(law.distribution)
      outer = f'tfb.{type(law.bijector).__name__.removeprefix("_")}'
      advice = (
        'Write the distribution of the values. If only a sign is lost, undo '
        f'`{outer}` in the data, and draw them from `tfb.AbsoluteValue()` '
        f'around `{base}`'
      )
      if leaf.value is None:
        advice = (
          f'Draw the unknown from `{base}`, and transform its value where the '
          'model needs it'
        )
      raise ValueError(
        f'{leaf.name!r} is drawn from `{kinds.described(leaf.law)}`, but '
        f'`{outer}` is not one to one for the draws of `{base}`, and '
        f"TFP's density misses some of them. {advice}."
      )


def _prior_draws(model, given):
  """Yields prior draws of the unknowns, or nothing if the prior has none."""
  for index in range(_NUM_PRIOR_DRAWS):
    try:
      draws = model.sample(seed=(0, index))
    except (
      LookupError,
      RuntimeError,
      TypeError,
      ValueError,
      tf.errors.OpError,
    ):
      return
    parts = zip(parts_and_events(model)[0], in_order(draws)[1])
    yield tf.nest.flatten({n: part for n, part in parts if n not in given})


def parts_and_events(model):
  """Returns names of the parts of a joint distribution, and event shapes."""
  try:
    events = model.event_shape
  except (TypeError, ValueError, tf.errors.OpError) as error:
    what = 'The model cannot be built'
    if re.search(_NESTED, str(error)):
      what += (
        '. A joint distribution that is a part of another one must be of the '
        'same kind: inside of `...AutoBatched` write `...AutoBatched`, and '
        'give the axes to its parts instead of wrapping it in `tfd.Sample`'
      )
    raise target_call.explained(error, what) from error
  names, events = in_order(events)
  return names or [name for name, _ in model.resolve_graph()], events


def as_arrays(model):
  """Returns dict of name -> values of the pins of a model, numpy."""
  whole, pins = kinds.unpinned(model)
  if not pins:
    return {}
  names, events = parts_and_events(whole)
  nested = [n for n, e in zip(names, events) if tf.nest.is_nested(e)]
  # A list of numbers is an array, unless the part is a structure.
  return {
    name: tf.nest.map_structure(np.asarray, value)
    if name in nested
    else np.asarray(value)
    for name, value in pins.items()
  }


def in_dtypes_of(model: Any, values: dict) -> dict:
  """Returns a dict of those Tensors that need a cast, after the cast.

  TFP casts arrays and numbers to the dtype of a part, but not Tensors.
  """
  whole, _ = kinds.unpinned(model)
  names, _ = parts_and_events(whole)
  dtypes = dict(zip(names, in_order(whole.dtype)[1]))
  found = {}
  for name, value in values.items():
    dtype = dtypes[name]
    if tf.nest.is_nested(dtype) or not tf.as_dtype(dtype).is_floating:
      continue
    if tf.is_tensor(value) and value.dtype != dtype:
      found[name] = tf.cast(value, dtype)
  return found


def _check_pins(parts, pins, options):
  """Refuses values whose name is not that of an unknown part of the model."""
  unknown = sorted(set(pins) - set(parts))
  if unknown:
    raise ValueError(
      f'{" and ".join(map(repr, unknown))} {"are" if unknown[1:] else "is"} '
      'neither an argument nor a part of the model without a value; the parts '
      f'without a value are {", ".join(parts)}.'
      f'{did_you_mean(unknown, [*parts, *options])}'
    )


def did_you_mean(given: list, names: list) -> str:
  """Returns a question about names that do not exist, or ''."""
  near = [difflib.get_close_matches(name, names, n=1) for name in given]
  found = [f'`{match[0]}`' for match in near if match]
  return f' Did you mean {", ".join(found)}?' if found else ''


def _leaves(name, event, value):
  """Returns [(name, event shape, value)] of a part or of parts inside it."""
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
      f'The data {name!r} belong to a model inside of the model: give a '
      f'structure like its events, {event}.'
    ) from error
  names = names or range(len(events))
  return [
    leaf
    for inner_name, *pair in zip(names, events, values)
    for leaf in _leaves(f'{name}.{inner_name}', *pair)
  ]


def _check_values(name, event, value):
  """Refuses data that are not numbers or have another shape."""
  try:
    value = np.asarray(value)
  except ValueError:
    what = 'rows of several lengths'
  else:
    what = _no_numbers(value)
  if what:
    raise ValueError(
      f'The data {name!r} are {what}, but must be an array of numbers. Write '
      'for example `np.asarray(column, float)`, and categories as whole '
      'numbers, `np.unique(column, return_inverse=True)[1]`.'
    )
  if not event.is_compatible_with(value.shape):
    raise ValueError(
      f'The data {name!r} have the shape {value.shape}, but the model draws '
      f'{event} there. Change the shape in the model, or check the data.'
    )


def _no_numbers(value):
  """Returns words on what an array holds instead of numbers, or ''."""
  if value.dtype.kind in 'fiub':
    return ''
  if value.dtype.kind in 'US':
    return 'strings'
  if value.dtype.kind == 'O':
    kinds_inside = sorted({type(item).__name__ for item in value.ravel()[:99]})
    return f'Python objects ({", ".join(kinds_inside)})'
  return f'of dtype {value.dtype}'


def _check_missing(leaf):
  """Refuses missing data, unless the model masks them."""
  value = np.ma.asarray(leaf.value)
  missing = np.ma.getmaskarray(value) | ~np.isfinite(np.ma.getdata(value))
  law = leaf.law
  while kinds.is_a(law, tfd.Sample, tfd.Independent):
    law = law.distribution
  if np.any(missing & _is_valid(law, missing.shape)):
    raise ValueError(
      f'The data {leaf.name!r} are not finite numbers throughout. Leave '
      'missing ones out, or make them unknowns of the model.'
    )


def _check_rounding(leaf):
  """Refuses data that the dtype of their part rounds much; warns if less."""
  dtype = leaf.law.dtype
  is_floating = isinstance(dtype, tf.DType) and dtype.is_floating
  if leaf.value is None or not is_floating or not np.size(leaf.value):
    return
  value = np.ma.asarray(leaf.value)
  if np.can_cast(value.dtype, dtype.as_numpy_dtype):
    return
  value = np.ma.filled(value.astype(np.float64), np.nan)
  value = np.where(np.isfinite(value), value, np.nan)
  axis = 0 if value.ndim > 1 and len(value) >= _FEWEST_ROWS else None
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', RuntimeWarning)  # About infinity and NaN.
    rounded = value.astype(dtype.as_numpy_dtype).astype(np.float64)
    error = np.abs(rounded - value)
    spread = np.nanstd(value, axis=axis)
    # The spread of one number, or of equal numbers, is not known.
    spread = np.where(spread > 0.0, spread, np.nanmax(np.abs(value), axis=axis))
    share = np.where(np.isinf(error), np.inf, error / spread)
    share = np.nan_to_num(share, nan=0.0, posinf=np.inf)
  worst = np.unravel_index(np.argmax(share), share.shape)
  if share[worst] <= _NOTABLY_ROUNDED:
    return
  message = (
    f'The data {leaf.name!r} are rounded to {dtype.name}, because the model '
    f'draws {dtype.name} there: {value[worst]:.10g} becomes '
    f'{rounded[worst]:.10g}. The error is {share[worst]:.2g} of the standard '
    f'deviation of the data (at most {_MOST_ROUNDED} is allowed). Write all '
    'constants of the model in float64, for example `np.float64(1.0)`, or '
    'subtract a constant from the data.'
  )
  if share[worst] > _MOST_ROUNDED:
    raise ValueError(message)
  run_warnings.warn(message)


def _is_valid(law, shape):
  """Returns where a distribution uses the data, as far as this is known."""
  if not kinds.is_a(law, tfd.Masked):
    return True
  valid = tf.get_static_value(law.validity_mask)
  is_known = valid is not None and np.shape(valid) in ((), shape)
  return np.asarray(valid, bool) if is_known else False


def _check_unknown(name, law):
  """Refuses an unknown without a map onto its support, or with a wrong map."""
  said = kinds.described(law)
  try:
    bijector = supports.map_of(law)
    if bijector is not None:
      _trace(law, bijector)
  except supports.NoMapError as error:
    raise ValueError(f'{name} is drawn from `{said}`, {error}.') from error
  except Exception as error:  # TFP's distributions may raise anything.
    what = f'{name} is drawn from `{said}`, whose map TFP cannot make'
    raise ValueError(
      f'{target_call.explained(error, what)} Draw it from another '
      'distribution, or write a log density with `init` and `bijectors`.'
    ) from error
  if bijector is None:
    raise ValueError(
      f'{name} is drawn from `{said}`, for whose support TFP has no bijector. '
      'If it is data, give it by name. If it is discrete, sum it out, because '
      'gradients need continuous unknowns; `tfd.HiddenMarkovModel` sums out '
      'discrete states. Otherwise write a log density, with `init` and '
      '`bijectors`.'
    )


def _trace(law, bijector):
  """Calls a map in the graph, so that any error of the map occurs here."""
  before = bijector.inverse_event_shape(law.event_shape)
  zeros = tf.nest.map_structure(
    lambda shape, dtype: tf.zeros(law.batch_shape + shape, dtype),
    before,
    law.dtype,
  )
  ranks = tf.nest.map_structure(lambda shape: shape.rank, before)
  back = bijector.forward(zeros)
  bijector.forward_log_det_jacobian(zeros, event_ndims=ranks)
  bijector.inverse(tf.nest.map_structure(tf.identity, back))


def _check_is_of_one_chain(model):
  """Refuses a model whose batch axes would be taken for chains."""
  try:
    shapes = tf.nest.flatten(model.batch_shape)
  except TypeError:  # Only some parts are vectorized.
    return
  for shape in shapes:
    if shape.rank:
      raise ValueError(
        f'A part of the model has the batch shape {shape.as_list()}, but '
        'batch axes are reserved for chains. Write the model for one chain as '
        '`tfd.JointDistributionCoroutineAutoBatched`, or turn these axes into '
        'event axes: `tfd.Sample`, `tfd.Independent`.'
      )
