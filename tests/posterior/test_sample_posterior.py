"""sample_posterior: the right law, a verdict, named draws, and its failures."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tfp_adaptive.posterior import chains as chains_lib
from tfp_adaptive.posterior.judge import verdict as verdict_lib

tfd = tfp.distributions

_DATA = np.float32([1.0, 2.0, 4.5])


def _model():
  """y | theta, theta | mu, mu normal; a scale that no data tell of."""

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    mu = yield tfd.Normal(0.0, 2.0, name='mu')
    theta = yield tfd.Sample(tfd.Normal(mu, 1.0), 3, name='theta')
    yield tfd.LogNormal(0.0, 0.5, name='scale')
    yield tfd.Normal(theta, 0.5, name='y')

  return model


def _exact_moments():
  """Returns means and deviations of mu and theta by dense algebra."""
  factor = np.array([[2.0, 0, 0, 0]] + [[2.0, *row] for row in np.eye(3)])
  prior = factor @ factor.T
  seen = np.eye(4)[1:]
  gain = (
    prior @ seen.T @ np.linalg.inv(seen @ prior @ seen.T + 0.25 * np.eye(3))
  )
  covariance = prior - gain @ seen @ prior
  return gain @ _DATA, np.sqrt(np.diag(covariance))


@pytest.fixture(scope='module')
def posterior():
  return tfpa.sample_posterior(
    _model(), num_draws=500, seed=3, progress=False, y=_DATA
  )


@pytest.mark.nightly
def test_draws_have_the_exact_moments(posterior):
  assert posterior.converged and posterior.failed == []
  mean, deviation = _exact_moments()
  summary = posterior.summary()
  names = posterior.coordinate_names
  assert list(summary.index) == names
  assert names == ['mu', 'theta[0]', 'theta[1]', 'theta[2]', 'scale']
  size = np.minimum(summary['bulk'], summary['tail'])[:4]
  error = np.abs(summary['mean'][:4] - mean) / deviation * np.sqrt(size)
  assert error.max() < 5.0
  np.testing.assert_allclose(summary['sd'][:4], deviation, rtol=0.1)
  # A quantile of the scale, in its own support.
  share = np.mean(np.log(posterior.states.scale) < 0.5 * 1.2816)
  assert abs(share - 0.9) < 5.0 * 0.3 / np.sqrt(summary['bulk'].iloc[4])


@pytest.mark.nightly
def test_draws_are_a_data_tree_by_name(posterior):
  tree = posterior.draws
  assert tree.posterior['theta'].shape == (8, 500, 3)
  assert set(tree.posterior.data_vars) == {'mu', 'theta', 'scale'}
  assert tree.sample_stats['lp'].shape == (8, 500)
  assert np.all(tree.sample_stats['step_size'] > 0.0)
  assert tree.sample_stats['n_steps'].values.min() >= 1
  np.testing.assert_array_equal(
    tree.posterior['mu'].values, posterior.states.mu.T
  )
  assert set(tree.children) == {'posterior', 'sample_stats', 'observed_data'}
  np.testing.assert_array_equal(tree.observed_data['y'].values, _DATA)
  rate = tree.sample_stats['acceptance_rate'].values
  assert rate.shape == (8, 500) and 0.5 < rate.mean() <= 1.0
  assert tree.attrs['converged'] == 1 and 'Converged' in tree.attrs['verdict']
  assert tree.attrs['inference_library'] == 'tfp_adaptive'


def _two_modes(x):
  apart = [tf.reduce_sum((x - m) ** 2, axis=-1) for m in (-30.0, 30.0)]
  return tf.reduce_logsumexp(-0.5 * tf.stack(apart), axis=0)


@pytest.mark.nightly
def test_modes_that_chains_do_not_leave_are_not_called_converged(capsys):
  posterior = tfpa.sample_posterior(
    _two_modes,
    num_draws=200,
    # More coordinates than an exchange is tried for.
    init=tf.constant([[30.0] * 21, [-30.0] * 21] * 2),
    num_chains=4,
    max_gradients=6000,
  )
  assert not posterior.converged
  assert (
    posterior.failed[0].startswith('R-hat is') and 'x[' in posterior.failed[0]
  )
  assert repr(posterior).startswith('NOT CONVERGED')
  assert 'next: chains disagree' in repr(posterior)
  assert posterior.num_gradients < 1.2 * 6000
  # It adapted once more, from where the chains were.
  assert [stage.name for stage in posterior.report].count('structure') >= 2
  told = capsys.readouterr().err
  assert told.startswith('4 chains x 21 coordinates (float32): x')


@pytest.mark.full
@pytest.mark.parametrize(
  'owner, name', [(chains_lib.Chains, 'run_block'), (verdict_lib, 'judge')]
)
def test_an_interrupt_returns_what_was_drawn(monkeypatch, owner, name):
  whole, calls = getattr(owner, name), []

  def interrupted(*args):
    calls.append(0)
    if len(calls) == 2:
      raise KeyboardInterrupt
    return whole(*args)

  monkeypatch.setattr(owner, name, interrupted)
  posterior = tfpa.sample_posterior(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1),
    init=tf.TensorSpec([2]),
    jit_compile=False,
    progress=False,
  )
  assert 'ended by the user' in repr(posterior)
  if owner is verdict_lib:
    assert len(calls) == 3  # What was drawn is judged after all.
  else:
    assert posterior.unconstrained.shape == (500, 8, 2)
