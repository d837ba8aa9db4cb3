"""Densities that are zero outside of the support of a distribution.

TFP's density of many distributions is finite outside of their support:
`tfd.Exponential(1.)` has the density e at -1. If the support is fixed, data
outside of it are refused, so this does no harm. If the support depends on an
unknown, chains would move to where the data are impossible. This file corrects
the density of such parts.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import tfp_private
from tfp_adaptive.posterior.model import kinds
from tfp_adaptive.posterior.model import support_of_data

tfb = tfp.bijectors
tfd = tfp.distributions


def density(model: Any, inexact: frozenset, names: tuple) -> Callable:
  """Returns the log density of a joint distribution with corrected parts.

  It is a function of the unknowns, [chains..., event...], in the structure of
  `model.event_shape`. `names` are those of all parts. The density in TFP of the
  parts `inexact` is wrong at some values.
  """

  def of_one(laws, values):
    terms = [
      _log_prob(laws[name], values[name], name in inexact) for name in names
    ]
    return tf.add_n(terms)

  return _for_each_chain(model, names, of_one)


def possible(model: Any, parts: frozenset, names: tuple) -> Callable:
  """Returns a function of the unknowns: whether the data `parts` can be drawn.

  The function takes unknowns as in `density`, and returns booleans [chains...].
  """

  def of_one(laws, values):
    masks = [_is_possible(laws[name], values[name]) for name in sorted(parts)]
    return tf.reduce_all(tf.stack(masks))

  return _for_each_chain(model, names, of_one)


def _for_each_chain(model, names, function):
  """Returns a function of unknowns that runs the model once for each chain.

  `function` takes two dicts for one chain, distributions and values, and
  returns a scalar.
  """
  whole, pins = kinds.unpinned(model)
  left = [name for name in names if name not in pins]
  events = tf.nest.flatten(model.event_shape)

  def of_one(leaves):
    unknowns = tf.nest.pack_sequence_as(model.event_shape, leaves)
    named, parts = kinds.in_order(unknowns)
    values = {**pins, **dict(zip(named or left, parts))}
    laws = kinds.parts(whole, tfp_private.by_name(whole, values))
    return function(dict(zip(names, laws)), values)

  def of_all(unknowns):
    leaves = tf.nest.flatten(unknowns)
    front = tf.shape(leaves[0])[: leaves[0].shape.rank - events[0].rank]
    rows = [
      tf.reshape(leaf, tf.concat([[-1], event], axis=0))
      for leaf, event in zip(leaves, events)
    ]
    return tf.reshape(tf.vectorized_map(of_one, rows), front)

  return of_all


def _is_possible(law, value):
  """Returns whether a value can be drawn: a boolean scalar."""
  if isinstance(law, tfd.JointDistribution):
    parts = zip(kinds.parts(law, value), kinds.in_order(value)[1])
    return tf.reduce_all([_is_possible(*part) for part in parts])
  rules = support_of_data.allowed(law, _as_floats(value)).rules
  return tf.reduce_all([tf.reduce_all(rule.mask) for rule in rules])


def _as_floats(value):
  return value if value.dtype.is_floating else tf.cast(value, tf.float64)


def _log_prob(law, value, is_inexact):
  """Returns the log density of a part at one value: a scalar."""
  if isinstance(law, tfd.JointDistribution):
    parts = zip(kinds.parts(law, value), kinds.in_order(value)[1])
    return tf.add_n([_log_prob(*part, is_inexact) for part in parts])
  law = exact(law) if is_inexact else law
  return tf.reduce_sum(law.log_prob(value))


def exact(law: Any) -> Any:
  """Returns a distribution whose density is zero outside of its support.

  `law`, not a joint distribution, is returned itself if its density is right.
  """
  for wrappers, rebuild in _REBUILDS:
    if kinds.is_a(law, *wrappers):
      return rebuild(law)
  if kinds.is_plainly_transformed(law):
    return _rebuilt_around_one(law)
  if isinstance(law, (tfd.TruncatedNormal, tfd.TruncatedCauchy)):
    return _Truncated(law) if is_beyond_tfp(law) else law
  is_one_part = isinstance(law.dtype, tf.DType)
  is_right = not is_one_part or support_of_data.is_zero_outside(law)
  return law if is_right else _ZeroOutside(law)


class _Delegate(tfd.Distribution):
  """A distribution that draws like another, but has a density of its own."""

  def __init__(self, distribution: Any, name: str = 'exact'):
    """Wraps a `tfd.Distribution` that wraps no other distribution."""
    self._distribution = distribution
    super().__init__(
      dtype=distribution.dtype,
      reparameterization_type=distribution.reparameterization_type,
      validate_args=False,
      allow_nan_stats=True,
      parameters=dict(distribution=distribution, name=name),
      name=name,
    )

  def _batch_shape(self):
    return self._distribution.batch_shape

  def _batch_shape_tensor(self):
    return self._distribution.batch_shape_tensor()

  def _event_shape(self):
    return self._distribution.event_shape

  def _event_shape_tensor(self):
    return self._distribution.event_shape_tensor()

  def _sample_n(self, n, seed=None):
    return self._distribution.sample(n, seed=seed)


class _ZeroOutside(_Delegate):
  """A distribution whose density is zero outside of its support."""

  def _log_prob(self, x):
    law, rank = self._distribution, kinds.rank(self._distribution)
    rules = support_of_data.of_leaf(law, _as_floats(x)).rules
    if not rules:
      return law.log_prob(x)
    is_inside = functools.reduce(tf.logical_and, [rule.mask for rule in rules])
    if rank:
      is_inside = tf.reduce_all(is_inside, axis=list(range(-rank, 0)))
    value = law.log_prob(_harmless(law, x, is_inside))
    return tf.where(is_inside, value, tf.constant(-np.inf, value.dtype))


def _harmless(law, value, is_inside):
  """Replaces values outside of the support, where gradients could be NaN."""
  if kinds.rank(law) or not law.dtype.is_floating:
    return value
  try:
    bijector = law.experimental_default_event_space_bijector()
  except Exception:  # A user's own distribution may raise anything.
    return value
  if bijector is None:
    return tf.where(is_inside, value, tf.ones_like(value))
  middle = bijector.forward(tf.zeros_like(value))
  return tf.where(is_inside, value, tf.stop_gradient(middle))


def _rebuilt_around_one(law):
  inner = exact(law.distribution)
  return law if inner is law.distribution else law.copy(distribution=inner)


def _rebuilt_parts(law):
  parts = law.distributions
  if isinstance(parts, tfd.JointDistribution):
    return law
  return law.copy(distributions=[exact(part) for part in parts])


def _rebuilt_mixture(law):
  """Returns a mixture of exact components."""
  if not kinds.is_a(law, tfd.Inflated):
    return law.copy(components=[exact(part) for part in law.components])
  inner = law.distribution
  if _is_discrete(inner):
    parts = [law.components[0], exact(inner)]
    return tfd.Mixture(cat=law.cat, components=parts)
  return tfd.Inflated(
    exact(inner),
    inflated_loc_logits=law.inflated_loc_logits,
    inflated_loc_probs=law.inflated_loc_probs,
    inflated_loc=law.inflated_loc,
  )


def _is_discrete(law):
  try:
    return law.experimental_default_event_space_bijector() is None
  except NotImplementedError:
    return True


def _rebuilt_components(law):
  inner = exact(law.components_distribution)
  return law.copy(components_distribution=inner)


def _rebuilt_hidden_markov(law):
  return law.copy(observation_distribution=exact(law.observation_distribution))


def _rebuilt_markov_chain(law):
  transition_fn = law.transition_fn
  return law.copy(
    initial_state_prior=exact(law.initial_state_prior),
    transition_fn=lambda *args: exact(transition_fn(*args)),
  )


def _rebuilt_autoregressive(law):
  distribution_fn = law.distribution_fn
  return law.copy(distribution_fn=lambda *args: exact(distribution_fn(*args)))


def is_beyond_tfp(law: Any) -> bool:
  """Returns whether TFP cannot compute a truncated distribution in `law`.

  With an infinite bound, TFP's density of `TruncatedCauchy` is NaN, and so are
  the gradients of `TruncatedNormal` with respect to its parameters.
  """
  if isinstance(law, (tfd.TruncatedNormal, tfd.TruncatedCauchy)):
    bounds = [tf.get_static_value(bound) for bound in (law.low, law.high)]
    if all(b is not None and np.all(np.isfinite(b)) for b in bounds):
      return False
    rest = [tf.get_static_value(given) for given in (law.loc, law.scale)]
    is_fixed = all(known is not None for known in bounds + rest)
    return not is_fixed or isinstance(law, tfd.TruncatedCauchy)
  return any(map(is_beyond_tfp, kinds.inside(law)))


class _Truncated(_Delegate):
  """A truncated normal or Cauchy distribution with bounds that may be infinite.

    low finite          log p(x) - log P(X > low)
    high finite         log p(x) - log P(X < high)
    neither             log p(x)
    both                TFP's own density

  Here p and X belong to the distribution without truncation. Bounds may mix
  these cases.
  """

  def _log_prob(self, x):
    law = self._distribution
    loc, scale = law.loc, law.scale
    low, high = (tf.cast(bound, law.dtype) for bound in (law.low, law.high))
    has_low, has_high = tf.math.is_finite(low), tf.math.is_finite(high)
    is_half = has_low ^ has_high
    end = tf.where(has_low, low, -high) - tf.where(has_low, loc, -loc)
    end = tf.where(is_half, end, tf.zeros_like(end)) / scale
    if isinstance(law, tfd.TruncatedNormal):
      whole = tfd.Normal(loc, scale).log_prob(x)
      beyond = tfd.Normal(tf.zeros_like(end), 1.0).log_survival_function(end)
    else:
      whole = tfd.Cauchy(loc, scale).log_prob(x)
      beyond = tf.math.log(tf.atan2(tf.ones_like(end), end) / np.pi)
    value = whole - tf.where(is_half, beyond, tf.zeros_like(beyond))
    both = has_low & has_high
    value = tf.where(both, self._between(x, both, low, high), value)
    is_inside = (x >= low) & (x <= high)
    return tf.where(is_inside, value, tf.constant(-np.inf, value.dtype))

  def _between(self, x, both, low, high):
    """Returns TFP's density if both bounds are finite."""
    law = self._distribution
    low = tf.where(both, low, tf.stop_gradient(law.loc - law.scale))
    # TFP's Cauchy has no gradient if both bounds are equally far from `loc`.
    # The bounds that replace infinite ones are at different distances.
    high = tf.where(both, high, tf.stop_gradient(law.loc + 2 * law.scale))
    x = tf.where(both, x, tf.stop_gradient(law.loc))
    return law.copy(low=low, high=high).log_prob(x)


_REBUILDS = (
  (
    (
      tfd.BatchBroadcast,
      tfd.BatchReshape,
      tfd.Independent,
      tfd.Masked,
      tfd.Sample,
    ),
    _rebuilt_around_one,
  ),
  ((tfd.BatchConcat, tfd.Blockwise), _rebuilt_parts),
  ((tfd.Mixture,), _rebuilt_mixture),
  ((tfd.MixtureSameFamily,), _rebuilt_components),
  ((tfd.HiddenMarkovModel,), _rebuilt_hidden_markov),
  ((tfd.MarkovChain,), _rebuilt_markov_chain),
  ((tfd.Autoregressive,), _rebuilt_autoregressive),
)
