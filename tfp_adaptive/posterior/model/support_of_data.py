"""Finds which data a distribution can draw.

Most distributions of TFP have a finite density outside of their support, for
example a Poisson at 1.5 or an `Exponential` at -1. `allowed` unwraps a
distribution and returns masks of possible data. If these depend on unknowns,
`posterior.model.exact` corrects the density.

A mask is a boolean Tensor with the shape of the data. A fact about an event is
repeated for all numbers of the event.
"""

import functools
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.posterior.model import kinds

tfb = tfp.bijectors
tfd = tfp.distributions
tnp = tf.experimental.numpy

# Accepted rounding of data, for example of shares that sum to 1.
_ROUNDED = 1e-2
# Numbers at which a bijector is tried.
_TRIED = np.concatenate([sign * 2.0 ** np.arange(-3, 5) for sign in (-1, 1)])


class Rule(NamedTuple):
  """One condition on data."""

  # Mask of the data that meet the condition.
  mask: tf.Tensor
  # Words that follow "must be" in a message.
  words: str
  # Whether the condition holds only at single points, such as whole numbers.
  is_point: bool = False
  # Masks of the data at an end of the support, and of the data without a finite
  # log density. None if no data lie at an end.
  is_end: Any = None
  is_dead: Any = None
  # Number of last axes that form an event; 0 if the condition is about numbers.
  rank: int = 0

  def map(self, function: Callable) -> 'Rule':
    """Returns the rule with `function` applied to each mask."""
    masks = (self.mask, self.is_end, self.is_dead)
    mask, is_end, is_dead = (None if m is None else function(m) for m in masks)
    return self._replace(mask=mask, is_end=is_end, is_dead=is_dead)


class Support(NamedTuple):
  """Conditions on data under one distribution."""

  # Conditions that all must hold.
  rules: tuple = ()
  # Masks outside of which TFP's density is wrong.
  inside: tuple = ()

  def map(self, function: Callable) -> 'Support':
    """Returns the support with `function` applied to each mask."""
    rules = tuple(rule.map(function) for rule in self.rules)
    return Support(rules, tuple(map(function, self.inside)))


def ancestors(tensor: tf.Tensor) -> set:
  """Returns all operations from which a Tensor is computed in a graph."""
  found, left = set(), [tensor.op]
  while left:
    operation = left.pop()
    if operation not in found:
      found.add(operation)
      left.extend(source.op for source in operation.inputs)
  return found


def allowed(law: Any, value: tf.Tensor) -> Support:
  """Returns the conditions on one draw, [batch..., event...], under `law`.

  The value has the dtype of `law`, which is not a joint distribution. If this
  dtype is not floating, the value is float64, so that fractions are detected.
  """
  for wrappers, walk in _WALKS:
    if kinds.is_a(law, *wrappers):
      return walk(law, value)
  if kinds.is_plainly_transformed(law):
    return _of_transformed(law, value)
  return of_leaf(law, value)


# -- Wrappers of other distributions. -----------------------------------------


def _of_independent(law, value):
  return allowed(law.distribution, value)


def _of_sample(law, value):
  """Moves sample axes before batch axes, and moves those of masks back."""
  inner = law.distribution
  events, batches = kinds.rank(inner), inner.batch_shape.rank
  if events is None:
    return Support()
  end = value.shape.rank - events
  middle = end - (kinds.rank(law) - events)
  begin = middle - batches
  found = allowed(inner, swapped(value, begin, middle, end))
  middle = begin + end - middle
  return found.map(lambda mask: swapped(mask, begin, middle, end))


def swapped(value, begin, middle, end):
  """Swaps two adjacent blocks of axes, [begin, middle) and [middle, end)."""
  axes = list(range(value.shape.rank))
  order = axes[:begin] + axes[middle:end] + axes[begin:middle] + axes[end:]
  return tf.transpose(value, order)


def _of_batch_reshape(law, value):
  inner = law.distribution
  front = value.shape.rank - kinds.rank(law) - law.batch_shape.rank
  shape = value.shape[:front] + inner.batch_shape + inner.event_shape
  found = allowed(inner, tf.reshape(value, shape))
  return found.map(lambda mask: tf.reshape(mask, value.shape))


def _of_batch_concat(law, value):
  axis = value.shape.rank - kinds.rank(law) - law.batch_shape.rank
  axis += law.parameters['axis']
  sizes = [d.batch_shape[law.parameters['axis']] for d in law.distributions]
  parts = tf.split(value, sizes, axis=axis)
  return _joined(law.distributions, parts, functools.partial(_concat, axis))


def _of_blockwise(law, value):
  """Splits a vector into its blocks."""
  if isinstance(law.distributions, tfd.JointDistribution):
    return Support()
  shapes = [part.event_shape for part in law.distributions]
  parts = tf.split(value, [s.num_elements() for s in shapes], axis=-1)
  front = value.shape[:-1]
  parts = [tf.reshape(p, front + s) for p, s in zip(parts, shapes)]

  def join(masks):
    flat = [
      tf.reshape(m, front + [s.num_elements()]) for m, s in zip(masks, shapes)
    ]
    return tf.concat(flat, axis=-1)

  return _joined(law.distributions, parts, join)


def _concat(axis, masks):
  return tf.concat(masks, axis=axis)


def _joined(laws, values, join):
  """Returns the support of a value; `join` joins masks of all its parts."""
  rules, inside = [], []
  everywhere = [tf.ones_like(value, tf.bool) for value in values]
  for i, (law, value) in enumerate(zip(laws, values)):

    def alone(mask, i=i, others=everywhere):
      return join([*others[:i], mask, *others[i + 1 :]])

    def nowhere_else(mask, alone=alone):
      return alone(mask, others=[tf.zeros_like(m) for m in everywhere])

    found = allowed(law, value)
    for rule in found.rules:
      joined = rule.map(nowhere_else)
      rules.append(joined._replace(mask=alone(rule.mask), rank=0))
    inside += map(alone, found.inside)
  return Support(tuple(rules), tuple(inside))


def _of_masked(law, value):
  """Allows anything at masked entries."""
  valid = tf.convert_to_tensor(law.validity_mask)
  for _ in range(kinds.rank(law)):
    valid = valid[..., tf.newaxis]
  found = allowed(law.distribution, value)
  rules = [rule.map(lambda mask: mask & valid) for rule in found.rules]
  rules = [rule._replace(mask=rule.mask | ~valid) for rule in rules]
  inside = tuple(mask | ~valid for mask in found.inside)
  return Support(tuple(rules), inside)


def _of_mixture(law, value):
  """Allows data that any component can draw."""
  return _any_of([allowed(part, value) for part in law.components], value)


def _of_components(law, value):
  axis = value.shape.rank - kinds.rank(law)
  found = allowed(law.components_distribution, tf.expand_dims(value, axis))
  return _any_along(found, axis)


def _of_hidden_markov(law, value):
  """Allows data that any state can emit."""
  inner = law.observation_distribution
  if kinds.rank(inner) is None:
    return Support()
  end = value.shape.rank - kinds.rank(inner)
  if law.parameters['time_varying_observation_distribution']:
    return _any_along(allowed(inner, tf.expand_dims(value, end)), end)
  # The last batch axis is that of the hidden states. There is no axis of steps.
  moved = tnp.moveaxis(value, end - 1, 0)
  found = _any_along(allowed(inner, tf.expand_dims(moved, end)), end)
  return found.map(lambda mask: tnp.moveaxis(mask, 0, end - 1))


def _any_of(found, value):
  """Returns the support of a mixture from those of its components."""
  inside = sum((one.inside for one in found), ())
  if not all(one.rules for one in found):
    # A component without rules says nothing about the data, and neither does
    # the mixture.
    return Support((), inside)
  masks = [tf.broadcast_to(_all(one.rules), tf.shape(value)) for one in found]
  words = dict.fromkeys(rule.words for one in found for rule in one.rules)
  is_point = all(any(rule.is_point for rule in one.rules) for one in found)
  any_mask = functools.reduce(tf.logical_or, masks)
  return Support((Rule(any_mask, ', or '.join(words), is_point),), inside)


def _any_along(found, axis):
  """Returns the support of a mixture whose components lie along an axis."""
  inside = tuple(tf.reduce_all(mask, axis) for mask in found.inside)
  if not found.rules:
    return Support((), inside)
  words = dict.fromkeys(rule.words for rule in found.rules)
  is_point = any(rule.is_point for rule in found.rules)
  mask = tf.reduce_any(_all(found.rules), axis)
  return Support((Rule(mask, ' and '.join(words), is_point),), inside)


def _all(rules):
  return functools.reduce(tf.logical_and, [rule.mask for rule in rules])


def _of_markov_chain(law, value):
  """Checks the first state, and each later state given the one before it."""
  first, steps = law.initial_state_prior, law.parameters['num_steps']
  if kinds.rank(first) is None:
    return Support()
  axis = value.shape.rank - kinds.rank(first) - 1
  moved = tnp.moveaxis(value, axis, 0)
  before = tf.cast(moved[:-1], law.dtype)
  later = law.transition_fn(tf.range(steps - 1), before)

  def join(masks):
    whole = tf.concat([masks[0][tf.newaxis], masks[1]], axis=0)
    return tnp.moveaxis(whole, 0, axis)

  return _joined([first, later], [moved[0], moved[1:]], join)


def _of_autoregressive(law, value):
  return allowed(law.distribution_fn(tf.cast(value, law.dtype)), value)


def _of_transformed(law, value):
  """Checks the preimages of the data, and that these preimages exist."""
  bijector, inner = law.bijector, law.distribution
  events, inner_rank = kinds.rank(law), kinds.rank(inner)
  if events is None or inner_rank is None:
    return Support()
  if not bijector._is_injective:
    is_absolute = isinstance(bijector, tfb.AbsoluteValue)
    rules = (Rule(value >= 0, 'not negative'),) if is_absolute else ()
    return Support(rules, rules and (value >= 0,))
  value = tf.cast(value, law.dtype)
  source = bijector.inverse(value)
  image = ()
  if not _is_onto(bijector):
    image = _image(bijector, value, source, _RANGE)
  found = allowed(inner, tf.identity(source))
  if isinstance(bijector, (tfb.Permute, tfb.Reshape, tfb.Transpose)):
    found = found.map(
      lambda mask: bijector.forward(tf.cast(mask, tf.int32)) > 0
    )
  elif bijector.forward_min_event_ndims:
    rank = source.shape.rank - value.shape.rank + events
    found = found.map(lambda mask: _spread(mask, rank, value, events))
  name = type(bijector).__name__.removeprefix('_')
  rules = [
    rule._replace(words=f'{rule.words} before `tfb.{name}` moves them', rank=0)
    for rule in found.rules
  ]
  return found._replace(rules=(*image, *rules))


def folds(law: Any) -> list:
  """Returns [(transformed distribution, boolean scalar)] inside of `law`.

  The scalar tells whether TFP's density misses some draws. TFP takes
  `tfb.Square` for one to one, although it is so only for numbers of one sign.
  """
  found = [pair for part in kinds.inside(law) for pair in folds(part)]
  if kinds.is_plainly_transformed(law) and _may_fold(law.bijector):
    found.append((law, _is_folded(law.bijector, law.distribution)))
  return found


def _may_fold(bijector):
  """Returns whether a bijector claims to be one to one, and may be wrong."""
  if kinds.is_a(bijector, tfb.Chain, tfb.Blockwise):
    return any(map(_may_fold, bijector.bijectors))
  is_tfps = type(bijector).__module__.startswith('tensorflow_probability.')
  is_suspect = not is_tfps or kinds.is_a(bijector, *_FOLDING)
  return bijector._is_injective and is_suspect


# Bijectors that are one to one only for numbers, or diagonals, of one sign, and
# those that users write.
_FOLDING = (
  tfb.CholeskyOuterProduct,
  tfb.CholeskyToInvCholesky,
  tfb.Inline,
  tfb.Power,
  tfb.RayleighCDF,
  tfb.Square,
  tfb.WeibullCDF,
)


def _is_folded(bijector, base):
  """Returns whether two numbers that `base` can draw have one image.

  The image f(v) of a number v has the preimage w. If w is not v, then f has
  other values between v and w. Otherwise only rounding moved v.
  """
  found = []
  for number in _TRIED:
    shape = base.batch_shape + base.event_shape
    v = tf.fill(shape, tf.cast(number, base.dtype))
    image = bijector.forward(tf.identity(v))
    w = bijector.inverse(tf.identity(image))
    middle = bijector.forward(tf.identity(0.5 * (v + w)))
    is_moved = tf.math.is_finite(w) & (tf.abs(w - v) > 0.5 * tf.abs(v))
    if not bijector.forward_min_event_ndims:
      is_moved |= tf.math.is_nan(image)
    rules = allowed(base, tf.identity(v)).rules
    is_moved &= _all(rules) if rules else True
    is_alike = tf.abs(middle - image) <= _ROUNDED * tf.abs(image)
    is_between = tf.reduce_any(~is_alike)
    found.append(tf.reduce_any(is_moved) & is_between)
  return tf.reduce_any(tf.stack(found))


_RANGE = 'in the range of its bijector'


def _is_onto(bijector):
  """Returns whether a bijector is known to reach all real numbers."""
  if isinstance(bijector, tfb.Chain):
    return all(map(_is_onto, bijector.bijectors))
  return isinstance(bijector, _ONTO)


_ONTO = (
  tfb.Identity,
  tfb.Permute,
  tfb.Scale,
  tfb.ScaleMatvecDiag,
  tfb.ScaleMatvecLU,
  tfb.ScaleMatvecLinearOperator,
  tfb.ScaleMatvecTriL,
  tfb.Shift,
  tfb.Sinh,
  tfb.SinhArcsinh,
)


def _spread(mask, rank, value, events):
  """Returns a mask of the events whose whole preimage is allowed."""
  mask = tf.reduce_all(mask, axis=list(range(-rank, 0))) if rank else mask
  for _ in range(events):
    mask = mask[..., tf.newaxis]
  return tf.broadcast_to(mask, tf.shape(value))


def _image(bijector, value, source, words):
  """Returns rules for the image of a bijector, given value and preimage.

  Outside of the image, most inverses of single numbers are NaN, but not that of
  `tfb.Softsign`. Bijectors of vectors and matrices ignore numbers that do not
  fit, such as those above a diagonal. `forward(source)` must be the value.
  """
  back = bijector.forward(tf.identity(source))
  gap = tf.abs(back - value)
  if not bijector.inverse_min_event_ndims:
    # At the boundary the preimage is infinite, and the gap may be NaN.
    is_away = gap > _ROUNDED * (tf.abs(value) + tf.cast(1, value.dtype))
    return (Rule(~tf.math.is_nan(source) & ~is_away, words),)
  size = tf.reduce_max(tf.abs(value)) + tf.cast(1, value.dtype)
  is_back = gap <= _ROUNDED * size
  return (Rule(_of_event(is_back, bijector.inverse_min_event_ndims), words),)


def _of_event(mask, rank):
  """Returns the mask of events that are right in all their numbers."""
  axes = list(range(-rank, 0))
  if not axes:
    return mask
  return tf.broadcast_to(
    tf.reduce_all(mask, axis=axes, keepdims=True), tf.shape(mask)
  )


_WALKS = (
  ((tfd.Independent, tfd.BatchBroadcast), _of_independent),
  ((tfd.Sample,), _of_sample),
  ((tfd.BatchReshape,), _of_batch_reshape),
  ((tfd.BatchConcat,), _of_batch_concat),
  ((tfd.Blockwise,), _of_blockwise),
  ((tfd.Masked,), _of_masked),
  ((tfd.Mixture,), _of_mixture),
  ((tfd.MixtureSameFamily,), _of_components),
  ((tfd.HiddenMarkovModel,), _of_hidden_markov),
  ((tfd.MarkovChain,), _of_markov_chain),
  ((tfd.Autoregressive,), _of_autoregressive),
)


# -- Distributions that wrap no other distribution. --------------------------


def of_leaf(law: Any, value: tf.Tensor) -> Support:
  """Returns the support of a distribution that wraps no other distribution."""
  if not isinstance(law.dtype, tf.DType):
    return Support()
  rules = ()
  for classes, rule_of in _LEAVES:
    if kinds.is_a(law, *classes):
      rules = tuple(rule_of(law, value))
      break
  else:
    if law.dtype.is_integer:
      rules = (_whole(value),)
    elif law.dtype.is_floating:
      rules = tuple(_by_map(law, value))
  rules = tuple(_broadcast(rule, value, kinds.rank(law)) for rule in rules)
  inside = () if is_zero_outside(law) else tuple(r.mask for r in rules)
  return Support(rules, inside)


def _broadcast(rule, value, rank):
  """Returns the rule with masks that have at least the shape of the value."""

  def broadcast(mask):
    shape = tf.broadcast_static_shape(mask.shape, value.shape)
    return tf.broadcast_to(mask, shape)

  return rule.map(broadcast)._replace(rank=rank)


def _is_whole(value):
  """Returns the mask of numbers that are whole up to a bijector's rounding."""
  return tf.abs(value - tf.round(value)) <= _rounding(value)


def _rounding(value):
  eps = np.finfo(value.dtype.as_numpy_dtype).eps
  return tf.cast(8 * eps, value.dtype) * tf.abs(value)


def _whole(value, low=None, words='whole numbers'):
  mask = _is_whole(value)
  return Rule(mask if low is None else mask & (value >= low), words, True)


def _counts(law, value):
  return [_whole(value, 0, 'whole numbers from 0')]


def _from_one(law, value):
  return [_whole(value, 1, 'whole numbers from 1')]


def _shares(law, value):
  if law.dtype.is_integer:  # TFP rounds the numbers of an array down.
    words = '0 or 1 (for shares give the distribution `dtype=tf.float32`)'
    return [Rule((value == 0) | (value == 1), words, True)]
  return [Rule((value >= 0) & (value <= 1), 'numbers from 0 to 1')]


def _counts_of_trials(law, value):
  words = 'whole numbers from 0 to `total_count`'
  total = tf.cast(law.total_count, value.dtype)
  return [_whole(value, 0, words), Rule(value <= total, words)]


def _shared_trials(law, value):
  words = 'whole numbers from 0 that sum to `total_count`'
  total = tf.cast(law.total_count, value.dtype)
  is_sum = tf.abs(tf.reduce_sum(value, axis=-1) - total) <= _rounding(total)
  counts = _of_event(_is_whole(value) & (value >= 0), 1)
  return [
    Rule(counts, words, True),
    Rule(is_sum[..., tf.newaxis], words, True),
  ]


def _one_hot(law, value):
  is_one = tf.reduce_sum(value, axis=-1, keepdims=True) == 1
  mask = is_one & _of_event(_is_whole(value) & (value >= 0), 1)
  return [Rule(mask, 'one-hot, a single 1 and else 0', True)]


def _labels(law, value):
  parameters = law.probs if law.logits is None else law.logits
  return [_label(value, parameters.shape[-1])]


def _ordered_labels(law, value):
  size = law.cutpoints.shape[-1]
  return [_label(value, None if size is None else size + 1)]


def _label(value, size):
  if size is None:
    return _counts(None, value)[0]
  mask = _is_whole(value) & (value >= 0) & (value < size)
  return Rule(mask, f'labels from 0 to {size - 1}', True)


def _permutation(law, value):
  size = value.shape[-1]
  order = tf.range(size, dtype=value.dtype)
  mask = _of_event(tf.sort(value, axis=-1) == order, 1)
  return [Rule(mask, f'a permutation of 0 to {size - 1}', True)]


def _subset(law, value):
  mask = _of_event((value == 0) | (value == 1), 1)
  return [Rule(mask, '0 or 1, which points are drawn', True)]


def _outcomes(law, value):
  outcomes = tf.cast(law.outcomes, value.dtype)
  near = _is_near(value[..., tf.newaxis], outcomes)
  mask = tf.reduce_any(near, axis=-1)
  return [Rule(mask, f'among the outcomes{_shown(outcomes)}', True)]


def _seen(law, value):
  """Returns the rule of an empirical distribution: values are its samples."""
  rank = kinds.rank(law)
  samples = tf.cast(law.samples, value.dtype)
  axis = value.shape.rank - rank
  is_equal = tf.expand_dims(value, axis) == samples
  if rank:
    axes = list(range(-rank, 0))
    is_equal = tf.reduce_all(is_equal, axis=axes, keepdims=True)
  mask = tf.reduce_any(is_equal, axis=axis)
  return [Rule(mask, 'among the samples of the distribution', True)]


def _constant(law, value):
  """Returns the rule of a value that is not random."""
  loc = tf.cast(tf.convert_to_tensor(law.loc), value.dtype)
  slack = tf.cast(tf.convert_to_tensor(law.atol), value.dtype)
  slack += tf.cast(tf.convert_to_tensor(law.rtol), value.dtype) * tf.abs(loc)
  words = f'equal to{_shown(loc) or " its constant"}'
  return [Rule(tf.abs(value - loc) <= slack, words, True)]


def _quantized(law, value):
  """Returns the rules of rounded numbers between two bounds."""
  rules = [_whole(value)]
  for bound, compare, words in (
    (law.low, tf.greater_equal, 'at least'),
    (law.high, tf.less_equal, 'at most'),
  ):
    if bound is not None:
      bound = tf.cast(bound, value.dtype)
      mask = compare(value, bound)
      rules.append(Rule(mask, f'{words}{_shown(bound) or " its bound"}'))
  # n is a base draw in (n - 1, n], rounded up; n and n - 0.5 are checked.
  base = [allowed(law.distribution, value - step) for step in (0.0, 0.5)]
  return [*rules, *_any_of(base, value).rules]


def _simplex(law, value):
  is_sum = tf.abs(tf.reduce_sum(value, axis=-1, keepdims=True) - 1) <= _ROUNDED
  words = 'not negative and sum to 1'
  mask = is_sum & _of_event(value >= 0, 1)
  is_end = tf.reduce_any(value == 0, axis=-1, keepdims=True)
  is_end = tf.broadcast_to(is_end, tf.shape(value))
  is_dead = _is_dead(law, value)[..., tf.newaxis]
  return [Rule(mask, words, True, is_end, is_dead)]


def _log_simplex(law, value):
  rule = _simplex(law, tf.exp(value))[0]
  return [Rule(rule.mask, 'logarithms of shares that sum to 1', True)]


def _direction(law, value):
  length = tf.norm(value, axis=-1, keepdims=True)
  mask = tf.broadcast_to(tf.abs(length - 1) <= _ROUNDED, tf.shape(value))
  return [Rule(mask, 'vectors of length 1', True)]


def _angle(law, value):
  # The density is periodic, so angles from 0 to 2 pi are right too.
  mask = tf.abs(value) <= 2 * np.pi + 1e-5
  return [Rule(mask, 'angles in radians, from -pi to pi or from 0 to 2 pi')]


def _matrix(law, value):
  """Returns the rule for covariances or their factors."""
  if law.input_output_cholesky:
    return [Rule(_is_factor(value), _FACTOR, True)]
  return [Rule(_is_covariance(value), 'symmetric and positive definite', True)]


def _correlations(law, value):
  """Returns the rules for correlations or their factors."""
  if law.input_output_cholesky:
    return _correlation_factor(law, value)
  is_one = tf.abs(tf.linalg.diag_part(value) - 1) <= _ROUNDED
  is_one = tf.reduce_all(is_one, axis=-1)[..., tf.newaxis, tf.newaxis]
  words = 'symmetric and positive definite, with ones on the diagonal'
  return [Rule(_is_covariance(value) & is_one, words, True)]


def _correlation_factor(law, value):
  length = tf.norm(value, axis=-1)
  is_one = tf.reduce_all(tf.abs(length - 1) <= _ROUNDED, axis=-1)
  mask = _is_factor(value) & is_one[..., tf.newaxis, tf.newaxis]
  return [Rule(mask, f'{_FACTOR}, with rows of length 1', True)]


_FACTOR = 'lower triangular, positive on the diagonal'


def _is_factor(value):
  above = value - tf.linalg.band_part(value, -1, 0)
  is_positive = tf.reduce_all(tf.linalg.diag_part(value) > 0, axis=-1)
  is_positive = is_positive[..., tf.newaxis, tf.newaxis]
  return _of_event(above == 0, 2) & is_positive


def _is_covariance(value):
  size = tf.reduce_max(tf.abs(value), axis=[-2, -1], keepdims=True)
  slack = tf.cast(1e-3, value.dtype) * size
  turned = tf.linalg.matrix_transpose(value)
  is_symmetric = _of_event(tf.abs(value - turned) <= slack, 2)
  symmetric = tf.where(
    is_symmetric, value, tf.eye(value.shape[-1], dtype=value.dtype)
  )
  least = tf.reduce_min(tf.linalg.eigvalsh(symmetric), axis=-1)
  return is_symmetric & (least > 0)[..., tf.newaxis, tf.newaxis]


def _generalized_pareto(law, value):
  """Returns the rules for a tail that begins at `loc` and may have an end."""
  distance = (value - law.loc) / law.scale
  known = tf.get_static_value(law.concentration)
  rules = [_at_least(law, value, law.loc)]
  if known is None or np.any(known < 0):
    mask = 1 + tf.cast(law.concentration, value.dtype) * distance >= 0
    rules.append(Rule(mask, 'at most `loc - scale / concentration`'))
  return rules


def _extreme(law, value):
  known = tf.get_static_value(law.concentration)
  if known is not None and not np.any(known):
    return []
  mask = 1 + law.concentration * (value - law.loc) / law.scale > 0
  return [Rule(mask, 'within `loc - scale / concentration`')]


def _by_map(law, value):
  """Returns the rules that follow from TFP's map onto the support."""
  try:
    bijector = law.experimental_default_event_space_bijector()
  except Exception:  # A user's own distribution may raise anything.
    return []
  if isinstance(law, tfd.InverseGaussian):
    bijector = tfb.Exp()
  return [] if bijector is None else _of_map(law, bijector, value)


def _of_map(law, bijector, value):
  """Returns the rules for the image of a map, part by part."""
  if isinstance(bijector, tfb.Identity):
    return []
  if isinstance(bijector, tfb.Sigmoid):
    return _between(law, value, bijector.low, bijector.high)
  is_positive = isinstance(bijector, tfb.Exp) or (
    isinstance(bijector, tfb.Softplus) and bijector.low is None
  )
  if is_positive:
    return [_at_least(law, value, None)]
  if isinstance(bijector, tfb.Chain):
    outer, *inner = bijector.bijectors
    if isinstance(outer, tfb.Reciprocal):
      return [_at_least(law, value, None)]
    if isinstance(outer, tfb.Shift) and isinstance(
      inner[0], (tfb.Exp, tfb.Softplus)
    ):
      return [_at_least(law, value, outer.shift)]
  source = bijector.inverse(value)
  words = f'in the support of `{kinds.described(law)}`'
  return _image(bijector, value, source, words)


def _at_least(law, value, low):
  """Returns the rule of numbers from a bound upwards; `None` means 0."""
  words = 'not negative'
  if low is None:
    low = tf.zeros([], value.dtype)
  else:
    low = tf.cast(low, value.dtype)
    shown = _shown(low)
    words = f'at least{shown}' if shown else 'at least their threshold'
    words = 'not negative' if shown == ' 0' else words
  return Rule(value >= low, words, False, *_ends(law, value, low))


def _between(law, value, low, high):
  """Returns the rule of numbers in an interval; missing bounds are 0 and 1."""
  low = tf.cast(0.0 if low is None else low, value.dtype)
  high = tf.cast(1.0 if high is None else high, value.dtype)
  words = f'between{_shown(low) or " `low`"} and{_shown(high) or " `high`"}'
  mask = (value >= low) & (value <= high)
  return [Rule(mask, words, False, *_ends(law, value, low, high))]


def _ends(law, value, *ends):
  """Returns masks of data at an end, and of data without finite log density.

  Both masks are `None` if no data lie at an end. This saves the time of
  computing the density.
  """
  known = [tf.get_static_value(tensor) for tensor in (value, *ends)]
  is_known = all(number is not None for number in known)
  if is_known and not any(np.any(known[0] == end) for end in known[1:]):
    return None, None
  is_end = functools.reduce(tf.logical_or, [value == end for end in ends])
  return is_end, _is_dead(law, value)


def _is_dead(law, value):
  """Returns the mask of values whose density is zero, infinite or NaN."""
  if isinstance(law, tfd.TruncatedCauchy):  # The density is finite at its ends.
    return tf.zeros_like(value, tf.bool)
  return ~tf.math.is_finite(law.log_prob(tf.identity(value)))


def _is_near(value, other):
  return tf.abs(value - other) <= 1e-5 * (1 + tf.abs(other))


def _shown(tensor):
  """Returns ' 3' for a Tensor that is one known number, else ''."""
  known = tf.get_static_value(tensor)
  return f' {known:g}' if known is not None and np.ndim(known) == 0 else ''


_LEAVES = (
  ((tfd.Bernoulli, tfd.ProbitBernoulli), _shares),
  (
    (
      tfd.Geometric,
      tfd.NegativeBinomial,
      tfd.Poisson,
      tfd.PoissonLogNormalQuadratureCompound,
    ),
    _counts,
  ),
  ((tfd.BetaBinomial, tfd.Binomial), _counts_of_trials),
  ((tfd.DirichletMultinomial, tfd.Multinomial), _shared_trials),
  ((tfd.OneHotCategorical,), _one_hot),
  ((tfd.Categorical,), _labels),
  ((tfd.OrderedLogistic, tfd.StoppingRatioLogistic), _ordered_labels),
  ((tfd.PlackettLuce,), _permutation),
  ((tfd.DeterminantalPointProcess,), _subset),
  ((tfd.FiniteDiscrete,), _outcomes),
  ((tfd.Empirical,), _seen),
  ((tfd.Skellam,), lambda law, value: [_whole(value)]),
  ((tfd.Zipf,), _from_one),
  ((tfd.QuantizedDistribution,), _quantized),
  ((tfd.Deterministic, tfd.VectorDeterministic), _constant),
  ((tfd.Dirichlet, tfd.RelaxedOneHotCategorical), _simplex),
  ((tfd.ExpRelaxedOneHotCategorical,), _log_simplex),
  ((tfd.VonMises,), _angle),
  ((tfd.VonMisesFisher, tfd.SphericalUniform, tfd.PowerSpherical), _direction),
  ((tfd.WishartLinearOperator,), _matrix),
  ((tfd.LKJ,), _correlations),
  ((tfd.CholeskyLKJ,), _correlation_factor),
  ((tfd.GeneralizedPareto,), _generalized_pareto),
  ((tfd.GeneralizedExtremeValue,), _extreme),
)

# Distributions whose density in TFP is zero outside of their support.
_ZERO_OUTSIDE = (
  tfd.Bates,
  tfd.ContinuousBernoulli,
  tfd.Deterministic,
  tfd.Empirical,
  tfd.FiniteDiscrete,
  tfd.HalfCauchy,
  tfd.HalfNormal,
  tfd.HalfStudentT,
  tfd.Pareto,
  tfd.Triangular,
  tfd.TruncatedCauchy,
  tfd.TruncatedNormal,
  tfd.Uniform,
  tfd.VectorDeterministic,
)


def is_zero_outside(law: Any) -> bool:
  """Returns whether TFP's density is zero outside of a leaf's support."""
  return kinds.is_a(law, *_ZERO_OUTSIDE)
