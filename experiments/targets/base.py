"""What an experiment knows about a distribution to sample."""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import Optional

import numpy as np

from experiments.registry import Parameters

__all__ = ['BuildContext', 'Target', 'TargetParameters']


class Target(NamedTuple):
  """A density over an unconstrained vector.

  `target_log_prob_fn` maps [chains..., event_size] to [chains...], up to a
  constant. Moments are those of the unconstrained vector, None where not known.
  """

  name: str
  target_log_prob_fn: Callable[[Any], Any]
  event_size: int
  dtype: str
  # [event_size] numpy float64.
  mean: Optional[Any] = None
  # [event_size, event_size], or [event_size] where it is diagonal, float64.
  covariance: Optional[Any] = None
  # (num_chains, seed) -> [num_chains, event_size] draws of the prior.
  sample_prior: Optional[Callable[[int, int], Any]] = None
  # (states [..., event_size]) -> {name: array} in the model's own space.
  constrain: Optional[Callable[[Any], dict]] = None
  # {name of `constrain`: (mean, standard deviation, standard error of mean)}.
  ground_truth: Optional[dict] = None
  # [event_size], a point from which no part of the density is far away.
  suggested_start: Optional[Any] = None
  # {name: C}: constant metrics of the model, M^-1 = C C^T, C [d, d].
  metric_factors: Optional[dict] = None

  def variances(self):
    """Returns the diagonal of the covariance, [event_size]."""
    if self.covariance.ndim == 1:
      return self.covariance
    return np.diag(self.covariance)


class BuildContext(NamedTuple):
  """What a target may need beyond its own parameters."""

  dtype: str
  data_dir: Optional[str] = None


class TargetParameters(Parameters):
  """Base of the registered targets."""

  def build(self, context: BuildContext) -> Target:
    raise NotImplementedError
