"""Checks that the parts of a sampler that learns a matrix go together."""

from tfp_adaptive import interfaces
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core.proposal import UncalibratedProposal


def check_gradient_adaptation(criterion, optimizer, proposal, learner):
  """Refuses criterion, optimizer and innermost kernel that do not match."""
  _check_part(
    'criterion',
    criterion,
    interfaces.Criterion,
    'criteria.generalized_speed_measure(0.55)',
  )
  check_optimizer(optimizer)
  _check_pair(criterion, optimizer)
  part = proposal.preconditioner
  if isinstance(part, interfaces.MapParams) and part.fit is not None:
    raise ValueError(
      'The transport of the proposal is fitted to pairs and not learned by '
      'gradient. Take `tfpa.adaptation.FisherTransportAdaptation`.'
    )
  scale_factor.check_moves(part, learner)
  if optimizer.is_relative:
    check_has_tangent(proposal, f'`{optimizer.name}`')
  check_is_exact(proposal, learner)


def check_optimizer(optimizer):
  """Refuses a value that is not an `interfaces.Optimizer`."""
  _check_part(
    'optimizer', optimizer, interfaces.Optimizer, 'optimizers.adam(1e-3)'
  )


def check_has_tangent(proposal, learner):
  """Refuses an innermost kernel whose params have no tangents."""
  if not isinstance(proposal.preconditioner, interfaces.Preconditioner):
    raise ValueError(
      f'{learner} works on tangents, and the params of '
      f'{type(proposal).__name__} have none. Build the kernel with '
      '`tfpa.transport_adaptive_hamiltonian`, whose default learns them.'
    )


def check_is_exact(proposal, purpose):
  """Refuses an innermost kernel with a stochastic target."""
  is_ours = isinstance(proposal, UncalibratedProposal)
  if is_ours and proposal.target_is_stochastic:
    raise ValueError(
      f'{purpose} evaluates the gradient of the target, and the gradient of a '
      'random estimate is not that of the density; but the proposal inside '
      'has `target_is_stochastic=True`. Use a kernel without gradients: '
      '`tfpa.adaptive_metropolis` or `tfpa.kernel_hamiltonian`.'
    )


def _check_pair(criterion, optimizer):
  """Refuses a criterion and an optimizer that do not go together."""
  if criterion.needs_slopes and not optimizer.is_relative:
    raise ValueError(
      f'`{optimizer.name}` works on raw params and has no slopes in the log '
      f'scale, which this `{criterion.name}` needs to weigh the entropy. '
      "Give the criterion `entropy_weight_rule='acceptance'`, or take "
      '`tfpa.optimizers.relative_gradient()`.'
    )
  if optimizer.is_relative and not criterion.holds_scale:
    raise ValueError(
      f'`{criterion.name}` does not reduce the scale while every move is '
      f'rejected, and `{optimizer.name}` can raise it that far. Write '
      '`optimizer=tfpa.optimizers.adam(1e-3)`, or the criterion '
      f'`tfpa.criteria.generalized_speed_measure('
      f'{criterion.target_accept_prob:g})`.'
    )


def _check_part(name, part, kind, example):
  if not isinstance(part, kind):
    raise TypeError(
      f'`{name}` must be an `interfaces.{kind.__name__}`, but got {part!r}. '
      f'Write for example `{name}=tfpa.{example}` (with parentheses).'
    )
