"""The cases as parameters of tests, and every part by its name.

A new part joins by its name in `__all__` of its folder; one line in `ARGUMENTS`
if its factory needs any.
"""

import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tfp_adaptive.core import tfp_private

_CASES = [case for case in cases.CASES if case.group != 'calibration']
# Samplers with a preconditioner, those with a Gaussian prior, and all that
# learn and take a state of any structure.
KERNELS = [case for case in _CASES if case.learns == 'matrix']
LATENT = [
  case
  for case in _CASES
  if case.problem.kind == 'field' and case.learns == 'step'
]
SAMPLERS = [
  case
  for case in _CASES
  if case.problem.kind != 'hierarchy'
  and case.learns not in ('nothing', 'replicas')
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
OTHERS = tuple(c.name for c in _CASES if c.name not in REPRESENTATIVES)
# One kernel for each proposal, which its relatives share.
PROPOSALS = [cases.named(n) for n in ('langevin', 'hamiltonian', 'random_walk')]

# Baselines and variants are nightly; the law of variants is tested by day.
BASELINES = tuple(case.name for case in _CASES if case.group == 'baseline')
_NIGHTLY = BASELINES + tuple(
  case.name for case in _CASES if case.group == 'variant'
)

CRITERIA = tuple(tfpa.criteria.__all__)
OPTIMIZERS = tuple(tfpa.optimizers.__all__)
PRECONDITIONERS = tuple(tfpa.preconditioners.__all__)
# Structures that an adaptation can move; a fit alone learns the others.
MOVED = tuple(name for name in PRECONDITIONERS if name != 'low_rank')

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


def steps_of_one_size(case):
  """Returns the options with which all steps of a kernel teach."""
  has_short_steps = case.proposal == 'langevin'
  return {'short_step_share': 0.0} if has_short_steps else {}


def of_one_length(kernel, results):
  """Returns results with which a learned range holds one number, 3, alone."""
  proposal = getattr(kernel, 'proposal', None)
  if getattr(proposal, 'max_num_leapfrog_steps', None) is None:
    return results
  # Steps that keep momenta make half as many as those that are learned.
  numbers = tf.constant([3, 3, 12] if proposal.keeps_momentum else [3, 3])
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


def frozen_kernel(case, target_log_prob_fn, factor):
  """Returns a kernel that never adapts, at a dense scale factor."""
  return case.build(target_log_prob_fn, 0, preconditioner=fixed(factor))


def tiered(samplers, nightly=_NIGHTLY):
  """Returns one param for each sampler; it is quick if it stands for others.

  Args:
    samplers: Names, or tuples that begin with a sampler: an object with a
      `name`, or a name. All values of a tuple stand in the id.
    nightly: Names of the samplers that are nightly.
  """
  return [_tiered(s if type(s) is tuple else (s,), nightly) for s in samplers]


def by_representatives(test):
  """Parametrizes `test` by `case`; samplers that stand for none are nightly."""
  return pytest.mark.parametrize('case', tiered(SAMPLERS, OTHERS))(test)


def each_kernel(test):
  """Parametrizes `test` by `case`, over every kernel with a preconditioner."""
  return pytest.mark.parametrize('case', tiered(KERNELS))(test)


def each_sampler(test):
  """Parametrizes `test` by `case`, over all that take one state of vectors."""
  return pytest.mark.parametrize('case', tiered(SAMPLERS))(test)


def _tiered(values, nightly):
  first, *others = (getattr(value, 'name', value) for value in values)
  marks = [] if first in REPRESENTATIVES else [pytest.mark.full]
  if first in nightly:
    marks = [pytest.mark.nightly]
  return pytest.param(
    *values, id='-'.join(map(str, [first, *others])), marks=marks
  )


def _part(module, name, options):
  arguments = dict(ARGUMENTS.get(name, {}), **options)
  return getattr(module, name)(**arguments)
