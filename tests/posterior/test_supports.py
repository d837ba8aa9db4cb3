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


def test_positive_unknowns_of_a_model_inside_are_their_logarithms():
  inner = tfd.JointDistributionNamed(dict(scale=tfd.HalfNormal(1.0)))
  model = tfd.JointDistributionNamed(dict(inner=inner))
  found = supports.bijector_of(model).forward(dict(inner=dict(scale=0.5)))
  assert float(found['inner']['scale']) == pytest.approx(np.exp(0.5))


def test_other_supports_stay_as_they_are():
  for bijector in (None, tfb.Sigmoid(), tfb.Softplus(hinge_softness=0.5)):
    assert supports._by_exp(bijector) is bijector


_LAWS = dict(
  beta=lambda: tfd.Beta(0.6, 2.0),
  cholesky_lkj=lambda: tfd.CholeskyLKJ(3, 2.0),
  dirichlet=lambda: tfd.Dirichlet([2.0, 3.0, 4.0]),
  gamma=lambda: tfd.Gamma(2.0, 3.0),
  half_cauchy=lambda: tfd.HalfCauchy(0.0, 1.0),
  inverse_gamma=lambda: tfd.InverseGamma(3.0, 2.0),
  ordered=lambda: tfd.TransformedDistribution(
    tfd.Sample(tfd.Normal(0.0, 1.0), 3), tfb.Ascending()
  ),
  pareto=lambda: tfd.Pareto(3.0, 2.0),
  truncated=lambda: tfd.TruncatedNormal(0.0, 1.0, -0.5, 2.0),
  uniform=lambda: tfd.Uniform(-1.0, 5.0),
  von_mises=lambda: tfd.VonMises(0.0, 4.0),
  weibull=lambda: tfd.Weibull(1.5, 2.0),
  wishart=lambda: tfd.WishartTriL(4.0, 0.1 * tf.eye(2)),
  wishart_factor=lambda: tfd.WishartTriL(
    4.0, 0.1 * tf.eye(2), input_output_cholesky=True
  ),
)


def _by_stein(law, bijector):
  """Returns how far draws come back to, and the largest error of E[z g^T].

  By parts it is -I, of z the unconstrained draws and g the gradient of their
  log density: with another Jacobian, or draws out of reach, it is not.
  """
  draws = law.sample(4000, seed=(0, 1))
  z = tf.identity(bijector.inverse(draws))
  with tf.GradientTape() as tape:
    tape.watch(z)
    x = bijector.forward(tf.identity(z))
    value = law.log_prob(tf.identity(x))
    value += bijector.forward_log_det_jacobian(
      tf.identity(z), event_ndims=z.shape.rank - 1
    )
  rows, gradients = (
    np.reshape(a, [len(draws), -1]).astype(np.float64)
    for a in (z, tape.gradient(value, z))
  )
  product = (rows - rows.mean(axis=0)).T @ gradients / len(rows)
  back = np.max(np.abs(x - draws) / (1e-2 + np.abs(draws)))
  return back, np.max(np.abs(product + np.eye(len(product))))


@pytest.mark.full
@pytest.mark.parametrize('name', _LAWS)
def test_maps_reach_all_draws_with_the_jacobian_of_the_law(name):
  model = tfd.JointDistributionSequential([_LAWS[name]()])
  (bijector,) = supports.bijector_of(model).bijectors
  back, error = _by_stein(_LAWS[name](), bijector)
  assert back < 1e-2 and error < 0.2


def test_what_is_wrong_with_maps_of_tfp_is_seen_by_these_tests():
  factor = _LAWS['wishart_factor']()
  back, _ = _by_stein(
    factor, factor.experimental_default_event_space_bijector()
  )
  assert not back < 1e-2  # Some have no way back: NaN.
  matrix = tfd.LKJ(2, 1.0)
  _, error = _by_stein(
    matrix, matrix.experimental_default_event_space_bijector()
  )
  assert error > 0.2
