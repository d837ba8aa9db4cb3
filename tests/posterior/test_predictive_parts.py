"""Data drawn anew where parts are computed, nested, or no data at all."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tests.posterior.test_predictive import _posterior
from tfp_adaptive.posterior import predictive
from tfp_adaptive.posterior.model import data
from tfp_adaptive.posterior.model import problem as problem_lib

tfd = tfp.distributions

_AT = np.float32([-1.0, 0.0, 2.0])


def _of(model, values, num_coordinates=1):
  """Returns the posterior of draws that are standard normal."""
  draws = np.random.default_rng(6).normal(size=(50, 4, num_coordinates))
  return _posterior(problem_lib.of_joint(model, values), np.float32(draws))


def _line(at):
  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    slope = yield tfd.Normal(0.0, 1.0, name='slope')
    mean = yield tfd.Deterministic(slope * at, name='mean')
    yield tfd.Independent(tfd.Normal(mean, 0.01), 1, name='y')

  return model


def test_what_is_computed_is_computed_anew_for_another_model():
  posterior = _of(_line(_AT), dict(y=_AT))
  slope = posterior.states.slope[..., np.newaxis]
  np.testing.assert_allclose(posterior.states.mean, slope * _AT, rtol=1e-6)
  for at in (_AT, 10.0 * _AT, np.float32([1.0, 2.0])):
    drawn = posterior.posterior_predictive(model=_line(at))
    assert set(drawn) == {'y'}
    np.testing.assert_allclose(drawn['y'], slope * at, atol=0.06)


def test_what_another_model_computes_beside_is_predicted():
  posterior = _of(_line(_AT), dict(y=_AT))
  other = tfd.JointDistributionNamed(
    dict(
      slope=tfd.Normal(0.0, 1.0),
      mean=lambda slope: tfd.Deterministic(slope[..., tf.newaxis] * _AT),
      prediction=lambda slope: tfd.Deterministic(3.0 * slope),
    )
  )
  drawn = posterior.posterior_predictive(model=other)
  assert set(drawn) == {'prediction'}
  np.testing.assert_allclose(
    drawn['prediction'], 3.0 * posterior.states.slope, rtol=1e-6
  )


def test_data_that_an_unknown_depends_on_through_what_is_computed_stay():
  model = tfd.JointDistributionNamed(
    dict(
      mu=tfd.Normal(0.0, 1.0),
      x=lambda mu: tfd.Normal(mu, 1.0),
      twice=lambda x: tfd.Deterministic(2.0 * x),
      u=lambda twice: tfd.Normal(twice, 1.0),
      y=lambda u: tfd.Normal(u, 0.1),
    )
  )
  posterior = _of(model, dict(x=1.0, y=2.0), 2)
  assert set(posterior.posterior_predictive()) == {'y'}
  # Both have a likelihood: an unknown has a say in each.
  assert set(posterior.log_likelihood()) == {'x', 'y'}


def test_values_that_no_unknown_has_a_say_in_have_no_likelihood():
  model = tfd.JointDistributionNamed(
    dict(
      s=tfd.HalfNormal(10.0),
      mu=tfd.Normal(0.0, 1.0),
      y=lambda s, mu: tfd.Sample(tfd.Normal(mu, s), 3),
    )
  )
  posterior = _of(model, dict(s=0.1, y=[1.0, 2.0, 3.0]))
  found = posterior.log_likelihood()
  assert set(found) == {'y'}
  expected = stats.norm(posterior.states['mu'][..., np.newaxis], 0.1)
  np.testing.assert_allclose(
    found['y'], expected.logpdf([1.0, 2.0, 3.0]), rtol=1e-4
  )
  tree = posterior.to_arviz(predictive=True)
  assert set(tree['log_likelihood'].data_vars) == {'y'}
  none = _of(model, dict(s=0.1), 4)
  with pytest.raises(ValueError, match='there are no data'):
    none.log_likelihood()


def test_a_sequence_with_a_model_inside_draws_data():
  inside = tfd.JointDistributionNamed(
    dict(a=tfd.Normal(0.0, 1.0), b=tfd.Normal(0.0, 1.0))
  )
  model = tfd.JointDistributionSequential(
    [inside, lambda unknowns: tfd.Normal(10.0 * unknowns['a'], 0.01)]
  )
  name = data.parts_and_events(model)[0][-1]
  posterior = _of(model, {name: np.float32(1.0)}, 2)
  drawn = posterior.posterior_predictive()[name]
  np.testing.assert_allclose(drawn, 10.0 * posterior.states[0]['a'], atol=0.06)


@pytest.mark.parametrize('size', [2, 5])
def test_samples_of_samples_keep_the_axes_of_their_batches(size):
  loc = np.float32(np.linspace(-1.0, 1.0, size))
  rng = np.random.default_rng(3)
  value = np.float32(rng.normal(size=(5, size, 3)))

  def law(z):
    inner = tfd.Independent(tfd.Sample(tfd.Normal(z * loc, 1.0), 3), 1)
    return tfd.Sample(inner, 5)

  model = tfd.JointDistributionNamed(dict(z=tfd.Normal(0.0, 1.0), y=law))
  z = np.float32([-1.0, 0.3])
  found = predictive.log_likelihood(model, dict(z=z), dict(y=value))['y']
  mean = z[:, None, None, None] * loc[:, None]
  np.testing.assert_allclose(
    found, stats.norm(mean, 1.0).logpdf(value), rtol=1e-4
  )
