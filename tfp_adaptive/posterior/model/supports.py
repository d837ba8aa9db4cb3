"""Maps from all real numbers onto the supports of unknowns.

These are TFP's own maps, with two exceptions. First, positive numbers are
exp(u) and not softplus(u). If u is the logarithm of a scale, other unknowns
have the precision exp(-2 u), which a conditional Gaussian represents exactly.
Stan, PyMC and NumPyro sample the logarithm too.

Second, some of TFP's maps are wrong. They are corrected or refused here:
- the maps of Wishart distributions cannot reach small diagonal elements;
- `input_output_cholesky=True` gives the density of the matrix L L^T at its
  factor L, so the density of L also needs the volume of L -> L L^T;
- the map of an interval with an infinite bound, `Sigmoid(0, inf)`, is NaN;
- the maps of directions reach only one orthant;
- the map of `LKJ` has a wrong Jacobian.
"""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import tfp_private
from tfp_adaptive.posterior.model import kinds

tfb = tfp.bijectors
tfd = tfp.distributions


class NoMapError(ValueError):
  """The message, a clause, says why an unknown cannot have a distribution."""


def bijector_of(model: Any) -> tfb.Bijector:
  """Returns the map onto the support of a joint distribution's unknowns."""
  laws = tfp_private.distributions_of_parts(model)
  maps = [_number_by_number(law) for law in laws]
  if None not in maps:
    return tfb.JointMap(tfp_private.in_structure(model, maps))
  kind = tfp_private.joint_bijector(model)
  return kind(model, bijector_fn=map_of)


# Parameters of these types depend on no other part of a model.
_CONSTANTS = (bool, int, float, str, type(None), np.generic)


def _number_by_number(law):
  """Returns an elementwise map that depends on no other part, or `None`.

  TFP's map of a joint distribution runs the whole model at every call, because
  the support of a part may depend on other parts. This takes most of the time
  of tracing a small model.
  """
  while kinds.is_a(law, tfd.Independent, tfd.Sample):
    law = law.distribution
  if isinstance(law, tfd.JointDistribution):
    return None
  found = map_of(law)
  if found is None or found.forward_min_event_ndims != 0:
    return None
  values = law.parameters.values()
  is_constant = all(isinstance(value, _CONSTANTS) for value in values)
  has_no_params = type(found) in (tfb.Identity, tfb.Exp)
  return found if is_constant or has_no_params else None


def map_of(law: Any) -> tfb.Bijector | None:
  """Returns the map onto the support of one part; `None` if TFP has none.

  If TFP's map is wrong, a `NoMapError` says what to write instead.
  """
  if isinstance(law, tfd.JointDistribution):  # The part is a model itself.
    return bijector_of(law)
  for refused, clause in _REFUSED:
    if kinds.is_a(law, refused):
      raise NoMapError(clause)
  if kinds.is_a(law, *_IN_STEPS):
    _check_steps(law)
  if kinds.is_a(law, tfd.Blockwise):
    return _of_blocks(law)
  if kinds.is_a(law, *_AROUND_ONE):
    return _around(law, map_of(law.distribution))
  if kinds.is_plainly_transformed(law):
    return _transformed(law, map_of(law.distribution))
  return _of_leaf(law)


# Sequences, whose map TFP makes from the map of one step.
_IN_STEPS = (tfd.Autoregressive, tfd.HiddenMarkovModel, tfd.MarkovChain)
# Wrappers that only rearrange axes.
_AROUND_ONE = (
  tfd.BatchBroadcast,
  tfd.BatchReshape,
  tfd.Independent,
  tfd.Sample,
)
_DIRECTION = (
  'whose map in TFP reaches only directions without a negative coordinate. '
  'Draw a vector of `tfd.Sample(tfd.Normal(0., 1.), d)`, divide it by its '
  'length where the model needs a direction, and add the log density of that '
  'direction to a log density of your own'
)
# Refused distributions of unknowns, and what to write instead.
_REFUSED = (
  (tfd.VonMisesFisher, _DIRECTION),
  (tfd.SphericalUniform, _DIRECTION),
  (tfd.PowerSpherical, _DIRECTION),
  (
    tfd.LKJ,
    'whose map in TFP has a wrong Jacobian. Draw its factor L from '
    '`tfd.CholeskyLKJ`, with the same arguments, and write '
    '`tf.matmul(L, L, transpose_b=True)` where the model needs the matrix',
  ),
  (
    tfd.Masked,
    'which gives masked entries no density, so that they could be anything. '
    'Draw all entries from the distribution inside of it, and mask the data '
    'that depend on them',
  ),
  (
    tfd.BetaQuotient,
    'whose density in TFP is NaN near 1. Draw two numbers from `tfd.Beta`, and '
    'divide them where the model needs their quotient',
  ),
)


def _check_steps(law):
  """Refuses a sequence if TFP's map of one of its steps is wrong."""
  steps = kinds.inside(law)
  if kinds.is_a(law, tfd.Autoregressive) and law.sample0 is not None:
    steps = [law.distribution_fn(law.sample0)]
  while steps:
    step = steps.pop()
    map_of(step)
    steps += kinds.inside(step)
    if isinstance(step, tfd.WishartLinearOperator):
      raise NoMapError(
        f'with steps of `{kinds.described(step)}`, whose map in TFP is wrong. '
        'Draw the steps as parts of the model, one after the other'
      )


def _around(law, inner):
  """Returns the map of a wrapper, given the map of the wrapped distribution."""
  if inner is None:
    return None
  # TFP asks the wrapped distribution for its map, which is replaced for this
  # call.
  law.distribution._default_event_space_bijector = lambda: inner
  try:
    return law.experimental_default_event_space_bijector()
  finally:
    del law.distribution._default_event_space_bijector


def _transformed(law, inner):
  """Returns the map of a transformed distribution, given its base's map."""
  if not law.bijector._is_injective:
    raise NoMapError(
      f'whose `tfb.{type(law.bijector).__name__}` is not one to one, so that '
      'an unknown has several preimages. Write the distribution of the values, '
      'for example `tfd.HalfNormal(scale)` instead of '
      '`tfb.AbsoluteValue()(tfd.Normal(0., scale))`'
    )
  return None if inner is None else law.bijector(inner)


def _of_leaf(law):
  """Returns the map of a distribution that wraps no other distribution."""
  if isinstance(law, tfd.InverseGaussian):  # TFP's map is float32 only.
    return tfb.Exp()
  try:
    found = law.experimental_default_event_space_bijector()
  except NotImplementedError:
    return None
  if isinstance(law, tfd.WishartLinearOperator):
    found = _of_wishart(law)
  if isinstance(found, tfb.Sigmoid):
    _check_bounds(law)
  return with_infinite_bounds(_by_exp(found))


def _of_wishart(law):
  """Returns the map onto positive definite matrices, or onto their factors."""
  factor = tfb.FillScaleTriL(diag_bijector=tfb.Exp(), diag_shift=None)
  outer = _Volume() if law.input_output_cholesky else tfb.CholeskyOuterProduct()
  return tfb.Chain([outer, factor])


class _Volume(tfb.Bijector):
  """The identity for factors L, with the volume of the map L -> L L^T.

  The density of L L^T, times this volume, is the density of L.
  """

  def __init__(self, name: str = 'volume_of_factor'):
    super().__init__(
      forward_min_event_ndims=2,
      inverse_min_event_ndims=2,
      parameters={},
      name=name,
    )

  def _forward(self, x):
    return tf.identity(x)

  def _inverse(self, y):
    return tf.identity(y)

  def _forward_log_det_jacobian(self, x):
    product = tfb.CholeskyOuterProduct()
    return product.forward_log_det_jacobian(tf.identity(x), event_ndims=2)


def _check_bounds(law):
  """Refuses an interval with infinite bounds if TFP cannot draw from it."""
  bounds = [law.parameters.get(name) for name in ('low', 'high')]
  known = [None if b is None else tf.get_static_value(b) for b in bounds]
  if any(b is None for b in known):
    return
  low, high = map(np.isinf, known)
  if isinstance(law, tfd.TruncatedNormal) and np.any(low & high):
    raise NoMapError(
      'with two infinite bounds, from which TFP cannot draw. Write `tfd.Normal`'
    )
  is_truncated = isinstance(law, (tfd.TruncatedNormal, tfd.TruncatedCauchy))
  if np.any(low | high) and not is_truncated:
    raise NoMapError(
      'with an infinite bound, where its density is zero. Without a bound '
      'write `tfpa.ImproperUniform()`, with one `tfpa.ImproperUniform(bijector='
      'tfb.Exp())`, shifted where the bound is not 0, or give a proper prior'
    )


def _of_blocks(law):
  """Returns the map onto the blocks of one vector."""
  if isinstance(law.distributions, tfd.JointDistribution):
    raise NoMapError(
      'of a joint distribution. Draw the parts of that joint distribution as '
      'parts of the model, and concatenate them where the model needs a vector'
    )
  blocks, sizes = [], []
  for part in law.distributions:
    found = map_of(part)
    if found is None or part.dtype != law.dtype:
      raise NoMapError(
        f'with the block `{kinds.described(part)}`, which has another dtype '
        'than the vector, or no map. Draw the blocks as parts of the model, '
        'and concatenate them where it needs a vector'
      )
    before, after = (
      found.inverse_event_shape(part.event_shape),
      part.event_shape,
    )
    sizes.append(before.num_elements())
    as_block = tfb.Reshape([after.num_elements()], event_shape_in=after)
    as_event = tfb.Reshape(before, event_shape_in=[sizes[-1]])
    blocks.append(tfb.Chain([as_block, found, as_event]))
  return tfb.Blockwise(blocks, block_sizes=sizes)


def _by_exp(bijector):
  """Returns the bijector with exp instead of a softplus that comes first."""
  if isinstance(bijector, tfb.Softplus):
    is_plain = bijector.hinge_softness is None and bijector.low is None
    return tfb.Exp() if is_plain else bijector
  if isinstance(bijector, tfb.Chain):
    *others, first = bijector.bijectors
    return tfb.Chain([*others, _by_exp(first)])
  return bijector


def with_infinite_bounds(bijector: tfb.Bijector | None) -> tfb.Bijector | None:
  """Returns the bijector, corrected if bounds of its interval are infinite."""
  if isinstance(bijector, tfb.Chain):
    found = [with_infinite_bounds(part) for part in bijector.bijectors]
    is_same = all(a is b for a, b in zip(found, bijector.bijectors))
    return bijector if is_same else tfb.Chain(found)
  if isinstance(bijector, (tfb.Sigmoid, tfb.SoftClip)):
    low, high = bijector.low, bijector.high
    if _is_known_finite(low) and _is_known_finite(high):
      return bijector
    if isinstance(bijector, tfb.Sigmoid):
      return _Interval(low, high)
    return _clip(bijector, low, high)
  return bijector


def _is_known_finite(bound):
  known = None if bound is None else tf.get_static_value(bound)
  return bound is None or (known is not None and np.all(np.isfinite(known)))


def _clip(bijector, low, high):
  """Returns `tfb.SoftClip` without those bounds that are infinite."""
  finite = [b if _is_known_finite(b) else None for b in (low, high)]
  dropped = [b for b in (low, high) if not _is_known_finite(b)]
  known = [tf.get_static_value(b) for b in dropped]
  if any(b is None or not np.all(np.isinf(b)) for b in known):
    # A bound is unknown, or infinite in some entries only. TFP's map stays.
    return bijector
  return tfb.SoftClip(*finite, hinge_softness=bijector.hinge_softness)


def interval(low: Any, high: Any) -> tfb.Bijector:
  """Returns the map of real numbers onto intervals that may be infinite."""
  return _Interval(low, high)


class _Interval(tfb.Bijector):
  """Maps real numbers onto an interval whose bounds may be infinite.

    low, high finite   high sigmoid(z) + low sigmoid(-z), as TFP's Sigmoid
    low finite         low + exp(z)
    high finite        high - exp(z)
    neither            z

  Bounds may be Tensors that mix these cases. Where a case does not apply, it
  computes with a harmless number, so that no gradient is NaN.
  """

  def __init__(self, low: Any, high: Any, name: str = 'interval'):
    parameters = dict(low=low, high=high, name=name)
    self._low, self._high = low, high
    super().__init__(
      forward_min_event_ndims=0, parameters=parameters, name=name
    )

  @classmethod
  def _parameter_properties(cls, dtype):
    properties = tfp.util.ParameterProperties()
    return dict(low=properties, high=properties)

  def _cases(self, dtype):
    """Returns (TFP's Sigmoid, mask of two bounds, of one, bound, its sign)."""
    low, high = (tf.cast(bound, dtype) for bound in (self._low, self._high))
    has_low, has_high = tf.math.is_finite(low), tf.math.is_finite(high)
    both = has_low & has_high
    inner = tfb.Sigmoid(
      tf.where(both, low, tf.zeros_like(low)),
      tf.where(both, high, tf.ones_like(high)),
    )
    # The finite bound, and the sign with which exp(z) is added to it.
    bound = tf.where(has_low, low, tf.where(has_high, high, 0.0))
    sign = tf.where(has_low, tf.ones_like(bound), -tf.ones_like(bound))
    return inner, both, has_low ^ has_high, bound, sign

  def _forward(self, x):
    inner, both, is_half, bound, sign = self._cases(x.dtype)
    half = bound + sign * tf.exp(tf.where(is_half, x, tf.zeros_like(x)))
    inside = inner.forward(tf.where(both, x, tf.zeros_like(x)))
    return tf.where(both, inside, tf.where(is_half, half, x))

  def _inverse(self, y):
    inner, both, is_half, bound, sign = self._cases(y.dtype)
    middle = inner.forward(tf.zeros_like(y))
    inside = inner.inverse(tf.where(both, y, middle))
    distance = tf.where(is_half, sign * (y - bound), tf.ones_like(y))
    return tf.where(both, inside, tf.where(is_half, tf.math.log(distance), y))

  def _forward_log_det_jacobian(self, x):
    inner, both, is_half, _, _ = self._cases(x.dtype)
    safe = tf.where(both, x, tf.zeros_like(x))
    inside = inner.forward_log_det_jacobian(safe, event_ndims=0)
    return tf.where(both, inside, tf.where(is_half, x, tf.zeros_like(x)))
