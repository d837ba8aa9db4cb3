"""TFP's own adaptive samplers beside NUTS, with TFP's defaults.

References: Sountsov and Hoffman (2021), SNAPER; Earl and Deem (2005), replica
exchange.
"""

import tensorflow as tf
import tensorflow_probability as tfp
from pydantic import Field

from experiments.framework.registry import METHODS
from experiments.methods.base import Cost
from experiments.methods.base import Method
from experiments.methods.base import MethodParameters
from experiments.methods.base import NumLeapfrogSteps
from experiments.methods.base import traced

__all__ = ['ReplicaExchange', 'SnaperHmc']

# The rest of the adaptation steps is burn-in, as in `sample_snaper_hmc`.
_SNAPER_ADAPTING = 0.9


@METHODS.register('snaper_hmc')
class SnaperHmc(MethodParameters):
  """TFP's SNAPER-HMC: diagonal mass, trajectory length by SNAPER.

  The kernel that `tfp.experimental.mcmc.sample_snaper_hmc` builds, with its
  constants. It needs at least two chains.
  """

  target_accept_prob: float = Field(0.8, gt=0, lt=1)

  def default_label(self):
    return 'SNAPER-HMC'

  def build(self, target, options):
    if options.num_chains < 2:
      raise ValueError(
        f'num_chains: {options.num_chains} was given, but snaper_hmc learns '
        'from the spread of its chains; write at least 2.'
      )
    num_adapting = int(_SNAPER_ADAPTING * options.num_adaptation_steps)
    kernel = tfp.experimental.mcmc.SNAPERHamiltonianMonteCarlo(
      target.target_log_prob_fn,
      step_size=tf.constant(1e-2 * target.event_size**-0.25, target.dtype),
      num_adaptation_steps=num_adapting,
    )
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
      kernel,
      num_adaptation_steps=num_adapting,
      target_accept_prob=tf.constant(self.target_accept_prob, target.dtype),
      reduce_fn=tfp.math.reduce_log_harmonic_mean_exp,
    )
    # One number of leapfrog steps for all chains, jittered at every step.
    return Method(
      kernel,
      adapting_cost=None,
      frozen_cost=None,
      trace_fn=traced(leapfrogs_taken='num_leapfrog_steps'),
    )


@METHODS.register('replica_exchange')
class ReplicaExchange(MethodParameters):
  """TFP's parallel tempering of HMC, a dual-averaged step per temperature.

  Inverse temperatures 1, 1/2, 1/4, ... of the whole density and L = 3, as in
  TFP's documentation. All replicas' gradients are counted, and the one each
  that a swap takes anew.
  """

  num_leapfrog_steps: NumLeapfrogSteps = 3
  num_replicas: int = Field(4, ge=2)
  target_accept_prob: float = Field(0.75, gt=0, lt=1)

  def default_label(self):
    return f'Replica exchange HMC-{self.num_leapfrog_steps}'

  def build(self, target, options):
    inverse_temperatures = 0.5 ** tf.range(
      self.num_replicas, dtype=target.dtype
    )
    first = 0.1 / target.event_size**0.5
    # [replicas, 1, 1]: one for all chains of a temperature.
    step_size = first / tf.sqrt(inverse_temperatures)[:, None, None]

    def make_kernel_fn(target_log_prob_fn):
      return tfp.mcmc.DualAveragingStepSizeAdaptation(
        tfp.mcmc.HamiltonianMonteCarlo(
          target_log_prob_fn, step_size, self.num_leapfrog_steps
        ),
        num_adaptation_steps=options.num_adaptation_steps,
        target_accept_prob=tf.constant(self.target_accept_prob, target.dtype),
      )

    kernel = tfp.mcmc.ReplicaExchangeMC(
      target.target_log_prob_fn, inverse_temperatures, make_kernel_fn
    )
    calls = self.num_replicas * (self.num_leapfrog_steps + 1)
    return Method(kernel, Cost(calls, calls), Cost(calls, calls))
