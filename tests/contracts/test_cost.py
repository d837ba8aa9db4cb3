"""The ledger's products with the factor are those of a step.

Calls of the target are counted in `test_kernel_objects`, those of a prior's
coordinates in `test_latent`.
"""

import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import cases
from experiments.samplers.baselines import square_root
from tests.contracts import registry
from tests.contracts import targets
from tfp_adaptive import interfaces

_NUM_CHAINS = 3
_EVENT_SIZE = 2
_PLAIN_SHAPES = {(_EVENT_SIZE, _EVENT_SIZE), (_NUM_CHAINS, _EVENT_SIZE)}


class _CountedFactor(tf.linalg.LinearOperator):
  """C that counts its products with vectors, forward and backward."""

  def __init__(self, inner, calls):
    super().__init__(inner.dtype, is_non_singular=True, is_square=True)
    self._inner, self._calls = inner, calls

  def _shape(self):
    return self._inner.shape

  def _shape_tensor(self):
    return self._inner.shape_tensor()

  def _matmul(self, x, adjoint=False, adjoint_arg=False):
    self._calls.append('product')
    return self._inner.matmul(x, adjoint=adjoint, adjoint_arg=adjoint_arg)

  def _solve(self, rhs, adjoint=False, adjoint_arg=False):
    self._calls.append('solve')
    return self._inner.solve(rhs, adjoint=adjoint, adjoint_arg=adjoint_arg)

  def _log_abs_determinant(self):
    return self._inner.log_abs_determinant()


def _counted(calls, structure='cholesky', as_square=False):
  """Returns a preconditioner with a counted factor."""
  part = registry.preconditioner(structure, init_scale=0.5)
  if as_square:
    part = square_root.as_square(part)
  operator = part.operator
  return part._replace(
    operator=lambda params: _CountedFactor(operator(params), calls)
  )


class _CountedTensorFlow:
  """TensorFlow whose products of all chains and a d x d matrix are counted."""

  def __init__(self, calls):
    self._calls = calls

  def __getattr__(self, name):
    return getattr(tf, name)

  def matmul(self, a, b, **options):
    if {tuple(a.shape), tuple(b.shape)} == _PLAIN_SHAPES:
      self._calls.append('plain')
    return tf.matmul(a, b, **options)


@pytest.mark.full
@pytest.mark.parametrize('adapting', [True, False])
@registry.each_kernel
def test_products_with_the_factor_are_those_of_the_ledger(
  case, adapting, monkeypatch
):
  calls = []
  kernel = case.build(
    targets.standard_normal,
    10 if adapting else 0,
    preconditioner=_counted(
      calls, case.structure, case.name == 'langevin_fisher'
    ),
    **registry.steps_of_one_size(case),
  )
  state = tf.ones([_NUM_CHAINS, _EVENT_SIZE], tf.float64)
  results = kernel.bootstrap_results(state)
  # The one place that multiplies without the operator.
  monkeypatch.setattr(square_root, 'tf', _CountedTensorFlow(calls))
  for seed in targets.seeds(3):
    results = registry.of_one_length(kernel, results)
    calls.clear()
    state, results = kernel.one_step(state, results, seed=seed)
    cost = tfpa.cost_per_step(kernel, adapting, results)
    expected = cost.matrix_product
    if case.name == 'hamiltonian' and adapting:
      # Two for each term of the series, of which the step drew others than
      # on average; Hessian products are one more than terms.
      drawn = int(results.criterion_state.penalty.num_log_det_terms)
      expected += 2 * (drawn + 1 - cost.hessian_vector)
    assert len(calls) == expected


@pytest.mark.parametrize('adapting', [True, False])
def test_wrappers_of_tfp_add_nothing(adapting):
  kernel = cases.named('langevin').build(targets.standard_normal, 10)
  results = kernel.bootstrap_results(tf.ones([2, 2], tf.float64))
  expected = tfpa.cost_per_step(kernel, adapting, results)
  assert isinstance(expected, interfaces.Cost)
  for wrapped in (
    tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, 5),
    tfp.mcmc.SimpleStepSizeAdaptation(kernel, 5),
    tfp.mcmc.TransformedTransitionKernel(kernel, tfp.bijectors.Identity()),
    kernel.copy(
      inner_kernel=tfp.mcmc.TransformedTransitionKernel(
        kernel.inner_kernel, tfp.bijectors.Identity()
      )
    ),
  ):
    outer = wrapped.bootstrap_results(tf.ones([2, 2], tf.float64))
    assert tfpa.cost_per_step(wrapped, adapting, outer) == expected


def test_kernels_that_state_no_cost_are_refused():
  hmc = tfp.mcmc.HamiltonianMonteCarlo(targets.standard_normal, 0.1, 2)
  for kernel in (hmc, tfp.mcmc.SimpleStepSizeAdaptation(hmc, 5)):
    with pytest.raises(ValueError, match='HamiltonianMonteCarlo does not'):
      tfpa.cost_per_step(kernel, adapting=False)
