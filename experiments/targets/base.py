"""Targets: a density to sample, with all that experiments use of it."""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import Optional

import numpy as np

from experiments.targets.registry import Parameters


class LatentGaussian(NamedTuple):
  """A density exp f(x) N(x | mean, C), for samplers of latent Gaussian models.

  The state is [chains..., event_size], the prior's event shape flattened.
  """

  # f: [chains..., event_size] -> [chains...], without the prior.
  log_likelihood_fn: Callable[[Any], Any]
  # A `tfpa.interfaces.GaussianPrior` in the dtype of the states.
  prior: Any
  # Variance of the noise of a Gaussian likelihood; None for other likelihoods.
  noise_variance: Optional[float] = None


class Hierarchy(NamedTuple):
  """A density exp f(x) N(x | m(theta), C(theta)) p(theta) in separate parts.

  The state is one vector: the field x and unconstrained theta, or theta first.
  """

  # f: x [chains..., num_latent] -> [chains...].
  log_likelihood_fn: Callable[[Any], Any]
  # theta [chains..., num_hyper] -> a `tfpa.interfaces.GaussianPrior`.
  prior_fn: Callable[[Any], Any]
  # Log density of unconstrained theta -> [chains...].
  hyper_log_prob_fn: Callable[[Any], Any]
  num_latent: int
  is_field_first: bool = True

  def split(self, states):
    """Returns x and theta of states [..., event_size]."""
    if self.is_field_first:
      return states[..., : self.num_latent], states[..., self.num_latent :]
    return states[..., -self.num_latent :], states[..., : -self.num_latent]

  def join(self, field, theta):
    """Returns states of numpy arrays x and theta."""
    parts = (field, theta) if self.is_field_first else (theta, field)
    return np.concatenate(parts, axis=-1)


class Form(NamedTuple):
  """A target's density in other coordinates, for methods that prefer them."""

  target_log_prob_fn: Callable[[Any], Any]
  # States of the target to states of the form, and back; [..., event_size].
  to_form: Callable[[Any], Any]
  from_form: Callable[[Any], Any]


class Target(NamedTuple):
  """A density over an unconstrained vector.

  `target_log_prob_fn` maps [chains..., event_size] to [chains...], up to a
  constant. It is None if only `latent` or `hierarchy` can be sampled. Moments
  are those of the unconstrained vector, or None if unknown.
  """

  name: str
  target_log_prob_fn: Optional[Callable[[Any], Any]]
  event_size: int
  dtype: str
  # [event_size] numpy float64.
  mean: Optional[Any] = None
  # [event_size, event_size], or [event_size] for a diagonal matrix, float64.
  covariance: Optional[Any] = None
  # (num_chains, seed) -> [num_chains, event_size] draws of the prior.
  sample_prior: Optional[Callable[[int, int], Any]] = None
  # `tfd.Distribution` of the state.
  prior: Optional[Any] = None
  # (states [..., event_size]) -> {name: array} in the model's own space.
  constrain: Optional[Callable[[Any], dict]] = None
  # {name of `constrain`: (mean, standard deviation, standard error of mean)}.
  ground_truth: Optional[dict] = None
  # [event_size], a point from which no part of the density is far away.
  suggested_start: Optional[Any] = None
  # {name: C}: constant metrics of the model, M^-1 = C C^T, C [d, d].
  metric_factors: Optional[dict] = None
  # {name: `Form`}.
  forms: Optional[dict] = None
  # The same density as likelihood and Gaussian prior, if it has this form.
  latent: Optional[LatentGaussian] = None
  # The same density with separate hyperparameters of the prior.
  hierarchy: Optional[Hierarchy] = None
  # (states [..., event_size]) -> [..., n], the numbers to measure and store, to
  # which the moments above belong. None stands for all coordinates.
  view: Optional[Callable[[Any], Any]] = None
  # Whether `target_log_prob_fn(x, seed=seed)` is the log of an unbiased random
  # estimate of the density; seed is [2] int32, and the same seed and x give
  # the same value.
  is_stochastic: bool = False
  # A `targets.simulator.Simulator`, if the likelihood is only known by
  # simulation.
  simulator: Optional[Any] = None
  # Data sets simulated for one chain's value of `target_log_prob_fn`.
  num_simulations: int = 0
  # (num_draws, seed) -> [num_draws, event_size] independent draws, float64.
  exact_draws_fn: Optional[Callable[[int, int], Any]] = None
  # {name of a preconditioner: its constants}, structures that fit the model.
  structures: Optional[dict] = None
  # () -> (x [event_size] -> [] in JAX), the same density up to the same
  # constant. The outer function imports JAX.
  jax_log_prob_fn: Optional[Callable[[], Callable]] = None

  def variances(self):
    """Returns the diagonal of the covariance, [event_size]."""
    if self.covariance.ndim == 1:
      return self.covariance
    return np.diag(self.covariance)


class BuildContext(NamedTuple):
  """Settings of an experiment that a target may need."""

  dtype: str
  data_dir: Optional[str] = None


class TargetParameters(Parameters):
  """Base of the registered targets."""

  def build(self, context: BuildContext) -> Target:
    raise NotImplementedError
