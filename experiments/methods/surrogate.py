"""Samplers that need no gradient: what they propose comes from past states."""

from typing import ClassVar
from typing import Literal

from pydantic import Field

import tfp_adaptive as tfpa
from experiments import baselines
from experiments import presets
from experiments.framework.registry import METHODS
from experiments.methods.base import costs
from experiments.methods.base import Method
from experiments.methods.base import MethodParameters

__all__ = ['GradientFree', 'build_surrogate']


def build_surrogate(
  surrogate, num_points=None, num_features=None, kernel='gaussian'
):
  """Returns a `tfpa.interfaces.Surrogate` by its short name.

  Args:
    surrogate: 'finite' or 'lite'.
    num_points: draws of a fit; None: the library's default.
    num_features: of 'finite' only; None: the library's default.
    kernel: of 'finite' only, 'gaussian' or 'rational_quadratic'.

  Raises:
    ValueError: if 'lite' is given what it has not.
  """
  given = {'num_points': num_points, 'num_features': num_features}
  arguments = {name: v for name, v in given.items() if v is not None}
  if surrogate == 'lite':
    if num_features is not None or kernel != 'gaussian':
      raise ValueError(
        "surrogate: 'lite' has a Gaussian kernel at each of its draws; leave "
        "num_features and kernel out, or write surrogate: 'finite'."
      )
    return tfpa.surrogates.kernel_exponential_family_lite(**arguments)
  return tfpa.surrogates.kernel_exponential_family_finite(
    kernel=kernel, **arguments
  )


class GradientFree(MethodParameters):
  """What both kernel samplers take; None: the library's default."""

  num_points: int | None = Field(None, ge=2, description='draws of a fit')
  step_size: float | None = Field(None, gt=0, description='the first one')
  target_accept_prob: float | None = Field(None, gt=0, lt=1)
  history_draws: int | None = Field(
    None, ge=2, description='exact draws of the target, known beforehand'
  )
  history_seed: int = Field(0, ge=0)

  takes_stochastic: ClassVar[bool] = True

  def check_target(self, target):
    super().check_target(target)
    if self.history_draws is not None and target.exact_draws_fn is None:
      raise ValueError(
        f'history_draws: {self.history_draws} was given, but {target.name} '
        'cannot be drawn from exactly; leave it out, or take a target such as '
        'banana.'
      )

  def arguments(self, target, options, *names):
    """Returns the keyword arguments of the builder, `names` among them."""
    names = ('step_size', 'target_accept_prob', *names)
    values = {name: getattr(self, name) for name in names}
    arguments = {name: v for name, v in values.items() if v is not None}
    if self.history_draws is not None:
      arguments['history'] = target.exact_draws_fn(
        self.history_draws, self.history_seed
      )
    return dict(
      arguments,
      target_log_prob_fn=target.target_log_prob_fn,
      num_adaptation_steps=options.num_adaptation_steps,
      target_is_stochastic=target.is_stochastic,
    )

  def to_method(self, kernel):
    return Method(kernel, **costs(kernel), has_step_size=True)


@METHODS.register('kernel_hamiltonian')
class KernelHamiltonian(GradientFree):
  """HMC on forces that are learned from past states (KMC)."""

  settings: Literal['default', 'paper'] = 'default'
  surrogate: Literal['finite', 'lite'] = 'finite'
  num_features: int | None = Field(None, ge=1)
  kernel: Literal['gaussian', 'rational_quadratic'] = 'gaussian'
  # Not `num_leapfrog_steps`: of that a list means one method each. None: as
  # many as the trajectory's length needs.
  fewest_leapfrog_steps: int | None = Field(None, ge=1)
  most_leapfrog_steps: int | None = Field(None, ge=1)
  walk_share: float | None = Field(None, ge=0, lt=1)

  def default_label(self):
    paper = ', paper' if self.settings == 'paper' else ''
    return f'KMC {self.surrogate}{paper}'

  def build(self, target, options):
    arguments = dict(
      self.arguments(target, options, 'walk_share'),
      surrogate=build_surrogate(
        self.surrogate, self.num_points, self.num_features, self.kernel
      ),
      num_leapfrog_steps=self._leapfrog_range(),
    )
    if self.settings == 'default':
      return self.to_method(tfpa.kernel_hamiltonian(**arguments))
    for name in ('walk_share', 'target_accept_prob'):
      if arguments.pop(name, None) is not None:
        raise ValueError(
          f'{name}: the paper has none; leave it out, or settings: paper.'
        )
    return self.to_method(presets.kernel_hamiltonian(**arguments))

  def _leapfrog_range(self):
    """Returns (fewest, most), or None where neither is given."""
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

  noise_scale: float | None = Field(None, gt=0)

  def default_label(self):
    return 'KAMH'

  def build(self, target, options):
    surrogate = None
    if self.num_points is not None:
      surrogate = baselines.kernel_subsample(self.num_points)
    kernel = baselines.kernel_adaptive_metropolis(
      surrogate=surrogate, **self.arguments(target, options, 'noise_scale')
    )
    return self.to_method(kernel)
