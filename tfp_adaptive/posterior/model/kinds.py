"""Functions for the kind of a distribution, and for what it wraps.

`tfd.Sample(d)` is an instance of `_Sample`, and not of `tfd.Sample`, if `d` is
not a composite tensor. The functions here handle such cases.
"""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import structures

tfd = tfp.distributions
tfb = tfp.bijectors


def is_a(law: Any, *kinds: type) -> bool:
  """Returns whether a distribution is of one of these classes of `tfd`."""
  return isinstance(law, tuple(map(_widest, kinds)))


def _widest(kind):
  base = kind.__mro__[1]
  return base if base.__name__ == f'_{kind.__name__}' else kind


def is_plainly_transformed(law: Any) -> bool:
  """Returns whether a distribution is a plain `tfd.TransformedDistribution`.

  Subclasses such as `tfd.LogNormal` define their own map onto the support.
  """
  plain = _widest(tfd.TransformedDistribution)
  same = plain._default_event_space_bijector
  return (
    isinstance(law, plain) and type(law)._default_event_space_bijector is same
  )


def inside(law: Any) -> list:
  """Returns the distributions inside a wrapper; [] for other distributions."""
  if is_a(law, tfd.Mixture) and not is_a(law, tfd.Inflated):
    return list(law.components)
  if is_a(law, tfd.MixtureSameFamily):
    return [law.components_distribution]
  if is_a(law, tfd.HiddenMarkovModel):
    return [law.observation_distribution]
  if is_a(law, tfd.MarkovChain):
    return [law.initial_state_prior]
  if is_a(law, tfd.BatchConcat, tfd.Blockwise):
    parts = law.distributions
    return [parts] if isinstance(parts, tfd.Distribution) else list(parts)
  if is_plainly_transformed(law) or is_a(law, *_WITH_ONE_INSIDE):
    return [law.distribution]
  return []


def described(law: Any) -> str:
  """Returns a distribution as its user wrote it: `tfd.Sample(tfd.Poisson)`."""
  name = type(law).__name__.removeprefix('_')
  name = f'tfd.{name}' if hasattr(tfd, name) else name
  if is_plainly_transformed(law):
    name = f'tfb.{type(law.bijector).__name__.removeprefix("_")}()'
  parts = ', '.join(dict.fromkeys(map(described, inside(law))))
  return f'{name}({parts})' if parts else name


def in_order(structure: Any) -> tuple:
  """Returns (names, parts) of the top level; names of a sequence are `None`."""
  structure = structures.as_dict(structure)
  if isinstance(structure, dict):
    return list(structure), list(structure.values())
  return None, list(structure)


def parts(model: Any, value: Any = None) -> list:
  """Returns the distributions of the parts of a joint distribution, in order.

  `value` is a structure of values of the parts, `None` where a part is drawn.
  """
  laws, _ = model.sample_distributions(seed=(0, 1), value=value)
  return in_order(laws)[1]


def specs(model: Any, names: Iterable[str]) -> dict:
  """Returns dict of name -> structure of `tf.TensorSpec` of a part's value."""
  shapes, dtypes = in_order(model.event_shape)[1], in_order(model.dtype)[1]
  return {
    name: tf.nest.map_structure(tf.TensorSpec, shape, dtype)
    for name, shape, dtype in zip(names, shapes, dtypes)
  }


def unpinned(model: Any) -> tuple[Any, dict]:
  """Returns a joint distribution without its pins, and the pins by name."""
  if isinstance(model, tfp.experimental.distributions.JointDistributionPinned):
    return model.distribution, dict(model.pins)
  return model, {}


def rank(law: Any) -> int | None:
  """Returns the number of axes of an event; `None` if it has several parts."""
  shape = law.event_shape
  return shape.rank if isinstance(shape, tf.TensorShape) else None


_WITH_ONE_INSIDE = (
  tfd.BatchBroadcast,
  tfd.BatchReshape,
  tfd.Independent,
  tfd.Inflated,
  tfd.Masked,
  tfd.QuantizedDistribution,
  tfd.Sample,
)
