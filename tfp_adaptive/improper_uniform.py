"""`ImproperUniform`, a flat prior as a part of a joint distribution.

Stan programs use such a prior for every parameter without a `~` statement.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import custom_gradient

tfb = tfp.bijectors
tfd = tfp.distributions

# `sample` returns points within this distance of zero in unconstrained space.
_RADIUS = 2.0


class ImproperUniform(tfd.AutoCompositeTensorDistribution):
  """A flat prior: its density is one on the support, and zero elsewhere.

  The support is the image of `bijector`. The density is taken with respect to
  Lebesgue measure on the values that a user sees. A sampler that works in
  unconstrained space therefore adds the log determinant of the bijector T:

    log p(z) = log |det dT/dz|,  x = T(z).

  With `tfb.Exp()` the prior is flat in x > 0, not in log x. For a prior that is
  flat in log x, use the logarithm as the parameter.

  A flat prior has no draws. Joint distributions call `sample` to find shapes,
  so `sample` returns starting points: uniform in (-2, 2) in unconstrained
  space. These points say nothing about the prior. If the data do not bound
  every direction, the posterior is improper, too, and no sampler can converge.

  Do not use it for data whose bounds are unknown, because its density does not
  depend on the bounds. Use `tfd.Uniform`.

  The support is open. A value counts as inside if its inverse under the
  bijector is finite. For a bijector of single numbers, the value must also lie
  between the limits of `forward`. For other bijectors, `forward` must lead back
  to the value, up to rounding.

  Example:
    @tfd.JointDistributionCoroutineAutoBatched
    def model():
      mean = yield tfpa.ImproperUniform(name='mean')
      scale = yield tfpa.ImproperUniform(bijector=tfb.Exp(), name='scale')
      yield tfd.Sample(tfd.Normal(mean, scale), 20, name='y')
  """

  def __init__(
    self,
    event_shape: int | Sequence[int] | tf.TensorShape = (),
    bijector: tfb.Bijector | None = None,
    dtype: tf.DType = tf.float32,
    name: str = 'ImproperUniform',
  ):
    """Makes a flat prior.

    Args:
      event_shape: Shape of one value, as a user sees it. It has a number on
        every axis: `()`, `3` or `[3]`, `[4, 4]`.
      bijector: A `tfb.Bijector` from all real numbers onto the support. `None`
        means all real numbers. For example `tfb.Exp()` for positive values,
        `tfb.Sigmoid(low, high)` for an interval, `tfb.SoftmaxCentered()` for a
        simplex, `tfb.Ascending()` for ordered vectors and
        `tfb.CorrelationCholesky()` for factors of correlation matrices.
      dtype: tf.float32 or tf.float64, the same as that of the bijector.
      name: Name of the part in a joint distribution.

    Raises:
      ValueError: If the shape is unknown, the dtype is not a floating one, or
        the bijector has another dtype or does not lead to this shape.
      TypeError: If the bijector is not a `tfb.Bijector`.
    """
    parameters = dict(locals())
    dtype = _checked_dtype(dtype)
    self._static_event_shape = _checked_shape(event_shape)
    _check_bijector(bijector, self._static_event_shape, dtype)
    self._bijector = bijector
    with tf.name_scope(name) as name:
      super().__init__(
        dtype=dtype,
        reparameterization_type=tfd.NOT_REPARAMETERIZED,
        validate_args=False,
        allow_nan_stats=True,
        parameters=parameters,
        name=name,
      )

  @property
  def bijector(self) -> tfb.Bijector | None:
    """The map from all real numbers onto the support, as it was given."""
    return self._bijector

  @classmethod
  def _parameter_properties(cls, dtype, num_classes=None):
    del dtype, num_classes
    return dict(
      event_shape=tfp.util.ParameterProperties(
        event_ndims=None,
        shape_fn=lambda shape: shape,
        default_constraining_bijector_fn=tfb.Identity,
        specifies_shape=True,
      ),
      # The bijector takes unconstrained events.
      bijector=tfp.util.BatchedComponentProperties(
        event_ndims=lambda law: law._unconstrained_shape().rank
      ),
    )

  def _event_shape(self):
    return self._static_event_shape

  def _event_shape_tensor(self):
    return tf.constant(self._static_event_shape.as_list(), tf.int32)

  def _unconstrained_shape(self):
    if self.bijector is None:
      return self._static_event_shape
    return self.bijector.inverse_event_shape(self._static_event_shape)

  def _default_event_space_bijector(self):
    return tfb.Identity() if self.bijector is None else self.bijector

  def _sample_n(self, n, seed=None):
    shape = tf.TensorShape(self.batch_shape).concatenate(
      self._unconstrained_shape()
    )
    bound = tf.constant(_RADIUS, self.dtype)
    points = tfd.Sample(tfd.Uniform(-bound, bound), shape).sample(n, seed=seed)
    return points if self.bijector is None else self.bijector.forward(points)

  def _log_prob(self, value):
    is_inside = self._is_inside(value)
    zeros = tf.zeros(tf.shape(is_inside), self.dtype)
    return tf.where(is_inside, zeros, tf.constant(-np.inf, self.dtype))

  def _is_inside(self, value):
    """Returns whether values lie in the support, [sample..., batch...]."""
    event = self._static_event_shape
    if value.shape.rank is not None:
      found = value.shape[value.shape.rank - event.rank :]
      if value.shape.rank < event.rank or not event.is_compatible_with(found):
        raise ValueError(
          f'A value of {self.name} has the shape {value.shape}, but its last '
          f'axes must be {event.as_list()}, the event shape of the prior.'
        )
    # `identity` makes a new Tensor, because bijectors cache by their argument.
    # A cached inverse is finite even if rounding put the value on the boundary.
    value = tf.stop_gradient(tf.identity(value))
    is_inside = _all_finite(value, event.rank)
    if self.bijector is None:
      return is_inside
    z = self.bijector.inverse(value)
    is_inside &= _all_finite(z, self._unconstrained_shape().rank)
    if not self.bijector.inverse_min_event_ndims:
      is_between = _is_between_limits(self.bijector, value)
      axes = list(range(-event.rank, 0))
      return is_inside & tf.reduce_all(is_between, axis=axes)
    # A value outside may have a finite inverse: a vector that does not sum to
    # one still has logarithms. But `forward` does not lead back to such a
    # value.
    gap = _largest(self.bijector.forward(tf.identity(z)) - value, event.rank)
    # The tolerance is generous, because a sampler can never visit a state that
    # is refused here by mistake.
    rounding = np.finfo(self.dtype.as_numpy_dtype).eps ** (1.0 / 3.0)
    # A bijector with an offset rounds relative to the offset.
    offset = _largest(self.bijector.forward(tf.zeros_like(z)), event.rank)
    size = _largest(value, event.rank) + offset
    return is_inside & (gap <= rounding * size)


def has_flat_part(model: Any) -> bool:
  """Returns whether a distribution has an `ImproperUniform` in it anywhere.

  The search covers structures of distributions, joint distributions, and all
  arguments of a distribution that are distributions. It builds joint
  distributions in a graph and computes nothing.
  """
  return custom_gradient.in_graph(lambda: _has_flat_part(model))


def _has_flat_part(law):
  """Does the work of `has_flat_part` inside a graph."""
  if isinstance(law, tfp.experimental.distributions.JointDistributionPinned):
    law = law.distribution
  if isinstance(law, ImproperUniform):
    return True
  if isinstance(law, tfd.JointDistribution):
    inner, _ = law.sample_distributions(seed=(0, 1))
  elif isinstance(law, tfd.Distribution):
    inner = law.parameters
  elif isinstance(law, (dict, list, tuple)):
    inner = law
  else:
    return False
  parts = inner.values() if isinstance(inner, dict) else inner
  return any(_has_flat_part(part) for part in parts)


def _is_between_limits(bijector, value):
  """Returns whether numbers lie between the limits of a map of single numbers.

  The map is monotone, because it is continuous and one-to-one. Its inverse may
  be finite outside, as that of `tfb.Softsign` is. A limit that is NaN is
  ignored.
  """
  most = tf.fill(tf.shape(value), value.dtype.max)
  ends = bijector.forward(-most), bijector.forward(most)
  is_beyond = (value < tf.minimum(*ends)) | (value > tf.maximum(*ends))
  return ~is_beyond


def _all_finite(values, rank):
  axes = list(range(-rank, 0))
  return tf.reduce_all(tf.math.is_finite(values), axis=axes)


def _largest(values, rank):
  return tf.reduce_max(tf.abs(values), axis=list(range(-rank, 0)))


def _checked_dtype(dtype):
  dtype = tf.as_dtype(dtype)
  if not dtype.is_floating:
    raise ValueError(
      f'`dtype` of a flat prior must be a floating one, but got {dtype.name}. '
      'Write `tf.float32` or `tf.float64`.'
    )
  return dtype


def _checked_shape(event_shape):
  """Returns a `tf.TensorShape` with a number on every axis."""
  given = event_shape
  if tf.is_tensor(event_shape):
    event_shape = tf.get_static_value(event_shape)
  if isinstance(event_shape, np.ndarray):
    event_shape = event_shape.tolist()
  try:
    is_number = isinstance(event_shape, (int, np.integer))
    shape = tf.TensorShape([event_shape] if is_number else event_shape)
    is_known = shape.is_fully_defined() and all(shape.as_list())
  except (TypeError, ValueError):
    is_known = False
  if not is_known:
    raise ValueError(
      '`event_shape` of a flat prior must have a positive number on every axis '
      f'that is known when the model is written, but got {given!r}. Write for '
      'example `()`, `3` or `[4, 4]`.'
    )
  return shape


def _check_bijector(bijector, event_shape, dtype):
  """Refuses a bijector that does not lead to events of a shape and dtype."""
  if bijector is None:
    return
  if not isinstance(bijector, tfb.Bijector):
    raise TypeError(
      '`bijector` of a flat prior must be a `tfb.Bijector`, for example '
      f'`tfb.Exp()` with its parentheses, or `None`, but got {bijector!r}.'
    )
  problem = _shape_problem(bijector, event_shape)
  if problem:
    raise ValueError(
      f'The bijector {bijector.name} cannot make values of the shape '
      f'{event_shape.as_list()}: {problem}. `event_shape` is the shape of a '
      'value as the model uses it, for example `[4, 4]` with '
      '`tfb.CorrelationCholesky()`.'
    )
  others = _dtypes(bijector, set()) - {dtype}
  # TFP casts some constants when it uses them, so only a trial shows a problem.
  if others and not _takes(bijector, event_shape, dtype):
    other = others.pop().name
    raise ValueError(
      f'`bijector` has constants of {other}, but the flat prior is '
      f'{dtype.name}. Write `dtype=tf.{other}`, or each constant of the '
      f'bijector as `np.{dtype.name}(...)`; TFP makes plain Python numbers '
      'float32.'
    )


def _takes(bijector, event_shape, dtype):
  """Returns whether a bijector maps numbers of a dtype to the same dtype."""

  def look():
    z = tf.zeros(bijector.inverse_event_shape(event_shape), dtype)
    return bijector.forward(z).dtype == dtype

  try:
    return custom_gradient.in_graph(look)
  except (TypeError, ValueError, tf.errors.InvalidArgumentError):
    return False


def _dtypes(value, seen):
  """Returns the set of floating dtypes of all constants in a bijector.

  `seen` is the set of ids of all earlier objects; it grows.
  """
  if id(value) in seen:
    return set()
  seen.add(id(value))
  if isinstance(value, tfb.Bijector):
    # TFP keeps the arguments, and attributes that it made from them.
    return _dtypes([*value.parameters.values(), *vars(value).values()], seen)
  if isinstance(value, (list, tuple)):
    return set().union(*(_dtypes(part, seen) for part in value))
  if tf.is_tensor(value) or isinstance(value, (np.ndarray, np.generic)):
    dtype = tf.as_dtype(value.dtype)
    return {dtype} if dtype.is_floating else set()
  return set()


def _shape_problem(bijector, event_shape):
  """Returns why a bijector does not lead to a shape, or `None`."""
  least = bijector.inverse_min_event_ndims
  if event_shape.rank < least:
    return f'it takes values of {least} axes or more'
  try:
    found = bijector.forward_event_shape(
      bijector.inverse_event_shape(event_shape)
    )
  except (TypeError, ValueError, tf.errors.OpError) as error:
    return ' '.join(str(error).split()).rstrip('.')
  if not event_shape.is_compatible_with(found):
    return f'it makes {found}'
  return None
