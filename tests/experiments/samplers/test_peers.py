"""Samplers of other libraries: moments, starts and every gradient counted."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from experiments.papers import config as configs
from experiments.papers import diagnostics
from experiments.samplers import tfp_kernels
from experiments.samplers.base import BuildOptions
from experiments.targets import jax_density
from experiments.targets.gaussians import gaussian_target

_INSTALL = "write pip install '.[peers]'"
_VARIANCES = np.array([1.0, 4.0, 0.25])
_JAX_PEERS = {
  'blackjax_chees': {},
  'blackjax_meads': {},
  'blackjax_nuts': {'mass_matrix': 'dense'},
  'numpyro_nuts': {},
  'nutpie': {'mass_matrix': 'low_rank'},
}


def _method(name, **parameters):
  config = configs.parse_config(
    {
      'name': 'peers',
      'target': {'name': 'spectrum_gaussian', 'variances': [1.0]},
      'methods': [{'name': name, **parameters}],
      'num_adaptation_steps': 1,
      'num_results': 4,
    }
  )
  return config.methods[0]


def _target():
  covariance = np.diag(_VARIANCES)
  covariance[0, 1] = covariance[1, 0] = 1.2
  return gaussian_target('correlated', covariance, 'float32')


def _starts(num_chains):
  rng = np.random.default_rng(0)
  return rng.normal(size=[num_chains, 3]).astype(np.float32)


def _counting(target):
  """Returns the target with its gradients in TensorFlow counted, and a list."""
  counted = []

  def count():
    counted.append(1)
    return np.float32(0)

  @tf.custom_gradient
  def log_prob(x):
    value, gradient = tfp.math.value_and_gradient(target.target_log_prob_fn, x)

    def grad(upstream):
      zero = tf.numpy_function(count, [], tf.float32)
      return upstream[..., tf.newaxis] * gradient + zero

    return value, grad

  return target._replace(target_log_prob_fn=log_prob), counted


@pytest.mark.full
@pytest.mark.parametrize(
  'name',
  [pytest.param('snaper_hmc', marks=pytest.mark.nightly), 'replica_exchange'],
)
def test_counted_gradients_are_those_that_are_taken(name):
  target, counted = _counting(_target())
  parameters = _method(name)
  # SNAPER takes one leapfrog step for the first hundred and longer.
  num_steps, num_chains = 400, 4
  method = parameters.build(target, BuildOptions(450, num_chains))
  state = tf.constant(_starts(num_chains))

  @tf.function(autograph=False)
  def step(state, results, seed):
    return method.kernel.one_step(state, results, seed=seed)

  results = method.kernel.bootstrap_results(state)
  taken, expected = [], []
  for t in range(num_steps):
    counted.clear()
    state, results = step(state, results, tf.constant([t, 7]))
    taken.append(len(counted))
    if method.frozen_cost is None:
      # One number for all chains.
      per_chain = method.trace_fn(state, results)['leapfrogs_taken'].numpy()
    else:
      # Replicas are evaluated together.
      per_chain = method.frozen_cost.gradient / tfp_kernels._NUM_REPLICAS
    expected.append(per_chain)
  np.testing.assert_array_equal(taken, expected)
  assert max(taken) > 1


def _count_in_jax(target):
  """Returns the target with its evaluations in JAX counted, and a list."""
  counted = []

  def factory():
    jax = jax_density.import_peer('jax')
    log_prob = target.jax_log_prob_fn()

    def counting(x):
      jax.debug.callback(lambda: counted.append(1))
      return log_prob(x)

    return counting

  return target._replace(jax_log_prob_fn=factory), counted


@pytest.mark.parametrize('name', sorted(_JAX_PEERS))
def test_peer_samples_a_gaussian_and_counts_its_gradients(name):
  """Moments within five errors; counts against those that were taken.

  A callback in a program over chains is called once for all of them, so NUTS of
  BlackJAX is counted for one chain.
  """
  jax = pytest.importorskip('jax', reason=_INSTALL)
  pytest.importorskip(name.partition('_')[0], reason=_INSTALL)
  num_chains = 1 if name == 'blackjax_nuts' else 8
  num_adapting, num_results = 300, 1000
  target, counted = _count_in_jax(_target())
  method = _method(name, **_JAX_PEERS[name]).build(
    target, BuildOptions(num_adapting, num_chains)
  )
  result = method.sample_fn(
    init_state=_starts(num_chains), num_results=num_results, seed=(1, 2)
  )
  jax.effects_barrier()
  assert result.states.shape == (num_results, num_chains, 3)
  assert result.states.dtype == np.float32
  adapting = result.adaptation_trace['extra']['leapfrogs_taken']
  sampling = result.trace['extra']['leapfrogs_taken']
  assert adapting.shape == (num_adapting, num_chains)
  assert sampling.shape == (num_results, num_chains)
  total = adapting.sum() + sampling.sum()
  _check_count(name, len(counted), total, num_chains)
  _check_moments(result.states)
  values = target.target_log_prob_fn(result.states).numpy()
  np.testing.assert_allclose(
    result.trace['target_log_prob'], values, rtol=1e-4, atol=1e-4
  )
  assert set(result.seconds) == {'compile', 'adaptation', 'sampling'}
  assert min(result.seconds.values()) > 0


def _check_count(name, num_counted, total, num_chains):
  if name in ('blackjax_chees', 'blackjax_meads'):
    # All chains take as many: one callback stands for all, one is the first.
    assert num_counted == total // num_chains + 1
  elif name == 'nutpie':
    # One compiles; the search for a first step size is not reported.
    assert total + num_chains <= num_counted <= total + 40 * num_chains
  else:
    assert num_counted == total + num_chains


def _check_moments(states):

  draws = states.astype(np.float64)
  for power, expected in ((1, np.zeros(3)), (2, _VARIANCES)):
    values = draws**power
    ess = diagnostics.geyer_ess(values).sum(axis=0)
    error = values.std(axis=(0, 1)) / np.sqrt(ess)
    z = (values.mean(axis=(0, 1)) - expected) / error
    assert np.abs(z).max() < 5
    assert ess.min() > 50
