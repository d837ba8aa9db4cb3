"""The kinds of Hamiltonian steps: plain, of local size, with kept momenta."""

from tfp_adaptive.linear import kept_momentum
from tfp_adaptive.linear.hamiltonian import (
  UncalibratedPreconditionedHamiltonian,
)
from tfp_adaptive.linear.local_steps import UncalibratedLocalHamiltonian

__all__ = ['UncalibratedMomentumHamiltonian', 'proposal_class']


class UncalibratedMomentumHamiltonian(
  kept_momentum.KeepsMomentum, UncalibratedPreconditionedHamiltonian
):
  """Proposes the end of a trajectory that starts with a given momentum.

  Put `MomentumMetropolisHastings` around this kernel.
  """


def proposal_class(local_steps, keep_momentum):
  """Returns the class of the proposal.

  Args:
    local_steps: Whether steps are shorter where the target is steep.
    keep_momentum: Whether steps keep part of the momentum.

  Raises:
    ValueError: If both arguments are true.
  """
  if local_steps and keep_momentum:
    raise ValueError(
      '`local_steps=True` and `keep_momentum=True` are two kinds of steps. '
      'Leave one of them out.'
    )
  if keep_momentum:
    return UncalibratedMomentumHamiltonian
  if local_steps:
    return UncalibratedLocalHamiltonian
  return UncalibratedPreconditionedHamiltonian
