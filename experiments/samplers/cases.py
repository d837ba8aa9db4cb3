"""All builders: how each is called, a small problem, and what it can do.

One entry in `CASES` adds a builder to the contract tests, restarts, and the
lowering for a GPU. Its field `calibration` adds the builder to the calibration,
and `few_chains` to the tests of few chains.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import Literal
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import baselines

_NUM_CHAINS = 3
_SIZE = 4


class Problem(NamedTuple):
  """Arguments of a builder besides its options.

  Attributes:
    function: Log density, or log likelihood if there is a prior.
    start: Function without arguments. It returns the first state of 3 chains.
    kind: What the builder takes: a 'density', the likelihood of a 'field' with
      a prior, or that of a 'hierarchy', whose prior depends on parameters.
    arguments: Function of the number of coordinates and the NumPy dtype. It
      returns the arguments between the function and the number of steps.
  """

  function: Callable[..., tf.Tensor]
  start: Callable[[], Any]
  kind: Literal['density', 'field', 'hierarchy'] = 'density'
  arguments: Callable[[int, Any], Mapping[str, Any]] = lambda size, dtype: {}


class Calibration(NamedTuple):
  """How a case takes part in the calibration.

  Attributes:
    name: Name in the records.
    model: Name of the model: 'line', 'field', 'hierarchy' or 'effects'.
    thinning: Steps between two states of a window.
    num_adaptation_steps: Steps of the pilot run.
    options: Options that are added to those of the case or replace them.
  """

  name: str
  model: str = 'line'
  thinning: int = 3
  num_adaptation_steps: int = 500
  options: Mapping[str, Any] = {}


def _banana(x):
  first, second, rest = tf.split(x, [1, 1, x.shape[-1] - 2], axis=-1)
  second += 0.4 * (first**2 - 1.0) - 0.3 * first
  scales = tf.constant([1.0, 0.5, 2.0, 0.3], x.dtype)
  z = tf.concat([first, second, rest], axis=-1) / scales
  return -0.5 * tf.reduce_sum(z**2, axis=-1)


def _estimate(x, seed):
  noise = tf.random.stateless_normal(tf.shape(x)[:-1], seed, dtype=x.dtype)
  return _banana(x) + 0.1 * noise


def _counts(x):
  y = tf.constant([0.0, 2.0, 1.0, 4.0], x.dtype)
  return tf.reduce_sum(y * x - tf.exp(x), axis=-1)


def _start(dtype=np.float64, size=_SIZE):
  normals = np.random.default_rng(0).normal(size=(_NUM_CHAINS, size))
  return tf.constant(normals.astype(dtype))


def _distances(size):
  return np.abs(np.subtract.outer(np.arange(size), np.arange(size)))


def _spectral(size, dtype):
  matrix = np.exp(-0.5 * _distances(size)) + 0.1 * np.eye(size)
  prior = tfpa.gaussian_priors.spectral(
    covariance=matrix.astype(dtype), mean=0.3
  )
  return dict(prior=prior)


def _markov(size, dtype):
  bands = [np.full(size, 2.0, dtype), np.full(size - 1, -0.9, dtype)]
  return dict(prior=tfpa.gaussian_priors.markov(bands, mean=0.3))


def _hierarchy(size, dtype):
  log_normal = tfp.distributions.LogNormal

  def prior_fn(scale, length):
    shape = tf.exp(-_distances(size) / length[..., tf.newaxis, tf.newaxis])
    matrix = scale[..., tf.newaxis, tf.newaxis] ** 2 * shape
    return tfpa.gaussian_priors.spectral(matrix + 0.1 * np.eye(size), mean=0.3)

  hyperprior = tfp.distributions.JointDistributionNamed(
    {
      'scale': log_normal(dtype(0.0), dtype(0.5)),
      'length': log_normal(dtype(0.5), dtype(0.3)),
    }
  )
  return dict(prior_fn=prior_fn, hyperprior=hyperprior)


def _start_of_hierarchy():
  ones = tf.ones([_NUM_CHAINS], tf.float64)
  return _start(), {'scale': ones, 'length': 1.5 * ones}


_DENSITY = Problem(_banana, _start)
_ESTIMATES = Problem(_estimate, _start)
_FIELD = Problem(_counts, _start, 'field', _spectral)
_PATH = Problem(_counts, _start, 'field', _markov)
_HIERARCHY = Problem(_counts, _start_of_hierarchy, 'hierarchy', _hierarchy)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
  """A builder with options. Cases are compared by identity, to be cache keys.

  Attributes:
    name: Name in the ids of tests.
    builder: Public function of `tfpa`, or one of the baselines.
    label: The difference to the builder's defaults, in words.
    problem: Small problem for which the builder is called.
    options: Options of the builder besides its defaults.
    group: Contract tests run 'library' and 'baseline' cases. A 'variant'
      differs from a case of the library by one option and runs at night. Cases
      of the 'calibration' run in no contract test.
    learns: What adapts: a 'matrix', a 'map', a 'surrogate', a 'step' size,
      samplers of 'replicas' or 'nothing'.
    uses_gradient: Whether a step needs the gradient of the function.
    structure: Preconditioner that adapts; frozen, a dense one may replace it.
    scale: A good step, as a multiple of the target's factor or a step size.
    num_traces: Most traces of the function by one compiled chain.
    num_learning_steps: Adapting steps with 20 chains that learn a Gaussian of 5
      dimensions.
    accept_prob: Mean acceptance at which the builder aims.
    few_chains: Options for the tests of few chains. `None` if the tests have
      another frozen form, or none.
    calibration: How the case is calibrated, or `None`.
  """

  name: str
  builder: Callable[..., tfp.mcmc.TransitionKernel]
  label: str = 'default'
  problem: Problem = _DENSITY
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  group: Literal['library', 'baseline', 'variant', 'calibration'] = 'library'
  learns: str = 'matrix'
  uses_gradient: bool = True
  structure: str = 'cholesky'
  scale: float = 1.0
  num_traces: int = 2
  num_learning_steps: int = 2000
  accept_prob: float = 0.25
  few_chains: Mapping[str, Any] | None = None
  calibration: Calibration | None = None

  def build(
    self,
    function: Callable[..., tf.Tensor] | None = None,
    num_adaptation_steps: int = 100,
    size: int = _SIZE,
    dtype: Any = np.float64,
    **options,
  ) -> tfp.mcmc.TransitionKernel:
    """Returns the kernel.

    Args:
      function: Log density or log likelihood; by default, the problem's.
      size: Number of coordinates of the prior, if there is a prior.
      **options: Arguments of the builder, which replace those of the case.
    """
    arguments = {**self.options, **options}
    if not {'prior', 'prior_fn'} & arguments.keys():
      arguments |= self.problem.arguments(size, dtype)
    if self.learns != 'nothing':
      arguments['num_adaptation_steps'] = num_adaptation_steps
    return self.builder(
      self.problem.function if function is None else function, **arguments
    )

  @property
  def proposal(self) -> str:
    """Kind of the proposal, which cases with different adaptations share."""
    kinds = ('langevin', 'hamiltonian')
    return next((kind for kind in kinds if kind in self.name), 'random_walk')


def named(name: str) -> Case:
  """Returns the case with a name."""
  return next(case for case in CASES if case.name == name)


def _latent(
  name, builder, scale, delta, calibrated=None, label='default', **fields
):
  """Returns the case of a sampler that learns only its step size.

  Args:
    delta: Step size for the tests of few chains. With `None`, there are none.
    calibrated: Name in the calibration, or `None`.
  """
  calibration = calibrated and Calibration(calibrated, 'field')
  shared = dict(
    problem=_FIELD,
    learns='step',
    scale=scale,
    few_chains=delta and dict(delta=delta),
    accept_prob=0.55,
    calibration=calibration,
  )
  return Case(name, builder, label, **{**shared, **fields})


def _calibrated(builder, label, calibration, problem=_DENSITY, **options):
  """Returns a case that no contract test runs."""
  name = f'{builder.__name__}, {label}'
  return Case(
    *(name, builder, label, problem, options, 'calibration'),
    calibration=calibration,
  )


_SHORT = dict(short_step_share=0.5)
_LENGTH = dict(num_leapfrog_steps=3)
_HUNDRED_POINTS = dict(
  surrogate=tfpa.surrogates.kernel_exponential_family_finite(100)
)


_LINEAR = (
  Case(
    'langevin',
    tfpa.gradient_adaptive_langevin,
    accept_prob=0.55,
    calibration=Calibration('Langevin'),
  ),
  Case(
    'langevin_exact',
    tfpa.gradient_adaptive_langevin,
    'exact gradient',
    options=dict(exact_gradient=True),
    group='variant',
    num_traces=3,
    accept_prob=0.55,
    few_chains=_SHORT,
    calibration=Calibration('Langevin, exact gradient'),
  ),
  Case(
    'hamiltonian',
    tfpa.entropy_adaptive_hamiltonian,
    options=_LENGTH,
    scale=0.6,
    num_traces=4,
    accept_prob=0.67,
    calibration=Calibration(
      'Hamiltonian', thinning=2, options=dict(num_leapfrog_steps=4)
    ),
  ),
  Case(
    'random_walk',
    tfpa.gradient_adaptive_random_walk,
    scale=0.8,
    num_traces=3,
    num_learning_steps=10000,
    few_chains={},
    calibration=Calibration('random walk, by gradient', thinning=5),
  ),
  Case(
    'adaptive_metropolis',
    tfpa.adaptive_metropolis,
    group='variant',
    uses_gradient=False,
    scale=0.8,
    num_learning_steps=40000,
    few_chains={},
    calibration=Calibration('adaptive Metropolis', thinning=5),
  ),
  Case(
    'langevin_divergence',
    tfpa.fisher_divergence_langevin,
    group='variant',
    accept_prob=0.574,
    calibration=Calibration('Langevin, Fisher divergence'),
  ),
  # This case learns its number of leapfrog steps.
  Case(
    'hamiltonian_divergence',
    tfpa.fisher_divergence_hamiltonian,
    scale=0.6,
    accept_prob=0.8,
    calibration=Calibration('Hamiltonian, Fisher divergence', thinning=2),
  ),
  Case(
    'kept_hamiltonian_divergence',
    tfpa.fisher_divergence_hamiltonian,
    'kept momenta',
    options=dict(keep_momentum=True),
    group='variant',
    scale=0.6,
    accept_prob=0.8,
  ),
)

_LATENT = (
  _latent('marginal', tfpa.marginal_gradient, 0.8, 2.5, 'mGrad'),
  _latent('auxiliary_z', tfpa.auxiliary_gradient, 0.3, 1.0, 'aGrad-z'),
  _latent(
    *('auxiliary_u', tfpa.auxiliary_gradient, 0.4, 1.5, 'aGrad-u', 'u'),
    options=dict(auxiliary='u'),
    group='variant',
  ),
  _latent(
    *('pcn', tfpa.crank_nicolson, 1.5, 2.0, 'pCN'),
    uses_gradient=False,
    accept_prob=0.25,
  ),
  _latent(
    *('pcnl', tfpa.crank_nicolson, 0.3, 1.0, 'pCNL', 'langevin'),
    options=dict(langevin=True),
  ),
  _latent(
    *('cnl', tfpa.crank_nicolson, 0.3, 1.0, None, 'plain noise'),
    options=dict(langevin=True, preconditioned=False),
    group='variant',
  ),
  _latent(
    *('pmala', baselines.prior_preconditioned_langevin, 0.3, 0.8),
    group='baseline',
  ),
  _latent('second_order', tfpa.second_order_gradient, 2.0, None, problem=_PATH),
  Case(
    'elliptical_slice',
    tfpa.elliptical_slice,
    problem=_FIELD,
    learns='nothing',
    uses_gradient=False,
    calibration=Calibration('elliptical slice', 'field'),
  ),
  _latent(
    'auxiliary_langevin', tfpa.auxiliary_langevin, 0.3, 1.5, problem=_DENSITY
  ),
  # The kernel makes two reversible moves in turn, and its reverse uses the
  # other order. States of a window are nearly independent, so the order has no
  # effect.
  _latent(
    *('joint', tfpa.latent_gaussian_hyperparameters, 1.0, None),
    problem=_HIERARCHY,
    calibration=Calibration('hyperparameters, joint', 'hierarchy', 20),
  ),
  _latent(
    *('gibbs', tfpa.latent_gaussian_hyperparameters, 1.0, None),
    label='marginal',
    problem=_HIERARCHY,
    options=dict(joint=False, latent='marginal_gradient'),
    calibration=Calibration(
      *('hyperparameters, Gibbs', 'hierarchy', 20),
      options=dict(latent='auxiliary_gradient'),
    ),
  ),
)

_OTHERS = (
  Case(
    'transported',
    tfpa.transport_adaptive_hamiltonian,
    options=dict(
      num_leapfrog_steps=3,
      transport=tfpa.transports.real_nvp(hidden_sizes=(5,)),
    ),
    learns='map',
    num_traces=4,
    calibration=Calibration(
      'transport Hamiltonian',
      thinning=2,
      num_adaptation_steps=100,
      options=dict(transport=None),
    ),
  ),
  Case(
    'kernel_hamiltonian',
    tfpa.kernel_hamiltonian,
    learns='surrogate',
    uses_gradient=False,
    calibration=Calibration(
      'kernel Hamiltonian', num_adaptation_steps=200, options=_HUNDRED_POINTS
    ),
  ),
  Case(
    'kernel_adaptive',
    baselines.kernel_adaptive_metropolis,
    options=dict(surrogate=baselines.kernel_subsample(num_points=20)),
    group='baseline',
    learns='surrogate',
    uses_gradient=False,
    calibration=Calibration(
      'kernel adaptive Metropolis',
      thinning=5,
      options=dict(surrogate=baselines.kernel_subsample(100)),
    ),
  ),
  Case(
    'replica_exchange',
    tfpa.replica_exchange,
    options=dict(num_replicas=3),
    learns='replicas',
  ),
)

# Further cases, only for the calibration.
_CALIBRATED = (
  _calibrated(
    *(tfpa.adaptive_metropolis, 'estimates'),
    Calibration('random walk on estimates', 'effects', 5),
    _ESTIMATES,
    target_is_stochastic=True,
  ),
  _calibrated(
    *(tfpa.entropy_adaptive_hamiltonian, 'random number of steps'),
    Calibration(
      'Hamiltonian, random length',
      thinning=2,
      options=dict(num_leapfrog_steps=(1, 4)),
    ),
    num_leapfrog_steps=(1, 3),
  ),
  _calibrated(
    *(tfpa.fisher_divergence_hamiltonian, 'diagonal'),
    Calibration('Hamiltonian, Fisher divergence, diagonal', thinning=2),
    preconditioner=tfpa.preconditioners.diagonal(),
  ),
  _calibrated(
    *(tfpa.kernel_hamiltonian, 'estimates'),
    # The builder's default number of leapfrog steps.
    Calibration(
      *('kernel Hamiltonian on estimates', 'effects', 5, 200),
      dict(num_leapfrog_steps=None, **_HUNDRED_POINTS),
    ),
    _ESTIMATES,
    target_is_stochastic=True,
    num_leapfrog_steps=(1, 4),
  ),
  _calibrated(
    *(tfpa.transport_adaptive_hamiltonian, 'conditional Gaussian'),
    # One map is used for all data sets, and fits none of them.
    Calibration(
      'transport Hamiltonian, conditional Gaussian',
      thinning=2,
      num_adaptation_steps=100,
      options=dict(transport=tfpa.transports.conditional_gaussian()),
    ),
    num_leapfrog_steps=(1, 3),
    transport=tfpa.transports.conditional_gaussian(structure='tridiagonal'),
  ),
)

CASES = (*_LINEAR, *_LATENT, *_OTHERS, *_CALIBRATED)
