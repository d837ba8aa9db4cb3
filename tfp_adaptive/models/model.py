"""What the functions of this folder return, and what they share."""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import custom_gradient

__all__ = ['Model', 'on_the_host', 'scaled']


@dataclasses.dataclass(frozen=True)
class Model:
  """A log density, what its unknowns are, and how its draws are shown.

  Attributes:
    log_prob_fn: Log density in TensorFlow, called as TFP calls it with parts
      [n, event...], which returns [n].
    init: What the unknowns are, a structure of `tf.TensorSpec` of an event.
    bijectors: Onto the supports, as `sample_posterior` takes them.
    shown: What draws are shown as; `None`: as the unknowns. A function of
      unknowns in the structure of `init`, numpy, [n, event...], to a dict of
      name -> [n, ...].
    in_python: Where the density is computed outside of TensorFlow: function of
      arrays [n, event...], the unknowns in the order of `tf.nest.flatten`, to
      values [n] and a list of gradients. `log_prob_fn` calls it.
    coords: dict of dimension -> its labels, for ArviZ.
    dims: dict of name -> names of its dimensions.
  """

  log_prob_fn: Callable[..., tf.Tensor]
  init: Any
  bijectors: Any = None
  shown: Callable[[Any], Mapping[str, Any]] | None = None
  in_python: Callable[..., tuple[Any, Any]] | None = None
  coords: Mapping[str, Sequence] = dataclasses.field(default_factory=dict)
  dims: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)


def on_the_host(value_and_gradient):
  """Returns a log density in TensorFlow that calls Python.

  Args:
    value_and_gradient: Function of arrays [n, event...] to an array [n] and a
      list of arrays in the shapes of the arguments.
  """

  def call(*parts):
    value, gradients = value_and_gradient(*parts)
    dtype = parts[0].dtype
    return [np.array(x, dtype) for x in (value, *gradients)]

  @custom_gradient.custom_gradient
  def log_prob(*parts):
    dtypes = [parts[0].dtype] * (1 + len(parts))
    value, *gradients = tf.numpy_function(call, parts, dtypes)
    # As operations: a graph that is copied forgets shapes that were set.
    value = tf.ensure_shape(value, parts[0].shape[:1])
    gradients = [
      tf.ensure_shape(gradient, part.shape)
      for gradient, part in zip(gradients, parts, strict=True)
    ]
    return value, lambda upstream: scaled(upstream, gradients)

  return log_prob


def scaled(upstream, gradients):
  """Returns gradients [n, event...] times upstream [n]."""
  return [
    tf.reshape(upstream, [-1] + [1] * (x.shape.rank - 1)) * x for x in gradients
  ]
