"""Types of arguments, for readers, editors and type checkers.

Shapes and dtypes are in docstrings, because no type gives them.
"""

import os
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.interfaces.shared import Preconditioner

# A Tensor or an array, or a list, tuple, namedtuple or dict of them.
Structure = Any
# ArviZ's class; the package is optional.
DataTree = Any
Path = str | os.PathLike[str]
Seed = int | Sequence[int] | tf.Tensor
# A model that defines a posterior: a joint distribution, a joint distribution
# with pinned data, or a log density.
Model = (
  tfp.distributions.JointDistribution
  | tfp.experimental.distributions.JointDistributionPinned
  | Callable[..., tf.Tensor]
)
# Called as TFP calls targets: `fn(x)`, `fn(*parts)` or `fn(**parts)`.
LogProbFn = Callable[..., tf.Tensor]
# One structure for the whole state, or one for each part of the state.
Preconditioners = Preconditioner | Sequence[Preconditioner]
# The number of leapfrog steps, or a pair (fewest, most) to draw it from.
NumSteps = int | tuple[int, int]
