"""What the contract tests run over: every kernel builder and every part.

A new kernel joins with one line in `KERNELS`. A new part joins by its name in
`__all__` of its folder; one line in `ARGUMENTS` if its factory needs any.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from tests.contracts import pairs
from tfp_adaptive.core import tfp_private

__all__ = [
  'BASELINES',
  'CRITERIA',
  'KERNELS',
  'KernelSpec',
  'OPTIMIZERS',
  'PRECONDITIONERS',
  'REPRESENTATIVES',
  'VARIANTS',
  'criterion',
  'each_kernel',
  'each_kernel_and_variant',
  'fixed',
  'frozen_kernel',
  'of_one_length',
  'optimizer',
  'pairs_of_kernels',
  'preconditioner',
  'steps_of_one_size',
  'tiered',
]


class KernelSpec(NamedTuple):
  """A kernel builder as the contract tests see it."""

  name: str
  # (target_log_prob_fn, num_adaptation_steps, **options) -> kernel.
  build: Callable
  # C = scale * (scale factor of the target) moves well in 5 dimensions.
  scale: float
  # Traces of the target by one compiled chain: start, step, adapting branch.
  num_target_traces: int
  # Adapting steps that learn a Gaussian of 5 dimensions with 20 chains.
  num_learning_steps: int
  # Structure that adapts; where nothing adapts a dense one will do.
  structure: str = 'cholesky'

  @property
  def proposal(self):
    """The kind of proposal, which all that differ by what teaches share."""
    kinds = ('langevin', 'hamiltonian')
    return next((kind for kind in kinds if kind in self.name), 'random_walk')

  @property
  def has_short_steps(self):
    """Whether some steps are short, and adaptations leave them alone."""
    return self.proposal == 'langevin'


_exact = functools.partial(tfpa.gradient_adaptive_langevin, exact_gradient=True)


_local = functools.partial(tfpa.fisher_divergence_hamiltonian, local_steps=True)
_kept = functools.partial(
  tfpa.fisher_divergence_hamiltonian, keep_momentum=True
)


@functools.wraps(tfpa.entropy_adaptive_hamiltonian)
def _hamiltonian(target_log_prob_fn, num_adaptation_steps, **options):
  return tfpa.entropy_adaptive_hamiltonian(
    target_log_prob_fn, num_adaptation_steps, num_leapfrog_steps=3, **options
  )


KERNELS = [
  KernelSpec('langevin', tfpa.gradient_adaptive_langevin, 1.0, 2, 2000),
  KernelSpec('langevin_exact', _exact, 1.0, 3, 2000),
  KernelSpec('hamiltonian', _hamiltonian, 0.6, 4, 2000),
  KernelSpec('random_walk', tfpa.gradient_adaptive_random_walk, 0.8, 3, 10000),
  KernelSpec('adaptive_metropolis', tfpa.adaptive_metropolis, 0.8, 2, 40000),
  KernelSpec(
    'langevin_fisher', baselines.fisher_adaptive_langevin, 1.0, 2, 2000
  ),
  KernelSpec(
    'langevin_divergence', tfpa.fisher_divergence_langevin, 1.0, 2, 2000
  ),
  # Learns its number of leapfrog steps.
  KernelSpec(
    'hamiltonian_divergence', tfpa.fisher_divergence_hamiltonian, 0.6, 2, 2000
  ),
  KernelSpec('local_hamiltonian_divergence', _local, 0.6, 2, 2000),
  KernelSpec('kept_hamiltonian_divergence', _kept, 0.6, 2, 2000),
  KernelSpec(
    'langevin_ratio',
    baselines.variance_ratio_langevin,
    1.0,
    2,
    2000,
    'diagonal',
  ),
]

# One or two of each family stand for it in the quick tier, in every contract
# test: a dense factor, another structure, a prior, a score, a map.
REPRESENTATIVES = (
  'langevin',
  'hamiltonian',
  'hamiltonian_tridiagonal',
  'marginal',
  'kernel_hamiltonian',
  'transported',
)

# Samplers to compare with, which are none of the library's: by night.
BASELINES = (
  'kernel_adaptive',
  'langevin_fisher',
  'langevin_ratio',
  'pmala',
  'prior_langevin',
)

# One option, or only what teaches, away from a kernel that all contracts try in
# the full tier, with tests of their own for that: by night, but for the law.
VARIANTS = (
  'adaptive_metropolis',
  'kept_hamiltonian_divergence',
  'langevin_divergence',
  'langevin_exact',
  'local_hamiltonian_divergence',
)

CRITERIA = tuple(tfpa.criteria.__all__)
OPTIMIZERS = tuple(tfpa.optimizers.__all__)
PRECONDITIONERS = tuple(tfpa.preconditioners.__all__)

# Arguments of factories that cannot be called without.
ARGUMENTS = {
  'arrow': dict(num_globals=2),
  'banded': dict(num_superdiagonals=2),
  'low_rank': dict(rank=2),
  'per_part': dict(
    preconditioners=(
      tfpa.preconditioners.diagonal(),
      tfpa.preconditioners.tridiagonal(),
    )
  ),
  'generalized_speed_measure': dict(target_accept_prob=0.5),
  'cross_entropy': dict(target_accept_prob=0.5),
  'rmsprop': dict(learning_rate=0.01),
  'adam': dict(learning_rate=0.01),
}


def steps_of_one_size(spec):
  """Returns the options with which all steps of a kernel teach."""
  return {'short_step_share': 0.0} if spec.has_short_steps else {}


def of_one_length(kernel, results):
  """Returns results with which a learned range holds one number, 3, alone."""
  if getattr(kernel.proposal, 'max_num_leapfrog_steps', None) is None:
    return results
  # Steps that keep momenta make half as many as those that are learned.
  is_kept = hasattr(kernel.proposal, 'keeps_momentum')
  numbers = tf.constant([3, 3, 12] if is_kept else [3, 3])
  return tfp_private.replace_innermost(results, num_leapfrog_steps=numbers)


def preconditioner(name, **options):
  """Returns the public preconditioner of that name."""
  return _part(tfpa.preconditioners, name, options)


def criterion(name):
  """Returns the public criterion of that name."""
  return _part(tfpa.criteria, name, {})


def optimizer(name):
  """Returns the public optimizer of that name."""
  return _part(tfpa.optimizers, name, {})


def optimizer_of(criterion_name):
  """Returns the optimizer for a criterion; `None`: the builder's own."""
  return None if criterion(criterion_name).holds_scale else optimizer('adam')


def fixed(factor, init_scale=1.0, structure='cholesky'):
  """Returns a preconditioner that starts at `factor`, [d, d]."""
  if structure == 'diagonal':
    factor = tf.linalg.diag_part(factor)
  return preconditioner(structure, init_scale=init_scale)._replace(
    init=lambda event_size, dtype, scale: tf.convert_to_tensor(
      factor, dtype=dtype
    )
  )


def frozen_kernel(spec, target_log_prob_fn, factor):
  """Returns a kernel that never adapts, at a dense scale factor."""
  return spec.build(target_log_prob_fn, 0, preconditioner=fixed(factor))


def tiered(samplers, by_night=BASELINES + VARIANTS):
  """Returns one param for each sampler; it is quick if it stands for others.

  Args:
    samplers: Names, or tuples that begin with a sampler: an object with a
      `name`, or a name. All of a tuple stands in the id.
    by_night: Names of the samplers that are nightly.
  """
  return [_tiered(s if type(s) is tuple else (s,), by_night) for s in samplers]


def pairs_of_kernels(*axes, met):
  """Returns `tiered` rows of `pairs.pairs` of kernels and other axes.

  Kernels of the day meet all by themselves.

  Args:
    *axes: Iterables of values, beside the kernels.
    met: As of `pairs.pairs`.
  """
  nightly = BASELINES + VARIANTS
  by_day = [spec for spec in KERNELS if spec.name not in nightly]
  by_night = [spec for spec in KERNELS if spec.name in nightly]
  return tiered(
    pairs.pairs(by_day, *axes, met=met) + pairs.pairs(by_night, *axes, met=met)
  )


def each_kernel(test):
  """Parametrizes `test` by `spec`, over every kernel."""
  return pytest.mark.parametrize('spec', tiered(KERNELS))(test)


def each_kernel_and_variant(test):
  """Parametrizes `test` like `each_kernel`, with variants in the full tier."""
  return pytest.mark.parametrize('spec', tiered(KERNELS, BASELINES))(test)


def _tiered(values, by_night):
  first, *others = (getattr(value, 'name', value) for value in values)
  marks = [] if first in REPRESENTATIVES else [pytest.mark.full]
  if first in by_night:
    marks = [pytest.mark.nightly]
  return pytest.param(
    *values, id='-'.join(map(str, [first, *others])), marks=marks
  )


def _part(module, name, options):
  arguments = dict(ARGUMENTS.get(name, {}), **options)
  return getattr(module, name)(**arguments)
