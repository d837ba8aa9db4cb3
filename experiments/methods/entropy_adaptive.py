"""Entropy-adapted HMC: the inverse mass matrix C C^T learned by gradient.

References: Hirt, Titsias and Dellaportas (2021), Algorithm 1 and Appendix D,
https://arxiv.org/abs/2110.14625.
"""

from typing import ClassVar
from typing import Literal

from pydantic import Field

import tfp_adaptive as tfpa
from experiments import presets
from experiments.framework.registry import METHODS
from experiments.methods.adaptive import GradientAdaptive
from experiments.methods.base import NumLeapfrogSteps

__all__ = ['EntropyAdaptiveHmc']

# The papers' names of what is maximised.
_SHORT_NAMES = {
  None: 'GSM',
  'cross_entropy': 'cross entropy',
  'expected_squared_jump_distance': 'ESJD',
  'generalized_speed_measure': 'GSM',
  'l2hmc': 'L2HMC',
}
_PENALTY_THRESHOLD = 0.75


@METHODS.register('entropy_adaptive_hmc')
class EntropyAdaptiveHmc(GradientAdaptive):
  """HMC adapted by the entropy of its proposals, or by another criterion."""

  num_leapfrog_steps: NumLeapfrogSteps
  hessian_product: Literal['autodiff', 'finite_difference'] = 'autodiff'
  randomize_num_steps: bool = False
  entropy_weight_rate: float | None = Field(
    None, gt=0, description='settings: paper alone; of beta and of gamma'
  )
  penalty_threshold: float | None = Field(
    None, gt=0, lt=1, description='settings: paper alone; delta'
  )

  preset = staticmethod(presets.hamiltonian)
  of_preset: ClassVar[tuple] = (
    'target_accept_prob',
    'entropy_weight_rate',
    'penalty_threshold',
  )
  preset_optimizer: ClassVar[str] = 'adam'
  default_accept_prob: ClassVar[float] = 0.67

  def default_label(self):
    paper = ', paper' if self.settings == 'paper' else ''
    return (
      f'{_SHORT_NAMES[self.criterion]} HMC-{self.num_leapfrog_steps}'
      f'{self.structure_label()}{paper}'
    )

  def build_criterion(self):
    if self.criterion != 'cross_entropy':
      return super().build_criterion()
    return tfpa.criteria.cross_entropy(
      self.target_accept_prob or self.default_accept_prob,
      penalty_threshold=_PENALTY_THRESHOLD,
    )

  def build(self, target, options):
    self._check_constants()
    names = ('num_leapfrog_steps', 'hessian_product', 'randomize_num_steps')
    kernel = tfpa.entropy_adaptive_hamiltonian(
      **self.given(*names), **self.arguments(target, options)
    )
    if self.settings == 'paper':
      kernel = presets.with_three_terms(kernel)
    return self.to_method(kernel, self.trace_fn(options))

  def _check_constants(self):
    """Refuses constants of the paper's criterion where it is not used."""
    is_used = self.settings == 'paper' and self.criterion is None
    for name in ('entropy_weight_rate', 'penalty_threshold'):
      if getattr(self, name) is not None and not is_used:
        raise ValueError(
          f"{name}: it is a constant of the paper's criterion; leave it out, "
          'or write settings: paper and no criterion.'
        )
