"""The families of kernels, each on a small model, as fixed kernels.

What a family learns is learned from a pilot run on data sets of its own: all
chains, each with another posterior, share one set of params. Frozen, any params
give a kernel that leaves every posterior invariant; a poor fit costs acceptance
only, which the tables show.
"""

import warnings
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tfp_adaptive as tfpa
from experiments.samplers import cases
from experiments.studies.calibration import chains
from experiments.studies.calibration import models

_NUM_PILOT_CHAINS = 100
_PILOT = 7_000_000  # Added to the seed: no data set is seen twice.
_MODELS = {
  'line': models.student_regression,
  'field': models.field,
  'hierarchy': models.hierarchy,
  'effects': models.random_effects,
}
# What the builders take besides the density.
_PRIORS: dict[str, Callable[[], dict[str, Any]]] = {
  'field': lambda: dict(prior=models.field_prior()),
  'hierarchy': lambda: dict(
    prior_fn=models.prior_fn, hyperprior=models.hyperprior()
  ),
}


class Family(NamedTuple):
  """A case that is calibrated: its builder on its model."""

  case: cases.Case

  @property
  def thinning(self) -> int:
    return self.case.calibration.thinning

  def model(self) -> models.Model:
    return _MODELS[self.case.calibration.model]()

  def build(self, density: Callable, num_adaptation_steps: int, **options):
    calibration = self.case.calibration
    prior = _PRIORS.get(calibration.model, dict)()
    return self.case.build(
      density,
      num_adaptation_steps,
      **{**calibration.options, **prior, **options},
    )


FAMILIES = {
  case.calibration.name: Family(case)
  for case in cases.CASES
  if case.calibration is not None
}


def learn(family: Family, seed: int) -> tuple[models.Model, Callable]:
  """Returns the model, and data -> kernel with what a pilot run has learned."""
  model = family.model()
  state, data = chains.draw_joint(model, _NUM_PILOT_CHAINS, seed + _PILOT)
  kernel = family.build(
    model.density(data), family.case.calibration.num_adaptation_steps
  )
  with warnings.catch_warnings():
    # The pilot run returns one draw, and chains that rejected it are no news.
    warnings.filterwarnings('ignore', 'No move was accepted in 1 draws')
    run = tfpa.sample(
      kernel, state, 1, seed=seed, progress=False, jit_compile=False
    )
  fixed = tfpa.frozen(kernel, run.final_kernel_results)
  return model, lambda data: with_density(fixed, model.density(data))


def with_density(kernel, density):
  """Returns the kernel on another density."""
  if hasattr(kernel, 'inner_kernel'):
    return kernel.copy(inner_kernel=with_density(kernel.inner_kernel, density))
  name = 'log_likelihood_fn'
  if name not in kernel.parameters:
    name = 'target_log_prob_fn'
  return kernel.copy(**{name: density})
