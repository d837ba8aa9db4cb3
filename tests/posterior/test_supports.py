"""Supports of joint distributions: the way back, and logarithms of scales."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.posterior import supports

tfb = tfp.bijectors
tfd = tfp.distributions


def _root(law):
  return tfd.JointDistributionCoroutine.Root(law)


def _model(kind, root):
  @kind
  def model():
    a = yield root(tfd.HalfNormal(10.0, name='a'))
    yield root(tfd.Sample(tfd.Gamma(2.0, 1.0), 3, name='g'))
    shifted = tfd.TransformedDistribution(tfd.Exponential(a), tfb.Shift(2.0))
    yield tfd.Independent(shifted, 0, name='e')
    yield tfd.Normal(a, 1.0, name='y')

  return model


_MODELS = {
  'coroutine': _model(tfd.JointDistributionCoroutine, _root),
  'vectorized': _model(
    tfd.JointDistributionCoroutineAutoBatched, lambda law: law
  ),
  'dict': tfd.JointDistributionNamedAutoBatched(
    dict(
      a=tfd.Exponential(0.5),
      g=lambda a: tfd.Independent(tfd.HalfNormal(a * tf.ones(3)), 1),
    )
  ),
  'list': tfd.JointDistributionSequential(
    [tfd.HalfNormal(1.0), lambda a: tfd.HalfNormal(a)]
  ),
}
_PINNED = dict(coroutine=dict(y=1.0), vectorized=dict(y=1.0))


@pytest.mark.parametrize('name', _MODELS)
def test_positive_unknowns_are_their_logarithms_and_come_back(name):
  model, pins = _MODELS[name], _PINNED.get(name)
  if pins:
    model = model.experimental_pin(**pins)
    draws = model.sample_unpinned(5, seed=(0, 1))
  else:
    draws = model.sample(5, seed=(0, 1))
  bijector = supports.bijector_of(model)
  unconstrained = bijector.inverse(draws)
  # Not those remembered by the bijector.
  back = bijector.forward(tf.nest.map_structure(tf.identity, unconstrained))
  shift = 2.0 * (np.arange(len(tf.nest.flatten(draws))) == 2)
  for u, x, y, s in zip(
    *map(tf.nest.flatten, (unconstrained, draws, back)), shift, strict=True
  ):
    np.testing.assert_allclose(y, x, rtol=1e-4)
    np.testing.assert_allclose(u, np.log(x - s), rtol=1e-3, atol=1e-4)


def test_the_determinant_is_that_of_the_map():
  model = _MODELS['vectorized'].experimental_pin(y=1.0)
  bijector = supports.bijector_of(model)
  draws = model.sample_unpinned(5, seed=(0, 1))
  u = tf.nest.map_structure(tf.identity, bijector.inverse(draws))
  # Each derivative of exp is exp.
  found = bijector.forward_log_det_jacobian(u, [0, 1, 0])
  expected = sum(
    np.asarray(part).reshape(5, -1).sum(axis=1) for part in tf.nest.flatten(u)
  )
  np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_other_supports_stay_as_they_are():
  for bijector in (None, tfb.Sigmoid(), tfb.Softplus(hinge_softness=0.5)):
    assert supports._by_exp(bijector) is bijector
