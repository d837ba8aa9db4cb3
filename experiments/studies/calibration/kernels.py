"""The families of kernels, each on a small model, as fixed kernels.

A family learns in a pilot run on other data sets. All chains of this run share
one set of params, although each has another posterior. Any frozen params give a
kernel that leaves every posterior invariant. A poor fit only lowers the
acceptance, which the tables show.
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
_PILOT = 7_000_000  # Added to the seed, so that data sets differ.
_MODELS = {
  'line': models.student_regression,
  'field': models.field,
  'hierarchy': models.hierarchy,
  'effects': models.random_effects,
}
# Arguments of the builders besides the density.
_PRIORS: dict[str, Callable[[], dict[str, Any]]] = {
  'field': lambda: dict(prior=models.field_prior()),
  'hierarchy': lambda: dict(
    prior_fn=models.prior_fn, hyperprior=models.hyperprior()
  ),
}


class Family(NamedTuple):
  """A calibrated case: a builder on a model."""

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
  """Returns the model, and data -> kernel with params from a pilot run."""
  model = family.model()
  state, data = chains.draw_joint(model, _NUM_PILOT_CHAINS, seed + _PILOT)
  kernel = family.build(
    model.density(data), family.case.calibration.num_adaptation_steps
  )
  with warnings.catch_warnings():
    # The pilot run returns one draw, which chains may reject.
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
