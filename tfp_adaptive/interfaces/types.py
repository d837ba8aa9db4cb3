"""Names of what signatures take: for readers, editors and type checkers.

Shapes and dtypes are in docstrings: no type says them.
"""

import os
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

__all__ = ['DataTree', 'Model', 'Path', 'Seed', 'Structure']

# A Tensor or an array, or a list, tuple, namedtuple or dict of them.
Structure = Any
# ArviZ's, of a package that is optional.
DataTree = Any
Path = str | os.PathLike[str]
Seed = int | Sequence[int] | tf.Tensor
# What a posterior is made of; pins are a wrapper around a joint distribution.
Model = (
  tfp.distributions.JointDistribution
  | tfp.experimental.distributions.JointDistributionPinned
  | Callable[..., tf.Tensor]
)
