"""Every kernel's step lowers for a GPU, on a machine that has none.

XLA's bridge turns a step into HLO for a platform by its name, and refuses an op
that has no kernel there. Nothing is compiled for a GPU and nothing runs on one.
"""

import re
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import registry
from tfp_adaptive.core import block_fits


def _adapting(builder, name, **options):
  """Returns a case of a part that no other case has."""
  return cases.Case(f'{builder.__name__}, {name}', builder, name, **options)


def _structured():
  """Yields a case of each adaptation for each structure."""
  for builder in (
    tfpa.adaptive_metropolis,
    tfpa.fisher_divergence_hamiltonian,
    tfpa.fisher_divergence_langevin,
    tfpa.entropy_adaptive_hamiltonian,
    tfpa.gradient_adaptive_langevin,
    tfpa.gradient_adaptive_random_walk,
  ):
    is_given = builder is tfpa.entropy_adaptive_hamiltonian
    fits = 'fisher_divergence' in builder.__name__
    names = registry.PRECONDITIONERS if fits else registry.MOVED
    for name in set(names) - {'cholesky', 'per_part'}:
      options = dict(preconditioner=registry.preconditioner(name))
      options |= dict(num_leapfrog_steps=3) if is_given else {}
      yield _adapting(builder, name, options=options)


def _parts():
  """Yields a case for each criterion, optimizer and paper, and other kinds."""
  langevin = tfpa.gradient_adaptive_langevin
  for name in registry.CRITERIA:
    parts = dict(criterion=registry.criterion(name))
    if registry.optimizer_of(name):
      parts['optimizer'] = registry.optimizer_of(name)
    yield _adapting(langevin, name, options=parts)
  for name in registry.OPTIMIZERS:
    parts = dict(optimizer=registry.optimizer(name))
    yield _adapting(langevin, name, options=parts)
  density = cases.named('langevin').problem
  two = density._replace(
    function=lambda x, y: density.function(tf.concat([x, y], axis=-1)),
    start=lambda: tf.split(density.start(), [1, 3], axis=-1),
  )
  parts = list(registry.ARGUMENTS['per_part']['preconditioners'])
  parts = dict(preconditioner=parts)
  yield _adapting(langevin, 'parts', problem=two, options=parts)
  for name in tfpa.papers.__all__:
    is_latent = name in ('mgrad', 'agrad', 'pcn', 'pcnl')
    yield _adapting(
      getattr(tfpa.papers, name),
      'paper',
      problem=cases.named('marginal').problem if is_latent else density,
      options=dict(num_leapfrog_steps=3) if name == 'entropy_hmc' else {},
    )
  yield _adapting(
    *(tfpa.entropy_adaptive_hamiltonian, 'finite difference'),
    options=dict(num_leapfrog_steps=3, hessian_product='finite_difference'),
  )
  yield _adapting(
    *(tfpa.latent_gaussian_hyperparameters, 'slice'),
    problem=cases.named('joint').problem,
    options=dict(joint=False, latent='elliptical_slice'),
  )
  yield _adapting(tfpa.auxiliary_langevin, 'z', options=dict(auxiliary='z'))


def _on_a_grid(size, dtype):
  kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(dtype(1.0), dtype(0.1))
  return tfpa.gaussian_priors.stationary(
    grid_shape=[size], kernel=kernel, torus_shape=[size], jitter=0.1
  )


# Name -> function of the number of coordinates and the NumPy dtype.
_PRIORS = {
  'stationary': _on_a_grid,
  'random walk': lambda size, dtype: tfpa.gaussian_priors.random_walk(
    dtype(0.5), size, dtype(1.0)
  ),
  'autoregression': lambda size, dtype: tfpa.gaussian_priors.autoregression(
    np.array([0.6, 0.2], dtype), dtype(0.8), size
  ),
  'block': lambda size, dtype: tfpa.gaussian_priors.block(
    tfpa.gaussian_priors.spectral(np.eye(size // 2, dtype=dtype)), 2
  ),
  'kronecker': lambda size, dtype: tfpa.gaussian_priors.kronecker(
    [np.eye(2, dtype=dtype), np.eye(size // 2, dtype=dtype)]
  ),
  'state space': lambda size, dtype: tfpa.gaussian_priors.state_space(
    *(np.eye(2, dtype=dtype) for _ in range(3)), size // 2
  ),
}


def _with_priors():
  field = cases.named('marginal').problem
  for name, prior in _PRIORS.items():
    problem = field._replace(
      arguments=lambda size, dtype, prior=prior: dict(prior=prior(size, dtype))
    )
    yield _adapting(tfpa.marginal_gradient, name, problem=problem)


def _behind_maps_and_surrogates():
  surrogates = tfpa.surrogates
  finite = surrogates.kernel_exponential_family_finite
  online, lite = (
    finite(40, 20, online=True),
    (surrogates.kernel_exponential_family_lite(40)),
  )
  for name, part in (
    ('lite', lite),
    ('finite, online', online),
    ('in turn', surrogates.in_turn(lite, finite(40, 20))),
  ):
    options = dict(surrogate=part)
    yield _adapting(tfpa.kernel_hamiltonian, name, options=options)
  scaled = tfpa.transports.scaled(
    lambda size, dtype: tf.zeros([size], dtype),
    lambda params: tfp.bijectors.SinhArcsinh(tailweight=tf.exp(params)),
  )
  bent = tfpa.transports.conditional_gaussian(bent=True)
  for name, part in (('bent', bent), ('scaled', scaled), ('kept', bent)):
    lengths = 3 if name == 'scaled' else (1, 3)
    options = dict(transport=part, num_leapfrog_steps=lengths)
    options |= dict(keep_momentum=True) if name == 'kept' else {}
    yield _adapting(tfpa.transport_adaptive_hamiltonian, name, options=options)


_CASES = {
  case.name: case
  for case in (
    *cases.CASES,
    *_structured(),
    *_parts(),
    *_with_priors(),
    *_behind_maps_and_surrogates(),
  )
  if 'baselines' not in case.builder.__module__ and case.label != 'estimates'
}
# Float64 is slow on most GPUs; these still have it when they are frozen: the
# last draws its number of leapfrog steps in it, one scalar.
_WITH_FLOAT64 = (
  'replica_exchange',
  'kernel_hamiltonian, finite, online',
  'kmc, paper',
)
_UNSUPPORTED = re.compile(
  r'unsupported operations .*?on XLA_\w+: (\w+)'
  r"|No registered '(\w+)' OpKernel for XLA_\w+",
  re.S,
)


def _lowered(kernel, state, results, platform='GPU'):
  """Returns the HLO of a step, or the op that has no kernel there in braces."""
  found = tf.config.list_logical_devices

  def listed(device_type=None):
    # The library takes the forms that it takes where there is such a device.
    return found(device_type) or ([platform] if device_type == platform else [])

  # The seed is an argument: XLA may fold the draws of a constant one.
  def step(state, results, seed):
    return kernel.one_step(state, results, seed=seed)

  function = tf.function(step, jit_compile=True, autograph=False)
  try:
    with mock.patch.object(tf.config, 'list_logical_devices', listed):
      ir = function.experimental_get_compiler_ir(
        state, results, tf.constant([1, 2])
      )
      return ir(stage='hlo', platform_name=platform)
  except (tf.errors.OpError, ValueError) as error:
    op = _UNSUPPORTED.search(str(error))
    if not op:
      raise
    return f'{{{op[1] or op[2]}}}'


def _started(case):
  """Returns the kernel of a case, a state and its results, in float32."""
  kernel = case.build(num_adaptation_steps=1000, dtype=np.float32)
  state = tf.nest.map_structure(
    lambda part: tf.cast(part, tf.float32), case.problem.start()
  )
  with block_fits.promised(kernel):
    return kernel, state, kernel.bootstrap_results(state)


def _custom_calls(text):
  return set(re.findall(r'custom_call_target="([^"]+)"', text))


def _num_float64(text):
  return len(re.findall(r'= f64\[', text))


@pytest.mark.nightly
@pytest.mark.parametrize('name', _CASES)
def test_adapting_and_frozen_steps_lower_for_a_gpu(name):
  case = _CASES[name]
  kernel, state, results = _started(case)
  adapting = _lowered(kernel, state, results)
  learned = tfpa.frozen(kernel, results)
  frozen = _lowered(learned, state, learned.bootstrap_results(state))
  # A step that adapts holds more; elliptical slices have nothing to adapt.
  assert len(frozen) > 20_000, (adapting[:99], frozen[:99])
  assert adapting.count('\n') >= frozen.count('\n')
  # A pass of XLA expands `Eigh`; others would be calls of a library.
  allowed = {'Eigh'} if case.problem.kind == 'hierarchy' else set()
  assert _custom_calls(adapting) | _custom_calls(frozen) <= allowed
  assert _num_float64(frozen) == 0 or name in _WITH_FLOAT64


def _of_target(target_log_prob_fn):
  kernel = tfpa.adaptive_metropolis(
    lambda x: tf.ensure_shape(target_log_prob_fn(x), [2]), 10
  )
  state = tf.ones([2, 3])
  return _lowered(kernel, state, kernel.bootstrap_results(state))


def _determinant(x):
  matrix = tf.eye(3) + 0.1 * x[..., tf.newaxis] * x[..., tf.newaxis, :]
  factor, _ = tf.linalg.lu(tf.stop_gradient(matrix))
  return tf.reduce_sum(tf.linalg.diag_part(factor) - 0.5 * x**2, axis=-1)


def _in_python(x):
  return tf.numpy_function(
    lambda v: np.float32(-0.5 * np.sum(v**2, axis=-1)), [x], tf.float32
  )


def _eigenvalues(x):
  matrix = x[..., tf.newaxis] * x[..., tf.newaxis, :]
  values = tf.linalg.eigvalsh(tf.cast(matrix, tf.float64))
  return -0.5 * tf.cast(tf.reduce_sum(values, axis=-1), tf.float32)


# The negative controls: what the test above must see.


@pytest.mark.full
@pytest.mark.parametrize(
  'target, op', [(_determinant, '{Lu}'), (_in_python, '{PyFunc}')]
)
def test_an_op_without_a_kernel_is_named(target, op):
  assert _of_target(target) == op


@pytest.mark.full
def test_custom_calls_and_float64_are_seen():
  found = _of_target(_eigenvalues)
  assert _custom_calls(found) == {'Eigh'} and _num_float64(found) > 0


@pytest.mark.full
def test_a_path_is_solved_by_a_scan_there_and_by_a_loop_on_a_cpu():
  kernel, state, results = _started(_CASES['adaptive_metropolis, tridiagonal'])
  on_gpu, on_cpu = (
    _lowered(kernel, state, results, platform) for platform in ('GPU', 'CPU')
  )
  loops = [len(re.findall(r' while\(', text)) for text in (on_gpu, on_cpu)]
  assert loops[0] < loops[1]
