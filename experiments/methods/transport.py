"""HMC behind a learned non-linear map.

References: Hirt, Titsias and Dellaportas (2021), section 4.5 and Appendix C,
https://arxiv.org/abs/2110.14625.
"""

from typing import Literal

from pydantic import Field

import tfp_adaptive as tfpa
from experiments.framework.registry import METHODS
from experiments.methods.adaptive import Adaptive
from experiments.methods.base import NumLeapfrogSteps

__all__ = [
  'ConditionalGaussianHmc',
  'TransportAdaptiveHmc',
]


@METHODS.register('transport_adaptive_hmc')
class TransportAdaptiveHmc(Adaptive):
  """HMC behind RealNVP, whose weights are adapted by the entropy."""

  settings: Literal['default'] = 'default'
  num_leapfrog_steps: NumLeapfrogSteps
  num_pairs: int = Field(1, ge=1)
  learning_rate: float = Field(1e-3, gt=0)

  def default_label(self):
    return f'RealNVP HMC-{self.num_leapfrog_steps}'

  def build(self, target, options):
    kernel = tfpa.transport_adaptive_hamiltonian(
      target.target_log_prob_fn,
      options.num_adaptation_steps,
      num_leapfrog_steps=self.num_leapfrog_steps,
      transport=tfpa.transports.real_nvp(num_pairs=self.num_pairs),
      optimizer=tfpa.optimizers.adam(self.learning_rate),
      **self.given('target_accept_prob'),
    )
    return self.to_method(kernel, None)


@METHODS.register('conditional_gaussian_hmc')
class ConditionalGaussianHmc(Adaptive):
  """HMC behind a conditional Gaussian, fitted to pairs; drivers are found."""

  settings: Literal['default'] = 'default'
  num_leapfrog_steps: NumLeapfrogSteps = 5
  num_drivers: int = Field(3, ge=1)
  structure: Literal['diagonal', 'tridiagonal'] = 'diagonal'

  def default_label(self):
    path = ', path' if self.structure == 'tridiagonal' else ''
    return f'conditional-Gaussian HMC-{self.num_leapfrog_steps}{path}'

  def build(self, target, options):
    kernel = tfpa.transport_adaptive_hamiltonian(
      target.target_log_prob_fn,
      options.num_adaptation_steps,
      num_leapfrog_steps=self.num_leapfrog_steps,
      transport=tfpa.transports.conditional_gaussian(
        num_drivers=self.num_drivers, structure=self.structure
      ),
      **self.given('target_accept_prob'),
    )
    return self.to_method(kernel, None)
