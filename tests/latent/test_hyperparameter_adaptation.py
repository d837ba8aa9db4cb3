"""Steps of hyperparameters, learned from those visited, against numpy."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import random
from tfp_adaptive.core import tfp_private

# Without data theta follows its prior N(_LOC, _COVARIANCE): known exactly.
_LOC = np.array([0.3, -0.2, 0.5])
_SHAPE = np.array([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [-0.5, 0.1, 0.3]])
_COVARIANCE = 0.25 * _SHAPE @ _SHAPE.T


def _no_data(x):
  return 0.0 * tf.reduce_sum(x, axis=-1)


def _hyper_log_prob(theta):
  whitened = tf.linalg.matvec(
    tf.constant(np.linalg.inv(0.5 * _SHAPE), theta.dtype),
    theta - tf.constant(_LOC, theta.dtype),
  )
  return -0.5 * tf.reduce_sum(whitened**2, axis=-1)


def _prior_fn(theta):
  variance = tf.exp(0.4 * tf.reduce_sum(theta, axis=-1))
  return tfpa.gaussian_priors.spectral(
    variance[..., tf.newaxis, tf.newaxis]
    * tf.constant([[1.0, 0.5], [0.5, 1.0]], theta.dtype)
  )


def _kernel(num_adaptation_steps, **options):
  return tfpa.adaptation.HyperparameterAdaptation(
    tfpa.proposals.LatentGaussianHyperparameters(
      _no_data,
      _prior_fn,
      _hyper_log_prob,
      lambda *args: tfpa.MetropolisHastings(
        tfpa.proposals.UncalibratedAuxiliaryGradient(*args)
      ),
      **{'delta': 2.0, 'hyper_step_size': 0.4, **options},
    ),
    num_adaptation_steps,
  )


def _start(chains, dtype=np.float64):
  rng = np.random.default_rng(2)
  return (
    tf.constant(rng.normal(size=(*chains, 2)), dtype),
    tf.constant(_LOC + 0.1 * rng.normal(size=(*chains, 3)), dtype),
  )


def _learned(results, name):
  return tfp_private.get_innermost(results, name).numpy()


@pytest.mark.parametrize('chains', [(), (2, 2)])
def test_mean_covariance_and_factor_follow_their_recursions(chains):
  kernel = _kernel(6)
  start = _start(chains)
  before = kernel.bootstrap_results(start)
  states, all_results = targets.run_steps(
    targets.stepper(kernel, 'eager'), start, before, 6
  )
  num_chains = int(np.prod(chains))
  mean = start[1].numpy().reshape(-1, 3).mean(axis=0)
  covariance = np.zeros([3, 3])
  np.testing.assert_array_equal(_learned(before, 'hyper_factor'), np.eye(3))
  for step, (state, results) in enumerate(zip(states, all_results), start=1):
    weight = 2.0 / (step + 2.0)
    centered = state[1].numpy().reshape(-1, 3) - mean
    covariance = (1.0 - weight) * covariance + weight * (
      centered.T @ centered / num_chains
    )
    mean = mean + weight * centered.mean(axis=0)
    variance = np.trace(covariance) / 3.0
    shrunk = covariance + variance * 15.0 / (step * num_chains) * np.eye(3)
    if variance == 0.0:
      shrunk = np.eye(3)
    shrunk /= np.linalg.det(shrunk) ** (1.0 / 3.0)
    np.testing.assert_allclose(results.hyper_mean, mean, rtol=1e-9)
    np.testing.assert_allclose(
      results.hyper_covariance, covariance, rtol=1e-9, atol=1e-15
    )
    np.testing.assert_allclose(
      _learned(results, 'hyper_factor'),
      np.linalg.cholesky(shrunk),
      rtol=1e-9,
      atol=1e-12,
    )


def _condition(factor):
  """Condition number of the target seen through the factor; 1 is perfect."""
  whitened = np.linalg.solve(factor, 0.5 * _SHAPE)
  return np.linalg.cond(whitened @ whitened.T)


@pytest.fixture(scope='module')
def run():
  return tfpa.sample(
    _kernel(400),
    _start((30,)),
    num_results=20,
    seed=3,
    progress=False,
    jit_compile=False,
    trace_fn=lambda _, results: dict(
      hyper_factor=tfp_private.get_innermost(results, 'hyper_factor')
    ),
  )


@pytest.mark.full
def test_the_factor_becomes_that_of_the_posterior(run):
  factor = run.trace['extra']['hyper_factor'][-1]
  assert _condition(np.eye(3)) > 100.0
  assert _condition(factor) < 2.5
  assert np.linalg.det(factor) == pytest.approx(1.0)
  assert np.all(np.triu(factor, 1) == 0.0)


def test_the_factor_is_fixed_after_num_adaptation_steps(run):
  factors = np.asarray(run.trace['extra']['hyper_factor'])
  assert len(factors) == 20
  np.testing.assert_array_equal(factors, np.repeat(factors[:1], 20, axis=0))


def test_nothing_accepted_leaves_the_identity():
  kernel = _kernel(5, hyper_step_size=30.0)
  start = _start(())
  _, all_results = targets.run_steps(
    targets.stepper(kernel, 'eager'), start, kernel.bootstrap_results(start), 3
  )
  for results in all_results:
    assert not _learned(results, 'hyper_is_accepted')
    np.testing.assert_array_equal(_learned(results, 'hyper_factor'), np.eye(3))


class _Walk(tfp.mcmc.TransitionKernel):
  """A random walk in the place of the kernel, for XLA to compile quickly."""

  is_calibrated = True
  parameters = {}
  constrain = None

  def bootstrap_results(self, init_state):
    zeros = tf.zeros_like(init_state[1][..., 0])
    return _WalkResults(zeros, tf.eye(3, dtype=zeros.dtype))

  def one_step(self, current_state, previous_kernel_results, seed=None):
    x, theta = current_state
    noise = random.normal(theta.shape, theta.dtype, seed)
    step = tf.linalg.matvec(previous_kernel_results.hyper_factor, noise)
    return (x, theta + step), previous_kernel_results


_WalkResults = collections.namedtuple(
  '_WalkResults', ['hyper_log_prob', 'hyper_factor']
)


@pytest.mark.full
def test_eager_graph_and_xla_learn_the_same():
  kernel = tfpa.adaptation.HyperparameterAdaptation(_Walk(), 3)
  start = _start((4,))
  runs = []
  for mode in targets.MODES:
    states, all_results = targets.run_steps(
      targets.stepper(kernel, mode), start, kernel.bootstrap_results(start), 4
    )
    runs.append((states[-1][1], _learned(all_results[-1], 'hyper_factor')))
  for theta, factor in runs[1:]:
    np.testing.assert_allclose(theta, runs[0][0], rtol=1e-8)
    np.testing.assert_allclose(factor, runs[0][1], rtol=1e-8, atol=1e-12)


def test_float32_is_kept():
  kernel = _kernel(2)
  start = _start((), np.float32)
  before = kernel.bootstrap_results(start)
  (_, theta), results = kernel.one_step(start, before, seed=(1, 2))
  assert theta.dtype == tf.float32
  for was, now in zip(tf.nest.flatten(before), tf.nest.flatten(results)):
    assert was.dtype == now.dtype and was.shape == now.shape


def test_bad_input_is_refused_with_the_way_out():
  with pytest.raises(ValueError, match='non-negative int'):
    _kernel(-1)
  with pytest.raises(ValueError, match='LatentGaussianHyperparameters'):
    tfpa.adaptation.HyperparameterAdaptation(
      tfpa.adaptive_metropolis(_no_data, 1), 5
    )
