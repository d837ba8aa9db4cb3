"""HMC behind a learned map, assembled as in `linear/builders.py`."""

from tfp_adaptive.core import arguments
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.linear import optimizers
from tfp_adaptive.linear.criteria import generalized_speed_measure
from tfp_adaptive.linear.gradient_based import GradientBasedAdaptation
from tfp_adaptive.transport import maps as transports
from tfp_adaptive.transport.hamiltonian import (
  UncalibratedTransportedHamiltonian,
)

__all__ = ['transport_adaptive_hamiltonian']


def transport_adaptive_hamiltonian(
  target_log_prob_fn,
  num_leapfrog_steps,
  num_adaptation_steps,
  transport=None,
  criterion=None,
  optimizer=None,
  target_accept_prob=0.67,
  hessian_product='autodiff',
  step_size=1.0,
):
  """Builds HMC behind a map f that is learned by gradient while it samples.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable twice,
      called as TFP calls it; returns [chains...].
    num_leapfrog_steps: L, gradients per step.
    num_adaptation_steps: Steps that adapt; after them the kernel is fixed.
    transport: Form of f; `transports.real_nvp()` by default.
    criterion: What to maximise; the generalised speed measure by default, with
      the rule `'acceptance'`: a transport has no tangent to balance.
    optimizer: How the params move, on their raw entries; Adam by default.
    target_accept_prob: Smallest wanted mean acceptance, in (0, 1).
    hessian_product: `'autodiff'`, or `'finite_difference'` of gradients for
      targets that are costly or cannot be differentiated twice.
    step_size: Of the leapfrog in z; leave it to the adaptation.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    ValueError: If the optimizer works on tangents.

  References:
    Hirt, Titsias and Dellaportas (2021), section 4.5 and Appendix C,
    https://arxiv.org/abs/2110.14625.
  """
  if criterion is None:
    criterion = generalized_speed_measure(
      target_accept_prob,
      entropy_weight_rule='acceptance',
      min_entropy_weight=1e-2,
      max_entropy_weight=1e2,
      penalty_threshold=0.75,
    )._replace(may_exceed_target=True)
  optimizer = optimizer or optimizers.adam(1e-3)
  arguments.check_optimizer(optimizer)
  if optimizer.is_relative:
    raise ValueError(
      f'`optimizer` works on tangents (`{optimizer.name}`), and a transport '
      'has none. Write for example `optimizer=tfpa.optimizers.adam(1e-3)`.'
    )
  proposal = UncalibratedTransportedHamiltonian(
    target_log_prob_fn,
    transport or transports.real_nvp(),
    num_leapfrog_steps,
    step_size,
    hessian_product,
  )
  return GradientBasedAdaptation(
    MetropolisHastings(proposal), criterion, optimizer, num_adaptation_steps
  )
