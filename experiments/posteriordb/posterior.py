"""What a model file returns for one posterior."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa

__all__ = ['Posterior', 'flat_positive', 'named', 'parameters']

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
      [draws, chains, ...], to a dict of those that the reference lists.
  """

  model: tfd.JointDistribution
  pins: dict[str, np.ndarray]
  reported: Callable[[Draws], Draws] = lambda states: states


def flat_positive(name: str, dtype: tf.DType) -> tfpa.ImproperUniform:
  """Returns what Stan's `real<lower=0>` means without a prior.

  Args:
    name: Name of the part.
    dtype: tf.float32 or tf.float64.
  """
  return tfpa.ImproperUniform((), tfb.Exp(), dtype, name)


def parameters(posterior: Posterior, states: Draws) -> Draws:
  """Returns the draws of all scalars, [draws, chains], by Stan's names.

  Args:
    posterior: The model.
    states: dict of the unknowns' draws, [draws, chains, ...].
  """
  arrays = {name: np.asarray(part) for name, part in states.items()}
  return named(posterior.reported(arrays))


def named(states: Draws) -> Draws:
  """Returns arrays [draws, chains, ...] as scalars: `beta[1]`, `beta[2]`.

  Args:
    states: dict of name to [draws, chains, ...].
  """
  found = {}
  for name, part in states.items():
    for index in np.ndindex(*part.shape[2:]):
      places = ','.join(str(i + 1) for i in index)
      found[f'{name}[{places}]' if index else name] = part[(..., *index)]
  return found
