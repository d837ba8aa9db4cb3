"""The library's adaptive samplers, each built by its public builder."""

from collections.abc import Callable
from typing import ClassVar
from typing import Literal

import tensorflow as tf
from pydantic import Field

import tfp_adaptive as tfpa
from experiments import presets
from experiments.framework.registry import METHODS
from experiments.methods.base import costs
from experiments.methods.base import find_field
from experiments.methods.base import Method
from experiments.methods.base import MethodParameters
from experiments.methods.structures import check_dense
from experiments.methods.structures import Structured

__all__ = ['Adaptive', 'GradientAdaptive', 'ShortSteps']


class Adaptive(MethodParameters):
  """What all of the library's adaptive samplers take; None: its default."""

  settings: Literal['default', 'paper'] = 'default'
  target_accept_prob: float | None = Field(None, gt=0, lt=1)

  # What the builders take under these names.
  passed: ClassVar[tuple] = ('target_accept_prob',)

  def given(self, *names):
    """Returns {name: value} of the parameters that are not None."""
    values = {name: getattr(self, name) for name in names}
    return {name: v for name, v in values.items() if v is not None}

  def build_with(self, builder, target, options, trace_fn=None):
    """Returns the method of a builder that takes what all of them take."""
    kernel = builder(
      target.target_log_prob_fn,
      options.num_adaptation_steps,
      **self.given(*self.passed),
    )
    return self.to_method(kernel, trace_fn)

  def to_method(self, kernel, trace_fn):
    return Method(
      kernel=kernel,
      **costs(kernel),
      trace_fn=trace_fn,
      is_adaptive=True,
    )


class ShortSteps(Adaptive):
  """What the adaptive Langevin samplers take beside it."""

  short_step_share: float | None = Field(
    None,
    ge=0,
    lt=1,
    description='by default 0.2 in necks; 0 with settings: paper',
  )

  passed: ClassVar[tuple] = (*Adaptive.passed, 'short_step_share')


class GradientAdaptive(Adaptive, Structured):
  """What the gradient-adapted samplers take beside it."""

  criterion: (
    Literal[
      'cross_entropy',
      'expected_squared_jump_distance',
      'generalized_speed_measure',
      'l2hmc',
    ]
    | None
  ) = None
  optimizer: Literal['relative_gradient', 'rmsprop', 'adam'] | None = None
  learning_rate: float | None = Field(None, gt=0)
  gain: float | None = Field(None, ge=1)

  # The paper's constants, what they depend on, the paper's optimizer, and the
  # builder's wanted acceptance.
  preset: ClassVar[Callable]
  of_preset: ClassVar[tuple] = ('target_accept_prob',)
  preset_optimizer: ClassVar[str] = 'rmsprop'
  default_accept_prob: ClassVar[float] = 0.55

  def arguments(self, target, options):
    """Returns the keyword arguments of the builder."""
    is_paper = self.settings == 'paper'
    arguments = self.given(*self.passed)
    if is_paper:
      preset = type(self).preset(**self.given(*self.of_preset))
      arguments = {**preset, **arguments}
    structure = self.structure(target, is_paper)
    if structure is not None:
      arguments['preconditioner'] = structure
    if self.criterion not in (None, 'generalized_speed_measure'):
      arguments['criterion'] = self.build_criterion()
      self._check_scale(arguments['criterion'])
    constants = (self.optimizer, self.learning_rate, self.gain)
    if any(constant is not None for constant in constants):
      arguments['optimizer'] = self._optimizer()
    return dict(
      arguments,
      target_log_prob_fn=target.target_log_prob_fn,
      num_adaptation_steps=options.num_adaptation_steps,
    )

  def build_criterion(self):
    """Returns the criterion that was asked for by name."""
    build = getattr(tfpa.criteria, self.criterion)
    return build(self.target_accept_prob or self.default_accept_prob)

  def _check_scale(self, criterion):
    """Refuses the relative optimizer of what it would run away with."""
    is_relative = self._optimizer_name() == 'relative_gradient'
    if is_relative and not criterion.holds_scale:
      raise ValueError(
        f'criterion: {criterion.name!r} runs away with the optimizer '
        "'relative_gradient'; write optimizer: adam and learning_rate: 1e-3."
      )

  def _optimizer_name(self):
    usual = 'relative_gradient'
    if self.settings == 'paper':
      usual = self.preset_optimizer
    return self.optimizer or usual

  def _optimizer(self):
    name = self._optimizer_name()
    needed, other = (
      ('gain', 'learning_rate')
      if name == 'relative_gradient'
      else ('learning_rate', 'gain')
    )
    if getattr(self, other) is not None:
      raise ValueError(
        f'optimizer: {name!r} has no {other}; it takes {needed}.'
      )
    if needed == 'learning_rate' and self.learning_rate is None:
      raise ValueError(
        f'optimizer: {name!r} needs its learning_rate; write e.g. '
        'learning_rate: 1e-3.'
      )
    return getattr(tfpa.optimizers, name)(**self.given(needed))

  def trace_fn(self, options):
    has_diagonal = self.preconditioner in ('cholesky', 'diagonal')
    return diagonal_trace if options.trace_diagonal and has_diagonal else None


def diagonal_trace(state, kernel_results):
  """Returns the diagonal of the learned factor, [event_size]."""
  del state
  params = find_field(kernel_results, 'preconditioner_params')
  if params.shape.rank == 2:
    params = tf.linalg.diag_part(params)
  return {'factor_diagonal': params}


@METHODS.register('gadmala_fast')
class GadmalaFast(ShortSteps, GradientAdaptive):
  """Gradient-adapted MALA, gradient at the proposal held constant."""

  preset = staticmethod(presets.langevin)

  def default_label(self):
    return 'gadMALAf'

  def build(self, target, options):
    kernel = tfpa.gradient_adaptive_langevin(**self.arguments(target, options))
    return self.to_method(kernel, self.trace_fn(options))


@METHODS.register('gadmala_exact')
class GadmalaExact(ShortSteps, GradientAdaptive):
  """Gradient-adapted MALA, with one Hessian-vector product a step."""

  preset = staticmethod(presets.langevin)

  def default_label(self):
    return 'gadMALAe'

  def build(self, target, options):
    kernel = tfpa.gradient_adaptive_langevin(
      exact_gradient=True, **self.arguments(target, options)
    )
    return self.to_method(kernel, self.trace_fn(options))


@METHODS.register('gadrwm')
class Gadrwm(GradientAdaptive):
  """Gradient-adapted random walk Metropolis."""

  preset = staticmethod(presets.random_walk)
  default_accept_prob: ClassVar[float] = 0.25

  def default_label(self):
    return 'gadRWM'

  def build(self, target, options):
    kernel = tfpa.gradient_adaptive_random_walk(
      **self.arguments(target, options)
    )
    return self.to_method(kernel, self.trace_fn(options))


@METHODS.register('am')
class AdaptiveMetropolis(Adaptive):
  """Adaptive Metropolis: the covariance of the chain's own past."""

  takes_stochastic: ClassVar[bool] = True

  def default_label(self):
    return 'AM'

  def build(self, target, options):
    check_dense('cholesky', target)
    kernel = tfpa.adaptive_metropolis(
      target_log_prob_fn=target.target_log_prob_fn,
      num_adaptation_steps=options.num_adaptation_steps,
      target_is_stochastic=target.is_stochastic,
      **self.given('target_accept_prob'),
      **(presets.adaptive_metropolis() if self.settings == 'paper' else {}),
    )
    trace_fn = diagonal_trace if options.trace_diagonal else None
    return self.to_method(kernel, trace_fn)
