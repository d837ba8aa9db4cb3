"""The library's adaptive samplers, each built by its public builder.

References: Titsias and Dellaportas (2019), https://arxiv.org/abs/1911.01373;
Hirt, Titsias and Dellaportas (2021), https://arxiv.org/abs/2110.14625.
"""

from collections.abc import Callable
from typing import ClassVar
from typing import Literal

import tensorflow as tf
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from experiments.samplers.base import BuildOptions
from experiments.samplers.base import check_dense
from experiments.samplers.base import costs
from experiments.samplers.base import find_field
from experiments.samplers.base import Method
from experiments.samplers.base import MethodParameters
from experiments.samplers.base import NumLeapfrogSteps
from experiments.samplers.base import Structured
from experiments.targets.base import Target
from experiments.targets.registry import METHODS

__all__ = ['Adaptive', 'GradientAdaptive', 'ShortSteps']


class Adaptive(MethodParameters):
  """Options of all adaptive samplers of the library; None is its default."""

  settings: Literal['default', 'paper'] = 'default'
  target_accept_prob: float | None = Field(None, gt=0, lt=1)

  # Parameters that the builder takes under the same names.
  passed: ClassVar[tuple] = ('target_accept_prob',)

  def build_with(
    self, builder: Callable, target: Target, options: BuildOptions, **arguments
  ) -> Method:
    """Returns the method of a builder.

    Args:
      builder: Takes a density, a number of adaptation steps, and keywords.
      target: What is sampled.
      options: Options of the experiment.
      **arguments: More keywords of the builder; `None` counts as not given.
    """
    arguments = {k: v for k, v in arguments.items() if v is not None}
    kernel = builder(
      target.target_log_prob_fn,
      options.num_adaptation_steps,
      **{**arguments, **self.given(*self.passed)},
    )
    return self.to_method(kernel)

  def to_method(self, kernel, trace_fn=None) -> Method:
    return Method(kernel, **costs(kernel), trace_fn=trace_fn, is_adaptive=True)


class ShortSteps(Adaptive):
  """Further options of the adaptive Langevin samplers."""

  short_step_share: float | None = Field(
    None,
    ge=0,
    lt=1,
    description='default: 0.2 in narrow regions; 0 with settings: paper',
  )

  passed: ClassVar[tuple] = (*Adaptive.passed, 'short_step_share')


class GradientAdaptive(Adaptive, Structured):
  """Further options of the gradient-adapted samplers."""

  criterion: Literal['expected_squared_jump_distance', 'l2hmc'] | None = Field(
    None, description='settings: paper only; None: the speed measure'
  )
  learning_rate: float | None = Field(
    None, gt=0, description="settings: paper only; of the paper's optimizer"
  )

  # Wanted acceptance of a criterion that is named.
  default_accept_prob: ClassVar[float] = 0.55
  # Parameters that have a meaning only with `settings: paper`.
  of_paper: ClassVar[tuple] = ('criterion', 'learning_rate')

  def arguments(self, target: Target, options: BuildOptions) -> dict:
    """Returns the keyword arguments of the builder."""
    is_paper = self.settings == 'paper'
    self.check_of_paper()
    arguments = self.given(*self.passed)
    structure = self.structure(target, is_paper)
    if structure is not None:
      arguments['preconditioner'] = structure
    if self.criterion is not None:
      build = getattr(tfpa.criteria, self.criterion)
      arguments['criterion'] = build(
        self.target_accept_prob or self.default_accept_prob
      )
    constants = [name for name in self.of_paper if name != 'criterion']
    return dict(
      arguments,
      **self.given(*constants),
      target_log_prob_fn=target.target_log_prob_fn,
      num_adaptation_steps=options.num_adaptation_steps,
    )

  def check_of_paper(self) -> None:
    """Refuses the paper's constants where they would not be used."""
    for name in self.of_paper:
      if getattr(self, name) is not None and self.settings != 'paper':
        raise ValueError(
          f'{name}: {getattr(self, name)!r} was given, but it belongs to '
          "the paper's settings; write settings: paper, or leave it out."
        )

  def trace_fn(self, options: BuildOptions):
    has_diagonal = self.preconditioner in ('cholesky', 'diagonal')
    return diagonal_trace if options.trace_diagonal and has_diagonal else None


def diagonal_trace(state, kernel_results):
  """Returns the diagonal of the learned factor, [event_size]."""
  del state
  params = find_field(kernel_results, 'preconditioner_params')
  if params.shape.rank == 2:
    params = tf.linalg.diag_part(params)
  return {'factor_diagonal': params}


class Gadmala(ShortSteps, GradientAdaptive):
  """Gradient-adapted MALA, with either gradient."""

  exact_gradient: ClassVar[bool]

  def default_label(self):
    return 'gadMALAe' if self.exact_gradient else 'gadMALAf'

  def build(self, target, options):
    is_paper = self.settings == 'paper'
    builder = (
      tfpa.papers.gadmala if is_paper else tfpa.gradient_adaptive_langevin
    )
    kernel = builder(
      exact_gradient=self.exact_gradient, **self.arguments(target, options)
    )
    return self.to_method(kernel, self.trace_fn(options))


@METHODS.register('gadmala_fast')
class GadmalaFast(Gadmala):
  """Gradient-adapted MALA, gradient at the proposal held constant."""

  exact_gradient: ClassVar[bool] = False


@METHODS.register('gadmala_exact')
class GadmalaExact(Gadmala):
  """Gradient-adapted MALA, with one Hessian-vector product a step."""

  exact_gradient: ClassVar[bool] = True


@METHODS.register('gadrwm')
class Gadrwm(GradientAdaptive):
  """Gradient-adapted random walk Metropolis."""

  default_accept_prob: ClassVar[float] = 0.25

  def default_label(self):
    return 'gadRWM'

  def build(self, target, options):
    builder = tfpa.gradient_adaptive_random_walk
    if self.settings == 'paper':
      builder = tfpa.papers.gadrwm
    kernel = builder(**self.arguments(target, options))
    return self.to_method(kernel, self.trace_fn(options))


@METHODS.register('am')
class AdaptiveMetropolis(Adaptive):
  """Adaptive Metropolis: the covariance of the chain's own past."""

  takes_stochastic: ClassVar[bool] = True

  def default_label(self):
    return 'AM'

  def build(self, target, options):
    check_dense('cholesky', target)
    is_paper = self.settings == 'paper'
    builder = tfpa.papers if is_paper else tfpa
    kernel = builder.adaptive_metropolis(
      target_log_prob_fn=target.target_log_prob_fn,
      num_adaptation_steps=options.num_adaptation_steps,
      target_is_stochastic=target.is_stochastic,
      **self.given('target_accept_prob'),
    )
    trace_fn = diagonal_trace if options.trace_diagonal else None
    return self.to_method(kernel, trace_fn)


@METHODS.register('entropy_adaptive_hmc')
class EntropyAdaptiveHmc(GradientAdaptive):
  """HMC adapted by the entropy of its proposals, or by another criterion."""

  num_leapfrog_steps: NumLeapfrogSteps
  hessian_product: Literal['autodiff', 'finite_difference'] = 'autodiff'
  randomize_num_steps: bool = False
  entropy_weight_rate: float | None = Field(
    None, gt=0, description='settings: paper only; of beta and of gamma'
  )
  penalty_threshold: float | None = Field(
    None, gt=0, lt=1, description='settings: paper only; delta'
  )

  default_accept_prob: ClassVar[float] = 0.67
  of_paper: ClassVar[tuple] = (
    *GradientAdaptive.of_paper,
    'entropy_weight_rate',
    'penalty_threshold',
  )
  # The papers' names of what is maximized.
  short_names: ClassVar[dict] = {
    None: 'GSM',
    'expected_squared_jump_distance': 'ESJD',
    'l2hmc': 'L2HMC',
  }

  def default_label(self):
    paper = ', paper' if self.settings == 'paper' else ''
    return (
      f'{self.short_names[self.criterion]} HMC-{self.num_leapfrog_steps}'
      f'{self.structure_label()}{paper}'
    )

  def build(self, target, options):
    most = self.num_leapfrog_steps
    builder = tfpa.entropy_adaptive_hamiltonian
    if self.settings == 'paper':
      builder = tfpa.papers.entropy_hmc
    kernel = builder(
      num_leapfrog_steps=(1, most) if self.randomize_num_steps else most,
      **self.given('hessian_product'),
      **self.arguments(target, options),
    )
    return self.to_method(kernel, self.trace_fn(options))

  def check_of_paper(self):
    """Refuses, as well, constants of the criterion that is replaced."""
    super().check_of_paper()
    for name in ('entropy_weight_rate', 'penalty_threshold'):
      if getattr(self, name) is not None and self.criterion is not None:
        raise ValueError(
          f"{name}: it belongs to the paper's own criterion; leave out either "
          f'{name} or the criterion.'
        )


@METHODS.register('transport_adaptive_hmc')
class TransportAdaptiveHmc(Adaptive):
  """HMC behind RealNVP, whose weights are adapted by the entropy.

  Hirt, Titsias and Dellaportas (2021), section 4.5 and Appendix C.
  """

  settings: Literal['default'] = 'default'
  num_leapfrog_steps: NumLeapfrogSteps
  num_pairs: int = Field(1, ge=1)
  learning_rate: float = Field(1e-3, gt=0)

  def default_label(self):
    return f'RealNVP HMC-{self.num_leapfrog_steps}'

  def build(self, target, options):
    return self.build_with(
      tfpa.transport_adaptive_hamiltonian,
      target,
      options,
      num_leapfrog_steps=self.num_leapfrog_steps,
      transport=tfpa.transports.real_nvp(num_pairs=self.num_pairs),
      optimizer=tfpa.optimizers.adam(self.learning_rate),
    )


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
    return self.build_with(
      tfpa.transport_adaptive_hamiltonian,
      target,
      options,
      num_leapfrog_steps=(1, self.num_leapfrog_steps),
      transport=tfpa.transports.conditional_gaussian(
        num_drivers=self.num_drivers, structure=self.structure
      ),
    )


@METHODS.register('fisher_divergence_hmc')
class FisherDivergenceHmc(Adaptive, Structured):
  """HMC with the least Fisher divergence, of any structure."""

  settings: Literal['default'] = 'default'
  num_leapfrog_steps: NumLeapfrogSteps = 5
  randomize_num_steps: bool = True

  def default_label(self):
    return (
      f'Fisher-divergence HMC-{self.num_leapfrog_steps}{self.structure_label()}'
    )

  def build(self, target, options):
    most = self.num_leapfrog_steps
    return self.build_with(
      tfpa.fisher_divergence_hamiltonian,
      target,
      options,
      num_leapfrog_steps=(1, most) if self.randomize_num_steps else most,
      preconditioner=self.structure(target, is_paper=False),
    )


class ClosedForm(ShortSteps):
  """MALA whose factor is a closed form of past states and gradients."""

  # The builder, the structure of its factor, and what its paper sets.
  builder: ClassVar[Callable]
  structure: ClassVar[Callable] = staticmethod(tfpa.preconditioners.cholesky)
  paper_constants: ClassVar[dict] = {}

  def build(self, target, options):
    cls = type(self)
    if cls.structure is tfpa.preconditioners.cholesky:
      check_dense('cholesky', target)
    constants = {}
    if self.settings == 'paper':
      constants = dict(
        preconditioner=cls.structure(init_scale=lambda size: 0.1 * size**-0.5),
        short_step_share=0.0,
        **cls.paper_constants,
      )
    return self.build_with(cls.builder, target, options, **constants)


@METHODS.register('fisher_mala')
class FisherMala(ClosedForm):
  """FisherMALA: the inverse of the gradient increments' mean square."""

  builder = staticmethod(baselines.fisher_adaptive_langevin)
  paper_constants: ClassVar[dict] = {'has_paper_constants': True}

  def default_label(self):
    return 'FisherMALA'


@METHODS.register('fisher_divergence_mala')
class FisherDivergenceMala(ClosedForm):
  """MALA with the least Fisher divergence: Cov x # (Cov grad)^-1."""

  builder = staticmethod(tfpa.fisher_divergence_langevin)

  def default_label(self):
    return 'Fisher-divergence MALA'


@METHODS.register('variance_ratio_mala')
class VarianceRatioMala(ClosedForm):
  """MALA with nutpie's diagonal: sqrt(Var x / Var grad)."""

  builder = staticmethod(baselines.variance_ratio_langevin)
  structure = staticmethod(tfpa.preconditioners.diagonal)

  def default_label(self):
    return 'variance-ratio MALA'
