"""Samplers without gradients, whose proposals are learned from past states."""

from typing import ClassVar
from typing import Literal

from pydantic import Field

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from experiments.samplers.base import costs
from experiments.samplers.base import Method
from experiments.samplers.base import MethodParameters
from experiments.targets.registry import METHODS


class GradientFree(MethodParameters):
  """Options of both kernel samplers; None is the library's default."""

  num_points: int | None = Field(None, ge=2, description='draws of a fit')
  target_accept_prob: float | None = Field(None, gt=0, lt=1)
  history_draws: int | None = Field(
    None, ge=2, description='exact draws of the target for the first fit'
  )

  takes_stochastic: ClassVar[bool] = True

  def check_target(self, target):
    super().check_target(target)
    if self.history_draws is not None and target.exact_draws_fn is None:
      raise ValueError(
        f'history_draws: {self.history_draws} was given, but {target.name} '
        'has no exact draws. Leave history_draws out, or write a target such '
        'as banana.'
      )

  def build_with(self, builder, surrogate, target, options, **arguments):
    """Returns the method of a builder, with the options of both samplers."""
    if self.history_draws is not None:
      arguments['history'] = target.exact_draws_fn(self.history_draws, 0)
    kernel = builder(
      target.target_log_prob_fn,
      options.num_adaptation_steps,
      surrogate=surrogate,
      target_is_stochastic=target.is_stochastic,
      **self.given('target_accept_prob'),
      **arguments,
    )
    return Method(kernel, **costs(kernel), has_step_size=True)


@METHODS.register('kernel_hamiltonian')
class KernelHamiltonian(GradientFree):
  """HMC on forces that are learned from past states (KMC)."""

  settings: Literal['default', 'paper'] = 'default'
  surrogate: Literal['finite', 'lite'] = 'finite'
  num_features: int | None = Field(None, ge=1)
  # The name is not `num_leapfrog_steps`, because a list of these stands for
  # several methods. With `None`, the trajectory's length decides.
  fewest_leapfrog_steps: int | None = Field(None, ge=1)
  most_leapfrog_steps: int | None = Field(None, ge=1)

  def default_label(self):
    paper = ', paper' if self.settings == 'paper' else ''
    return f'KMC {self.surrogate}{paper}'

  def build(self, target, options):
    builder = tfpa.kernel_hamiltonian
    if self.settings == 'paper':
      builder = tfpa.papers.kmc
      if self.target_accept_prob is not None:
        raise ValueError(
          'target_accept_prob is not in the paper. Leave out '
          'target_accept_prob or settings: paper.'
        )
    lengths = self._leapfrog_range()
    return self.build_with(
      builder,
      self._surrogate(),
      target,
      options,
      **({} if lengths is None else {'num_leapfrog_steps': lengths}),
    )

  def _surrogate(self):
    """Returns the `tfpa.interfaces.Surrogate` of the short name."""
    if self.surrogate == 'finite':
      return tfpa.surrogates.kernel_exponential_family_finite(
        **self.given('num_points', 'num_features')
      )
    if self.num_features is not None:
      raise ValueError(
        "surrogate: 'lite' has a kernel at each draw and no features. Leave "
        "num_features out, or write surrogate: 'finite'."
      )
    return tfpa.surrogates.kernel_exponential_family_lite(
      **self.given('num_points')
    )

  def _leapfrog_range(self):
    """Returns (fewest, most), or None if neither is given."""
    fewest, most = self.fewest_leapfrog_steps, self.most_leapfrog_steps
    if fewest is None and most is None:
      return None
    fewest, most = fewest or 1, most or 10
    if fewest > most:
      raise ValueError(
        f'fewest_leapfrog_steps: {fewest} is above most_leapfrog_steps: {most}.'
      )
    return fewest, most


@METHODS.register('kernel_adaptive_metropolis')
class KernelAdaptiveMetropolis(GradientFree):
  """Random walk whose covariance follows the past states (KAMH)."""

  def default_label(self):
    return 'KAMH'

  def build(self, target, options):
    return self.build_with(
      baselines.kernel_adaptive_metropolis,
      baselines.kernel_subsample(**self.given('num_points')),
      target,
      options,
    )
