"""What an experiment knows about a distribution to sample."""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import Optional

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
  # [event_size] and [event_size, event_size] numpy float64.
  mean: Optional[Any] = None
  covariance: Optional[Any] = None
  # (num_chains, seed) -> [num_chains, event_size] draws of the prior.
  sample_prior: Optional[Callable[[int, int], Any]] = None
  # (states [..., event_size]) -> {name: array} in the model's own space.
  constrain: Optional[Callable[[Any], dict]] = None


class BuildContext(NamedTuple):
  """What a target may need beyond its own parameters."""

  dtype: str
  data_dir: Optional[str] = None


class TargetParameters(Parameters):
  """Base of the registered targets."""

  def build(self, context: BuildContext) -> Target:
    raise NotImplementedError
