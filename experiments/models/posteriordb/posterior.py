"""The form of a posterior in a model file, and shared functions."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa

tfb = tfp.bijectors
tfd = tfp.distributions

Data = Mapping[str, np.ndarray]
Draws = dict[str, np.ndarray]


class Posterior(NamedTuple):
  """A model with its data.

  Attributes:
    model: The joint distribution. Its unknowns have the names of the Stan
      program's parameters, as far as Python allows them.
    pins: Values of the parts that are data, by name.
    reported: Function from the draws of all unknowns, a dict of
      [draws, chains, ...], to a dict of the scalars of the reference.
  """

  model: tfd.JointDistribution
  pins: dict[str, np.ndarray]
  reported: Callable[[Draws], Draws] = lambda states: states


def flat_positive(name: str, dtype: tf.DType) -> tfpa.ImproperUniform:
  """Returns the flat prior of Stan's `real<lower=0>`."""
  return tfpa.ImproperUniform((), tfb.Exp(), dtype, name)


def cast(values: np.ndarray, dtype: tf.DType) -> np.ndarray:
  """Returns values in a dtype."""
  return np.asarray(values, dtype.as_numpy_dtype)


def constants(dtype: tf.DType, *values: float) -> list[tf.Tensor]:
  """Returns numbers as tensors."""
  return [tf.constant(value, dtype) for value in values]


def named(states: Draws) -> Draws:
  """Returns all scalars [draws, chains] by Stan's names: `beta[1]`, `beta[2]`.

  Args:
    states: dict of name to [draws, chains, ...].
  """
  found = {}
  for name, part in states.items():
    for index in np.ndindex(*part.shape[2:]):
      places = ','.join(str(i + 1) for i in index)
      found[f'{name}[{places}]' if index else name] = part[(..., *index)]
  return found
