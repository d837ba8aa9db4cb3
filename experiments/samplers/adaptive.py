"""The library's adaptive samplers, each built by its public builder.

References: Titsias and Dellaportas (2019), https://arxiv.org/abs/1911.01373;
Hirt, Titsias and Dellaportas (2021), https://arxiv.org/abs/2110.14625.
"""

import functools
from typing import ClassVar
from typing import Literal

import tensorflow as tf
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.samplers.base import check_dense
from experiments.samplers.base import costs
from experiments.samplers.base import find_field
from experiments.samplers.base import Method
from experiments.samplers.base import MethodParameters
from experiments.samplers.base import NumLeapfrogSteps
from experiments.samplers.base import Structured
from experiments.targets.registry import METHODS

# Learning rate of the network's weights.
_LEARNING_RATE = 1e-3
_NUM_LEAPFROG_STEPS = 5

Settings = Literal['default', 'paper']


def _adaptive(kernel, trace_fn=None) -> Method:
  return Method(kernel, **costs(kernel), trace_fn=trace_fn, is_adaptive=True)


class GradientAdaptive(Structured):
  """Options of the gradient-adapted samplers."""

  settings: Settings = 'default'
  learning_rate: float | None = Field(
    None,
    gt=0,
    description="settings: paper only; rate of the paper's optimizer",
  )

  # Parameters that have a meaning only with `settings: paper`.
  of_paper: ClassVar[tuple] = ('learning_rate',)

  def arguments(self, target, options) -> dict:
    """Returns the arguments of the builder."""
    is_paper = self.settings == 'paper'
    self.check_of_paper()
    arguments = self.given(*self.of_paper)
    structure = self.structure(target, is_paper)
    if structure is not None:
      arguments['preconditioner'] = structure
    return dict(
      arguments,
      target_log_prob_fn=target.target_log_prob_fn,
      num_adaptation_steps=options.num_adaptation_steps,
    )

  def check_of_paper(self) -> None:
    """Refuses the paper's constants if they would not be used."""
    for name in self.of_paper:
      if getattr(self, name) is not None and self.settings != 'paper':
        raise ValueError(
          f'{name}: {getattr(self, name)!r} was given, but it belongs to '
          f"the paper's settings. Write settings: paper, or leave {name} out."
        )

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


class Gadmala(GradientAdaptive):
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
    return _adaptive(kernel, self.trace_fn(options))


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

  target_accept_prob: float = Field(0.25, gt=0, lt=1)

  def default_label(self):
    return 'gadRWM'

  def build(self, target, options):
    builder = tfpa.gradient_adaptive_random_walk
    if self.settings == 'paper':
      builder = tfpa.papers.gadrwm
    kernel = builder(
      target_accept_prob=self.target_accept_prob,
      **self.arguments(target, options),
    )
    return _adaptive(kernel, self.trace_fn(options))


@METHODS.register('am')
class AdaptiveMetropolis(MethodParameters):
  """Adaptive Metropolis: the covariance of the chain's own past."""

  settings: Settings = 'default'
  preconditioner: Literal['cholesky', 'diagonal'] = Field(
    'cholesky', description="diagonal: as in the authors' code for one target"
  )

  takes_stochastic: ClassVar[bool] = True

  def default_label(self):
    return 'AM' if self.preconditioner == 'cholesky' else 'AM, diagonal'

  def build(self, target, options):
    check_dense(self.preconditioner, target)
    builder = tfpa.papers if self.settings == 'paper' else tfpa
    constants = {}
    if self.preconditioner == 'diagonal':
      # L = I and delta = 0.1 / sqrt(d), the authors' job for Neal's Gaussian.
      builder = tfpa
      constants = dict(
        preconditioner=tfpa.preconditioners.diagonal(
          init_scale=1.0, min_scale=1e-3
        ),
        step_size=(0.1 * target.event_size**-0.5) ** 0.5,
        shape_rate=1e-3,
      )
    kernel = builder.adaptive_metropolis(
      target.target_log_prob_fn,
      options.num_adaptation_steps,
      target_is_stochastic=target.is_stochastic,
      **constants,
    )
    return _adaptive(kernel, diagonal_trace if options.trace_diagonal else None)


@METHODS.register('entropy_adaptive_hmc')
class EntropyAdaptiveHmc(GradientAdaptive):
  """HMC adapted by the entropy of its proposals, or by another criterion."""

  num_leapfrog_steps: NumLeapfrogSteps
  criterion: Literal['expected_squared_jump_distance', 'l2hmc'] | None = Field(
    None, description='settings: paper only; None: the speed measure'
  )
  entropy_weight_rate: float | None = Field(
    None, gt=0, description='settings: paper only; rate of beta and of gamma'
  )
  penalty_threshold: float | None = Field(
    None, gt=0, lt=1, description='settings: paper only; delta'
  )
  clip_value: float | None = Field(
    None, gt=0, description='settings: paper only; bound of gradients'
  )

  of_speed_measure: ClassVar[tuple] = (
    'entropy_weight_rate',
    'penalty_threshold',
  )
  of_paper: ClassVar[tuple] = (
    'learning_rate',
    'clip_value',
    'criterion',
    *of_speed_measure,
  )
  # The paper wants this acceptance for every criterion.
  accept_prob: ClassVar[float] = 0.67
  # The papers' names of the criteria.
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
    arguments = self.arguments(target, options)
    if self.criterion is not None:
      criterion = getattr(tfpa.criteria, self.criterion)(self.accept_prob)
      arguments['criterion'] = criterion
    builder = tfpa.entropy_adaptive_hamiltonian
    if self.settings == 'paper':
      builder = tfpa.papers.entropy_hmc
    kernel = builder(num_leapfrog_steps=self.num_leapfrog_steps, **arguments)
    return _adaptive(kernel, self.trace_fn(options))

  def check_of_paper(self):
    """Also refuses constants of a criterion that is replaced."""
    super().check_of_paper()
    for name in self.of_speed_measure:
      if getattr(self, name) is not None and self.criterion is not None:
        raise ValueError(
          f"{name} belongs to the paper's own criterion. Leave out either "
          f'{name} or the criterion.'
        )


@METHODS.register('transport_adaptive_hmc')
class TransportAdaptiveHmc(MethodParameters):
  """HMC with RealNVP, whose weights are adapted by the entropy.

  Hirt, Titsias and Dellaportas (2021), section 4.5 and Appendix C.
  """

  num_leapfrog_steps: NumLeapfrogSteps

  def default_label(self):
    return f'RealNVP HMC-{self.num_leapfrog_steps}'

  def build(self, target, options):
    kernel = tfpa.transport_adaptive_hamiltonian(
      target.target_log_prob_fn,
      options.num_adaptation_steps,
      num_leapfrog_steps=self.num_leapfrog_steps,
      transport=tfpa.transports.real_nvp(num_pairs=1),
      optimizer=tfpa.optimizers.adam(_LEARNING_RATE),
    )
    return _adaptive(kernel)


@METHODS.register('conditional_gaussian_hmc')
class ConditionalGaussianHmc(MethodParameters):
  """HMC with a conditional Gaussian map, fitted to pairs; drivers are found."""

  structure: Literal['diagonal', 'tridiagonal'] = 'diagonal'

  def default_label(self):
    path = ', path' if self.structure == 'tridiagonal' else ''
    return f'conditional-Gaussian HMC-{_NUM_LEAPFROG_STEPS}{path}'

  def build(self, target, options):
    kernel = tfpa.transport_adaptive_hamiltonian(
      target.target_log_prob_fn,
      options.num_adaptation_steps,
      num_leapfrog_steps=(1, _NUM_LEAPFROG_STEPS),
      transport=tfpa.transports.conditional_gaussian(
        num_drivers=3, structure=self.structure
      ),
    )
    return _adaptive(kernel)


@METHODS.register('fisher_divergence_hmc')
class FisherDivergenceHmc(Structured):
  """HMC with the least Fisher divergence, for any structure."""

  def default_label(self):
    label = f'Fisher-divergence HMC-{_NUM_LEAPFROG_STEPS}'
    return f'{label}{self.structure_label()}'

  def build(self, target, options):
    kernel = tfpa.fisher_divergence_hamiltonian(
      target.target_log_prob_fn,
      options.num_adaptation_steps,
      num_leapfrog_steps=(1, _NUM_LEAPFROG_STEPS),
      preconditioner=self.structure(target, is_paper=False),
    )
    return _adaptive(kernel)


@METHODS.register('adaptive_replica_exchange')
class AdaptiveReplicaExchange(MethodParameters):
  """Replica exchange of Fisher-divergence HMC; the prior is the reference."""

  num_replicas: int = Field(10, ge=2)

  def default_label(self):
    return f'exchange of {self.num_replicas} replicas'

  def build(self, target, options):
    kernel = tfpa.replica_exchange(
      target.target_log_prob_fn,
      options.num_adaptation_steps,
      num_replicas=self.num_replicas,
      kernel_fn=functools.partial(
        tfpa.fisher_divergence_hamiltonian,
        num_leapfrog_steps=(1, _NUM_LEAPFROG_STEPS),
      ),
      reference=target.prior,
    )
    return Method(kernel, **costs(kernel))


@METHODS.register('fisher_divergence_mala')
class FisherDivergenceMala(MethodParameters):
  """MALA with the least Fisher divergence: Cov x # (Cov grad)^-1."""

  def default_label(self):
    return 'Fisher-divergence MALA'

  def build(self, target, options):
    check_dense('cholesky', target)
    kernel = tfpa.fisher_divergence_langevin(
      target.target_log_prob_fn, options.num_adaptation_steps
    )
    return _adaptive(kernel)


@METHODS.register('variance_ratio_mala')
class VarianceRatioMala(MethodParameters):
  """MALA with nutpie's diagonal: sqrt(Var x / Var grad)."""

  def default_label(self):
    return 'variance-ratio MALA'

  def build(self, target, options):
    kernel = tfpa.fisher_divergence_langevin(
      target.target_log_prob_fn,
      options.num_adaptation_steps,
      preconditioner=tfpa.preconditioners.diagonal(),
    )
    return _adaptive(kernel)
