"""`Model`, the result of all functions in this folder, and shared helpers."""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import custom_gradient


@dataclasses.dataclass(frozen=True)
class Model:
  """A log density, its unknowns, and what `Posterior.states` holds.

  Attributes:
    log_prob_fn: Log density in TensorFlow, called as TFP calls it: parts [n,
      event...] -> [n].
    init: The unknowns, a structure of a `tf.TensorSpec` for each event.
    bijectors: Bijectors onto the supports, as in `sample_posterior`.
    shown: Function from unknowns in the structure of `init`, numpy, [n,
      event...], to the parts of `Posterior.states`, a dict of name -> [n, ...].
      `None`: the parts are the unknowns.
    in_python: The density, if it is computed outside of TensorFlow, else
      `None`. `log_prob_fn` calls this function. Its arguments are the unknowns,
      arrays [n, event...] in the order of `tf.nest.flatten`. It returns values
      [n] and a list of gradients.
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

  `value_and_gradient` takes arrays [n, event...]. It returns an array [n] and a
  list of arrays in the shapes of its arguments.
  """

  def call(*parts):
    value, gradients = value_and_gradient(*parts)
    dtype = parts[0].dtype
    return [np.array(x, dtype) for x in (value, *gradients)]

  @custom_gradient.custom_gradient
  def log_prob(*parts):
    dtypes = [parts[0].dtype] * (1 + len(parts))
    value, *gradients = tf.numpy_function(call, parts, dtypes)
    # `ensure_shape` keeps the shapes, because a copied graph forgets
    # `set_shape`.
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
