"""Supports of joint distributions: the way back, and logarithms of scales."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.posterior.model import supports

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
    [tfd.InverseGaussian(1.0, 2.0), lambda a: tfd.HalfNormal(a)]
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
    assert supports.with_infinite_bounds(bijector) is bijector


def _lower(a, size=1.0):
  return tf.linalg.LinearOperatorLowerTriangular(
    size * np.eye(2, dtype=a(0).dtype)
  )


def _hidden(a):
  return tfd.HiddenMarkovModel(
    tfd.Categorical(probs=a([0.5, 0.5])),
    tfd.Categorical(probs=a([[0.9, 0.1], [0.2, 0.8]])),
    tfd.Normal(a([0, 2]), a(1)),
    3,
  )


def _wishart(a, count=4.0, **options):
  return tfd.WishartTriL(
    a(count), a(0.1) * np.eye(2, dtype=a(0).dtype), **options
  )


def _wishart_factor(a, count=4.0):
  return _wishart(a, count, input_output_cholesky=True)


def _sides(a):
  """Truncated numbers: between, above, below, anywhere."""
  low, high = a([-1, 0, -np.inf, 1]), a([1, np.inf, 1, np.inf])
  return tfd.Independent(tfd.TruncatedNormal(a(0.5), a(1), low, high), 1)


# Continuous distributions of TFP with every map, by class and what is special,
# given a function that makes arrays of one dtype.
_LAWS = {
  'Autoregressive': lambda a: tfd.Autoregressive(
    lambda y: tfd.Independent(
      tfd.Normal(tf.linalg.matvec(a([[0, 0], [0.5, 0]]), y), a(1)), 1
    ),
    a([0, 0]),
  ),
  'BatchBroadcast': lambda a: tfd.Independent(
    tfd.BatchBroadcast(tfd.Gamma(a(2), a(1)), [3]), 1
  ),
  'BatchReshape': lambda a: tfd.Independent(
    tfd.BatchReshape(tfd.Gamma(a([2, 3, 4, 5]), a(1)), [2, 2]), 2
  ),
  'BatchReshape of factors': lambda a: tfd.Independent(
    tfd.BatchReshape(_wishart_factor(a, [4, 5]), [2, 1]), 2
  ),
  'Beta': lambda a: tfd.Beta(a(0.6), a(2)),
  'Blockwise': lambda a: tfd.Blockwise(
    [
      tfd.Gamma(a(2), a(1)),
      tfd.Dirichlet(a([2, 3, 4])),
      tfd.MultivariateNormalDiag(a([0, 1]), a([1, 1])),
    ]
  ),
  'CholeskyLKJ': lambda a: tfd.CholeskyLKJ(3, a(2)),
  'Dirichlet': lambda a: tfd.Dirichlet(a([2, 3, 4])),
  'ExpRelaxedOneHotCategorical': lambda a: tfd.ExpRelaxedOneHotCategorical(
    a(0.5), logits=a([0, 0.1, 0.2])
  ),
  'FlatDirichlet': lambda a: tfd.FlatDirichlet([3], dtype=a(0).dtype),
  'Gamma': lambda a: tfd.Gamma(a(2), a(3)),
  'GeneralizedExtremeValue': lambda a: tfd.GeneralizedExtremeValue(
    a(0), a(1), a(0.2)
  ),
  'GeneralizedExtremeValue, bounded above': lambda a: (
    tfd.GeneralizedExtremeValue(a(0), a(1), a(-0.2))
  ),
  'GeneralizedPareto': lambda a: tfd.GeneralizedPareto(a(1), a(1), a(0.2)),
  'GeneralizedPareto, bounded': lambda a: tfd.GeneralizedPareto(
    a(1), a(1), a(-0.3)
  ),
  'HalfCauchy': lambda a: tfd.HalfCauchy(a(1), a(1)),
  'HiddenMarkovModel': _hidden,
  'Independent': lambda a: tfd.Independent(_wishart_factor(a, [4, 5]), 1),
  'InverseGamma': lambda a: tfd.InverseGamma(a(4), a(2)),
  'InverseGaussian': lambda a: tfd.InverseGaussian(a(1), a(2)),
  'JohnsonSU': lambda a: tfd.JohnsonSU(a(0), a(1.5), a(0), a(1)),
  'LogNormal': lambda a: tfd.LogNormal(a(0), a(1)),
  'LogitNormal': lambda a: tfd.LogitNormal(a(0), a(1)),
  'MarkovChain': lambda a: tfd.MarkovChain(
    tfd.Gamma(a(2), a(1)), lambda _, y: tfd.Gamma(a(2) + y, a(3)), 4
  ),
  'MultivariateNormalDiag': lambda a: tfd.MultivariateNormalDiag(
    a([0, 1]), a([1, 2])
  ),
  'Normal': lambda a: tfd.Normal(a(0), a(1)),
  'Pareto': lambda a: tfd.Pareto(a(3), a(2)),
  'RelaxedOneHotCategorical': lambda a: tfd.RelaxedOneHotCategorical(
    a(0.7), logits=a([0, 0.1, 0.2])
  ),
  'Sample': lambda a: tfd.Sample(_wishart_factor(a), 2),
  'SinhArcsinh': lambda a: tfd.SinhArcsinh(a(0), a(1), skewness=a(0.2)),
  'TransformedDistribution': lambda a: tfd.TransformedDistribution(
    tfd.Sample(tfd.Normal(a(0), a(1)), 3), tfb.Ascending()
  ),
  'TransformedDistribution of a factor': lambda a: tfb.CholeskyOuterProduct()(
    _wishart_factor(a)
  ),
  'TruncatedCauchy': lambda a: tfd.TruncatedCauchy(a(0), a(1), a(-1), a(3)),
  'TruncatedNormal': lambda a: tfd.TruncatedNormal(a(0), a(1), a(-0.5), a(2)),
  'TruncatedNormal on one side': _sides,
  'Uniform': lambda a: tfd.Uniform(a(-1), a(5)),
  'VonMises': lambda a: tfd.VonMises(a(0), a(4)),
  'WishartLinearOperator': lambda a: tfd.WishartLinearOperator(
    a(4), _lower(a, 0.1), input_output_cholesky=True
  ),
  'WishartTriL': _wishart,
  'WishartTriL, its factor': _wishart_factor,
}
# Those that no unknown can have, and the words that say so.
_REFUSED = {
  'BetaQuotient': (lambda a: tfd.BetaQuotient(a(3), a(2), a(4), a(5)), 'NaN'),
  'LKJ': (lambda a: tfd.LKJ(3, a(2)), 'wrong Jacobian'),
  'Masked': (
    lambda a: tfd.Masked(tfd.Normal(a(0), a(1)), True),
    'masked entries no density',
  ),
  'PowerSpherical': (
    lambda a: tfd.PowerSpherical(a([1, 0]), a(2)),
    'without a negative coordinate',
  ),
  'SphericalUniform': (
    lambda a: tfd.SphericalUniform(2, dtype=a(0).dtype),
    'without a negative coordinate',
  ),
  'VonMisesFisher': (
    lambda a: tfd.VonMisesFisher(a([1, 0]), a(2)),
    'without a negative coordinate',
  ),
  'Uniform above': (
    lambda a: tfd.Uniform(a(0), a(np.inf)),
    'with an infinite bound.*ImproperUniform.bijector=tfb.Exp',
  ),
  'AbsoluteValue': (
    lambda a: tfb.AbsoluteValue()(tfd.Normal(a(0), a(1))),
    'not one to one.*HalfNormal',
  ),
  'MarkovChain of factors': (
    lambda a: tfd.MarkovChain(
      _wishart_factor(a), lambda _, x: _wishart_factor(a), 3
    ),
    'map in TFP is wrong. Draw the steps',
  ),
  'MarkovChain of directions': (
    lambda a: tfd.MarkovChain(
      tfd.VonMisesFisher(a([1, 0]), a(2)),
      lambda _, x: tfd.VonMisesFisher(x, a(2)),
      3,
    ),
    'without a negative coordinate',
  ),
  'Blockwise of a model': (
    lambda a: tfd.Blockwise(
      tfd.JointDistributionSequential([tfd.Normal(a(0), a(1))])
    ),
    'of a joint distribution. Draw the parts',
  ),
}
# TFP has no map of these, or they are discrete, constant or no distribution.
_WITHOUT_A_MAP = """AutoCompositeTensorDistribution BatchConcat Bernoulli
BetaBinomial Binomial Categorical Deterministic DeterminantalPointProcess
DirichletMultinomial Distribution Empirical FiniteDiscrete Geometric Inflated
JointDistribution JointDistributionCoroutine
JointDistributionCoroutineAutoBatched JointDistributionNamed
JointDistributionNamedAutoBatched JointDistributionSequential
JointDistributionSequentialAutoBatched LambertWDistribution Mixture
MixtureSameFamily Multinomial NegativeBinomial OneHotCategorical OrderedLogistic
PixelCNN PlackettLuce Poisson PoissonLogNormalQuadratureCompound ProbitBernoulli
QuantizedDistribution Skellam StoppingRatioLogistic VectorDeterministic
ZeroInflatedNegativeBinomial Zipf""".split()
# TFP's map of these is the identity, or that of another distribution above.
_AS_OTHERS = """Bates Cauchy Chi Chi2 ContinuousBernoulli DoublesidedMaxwell
ExpGamma ExpInverseGamma Exponential ExponentiallyModifiedGaussian GammaGamma
GaussianProcess GaussianProcessRegressionModel GeneralizedNormal Gumbel
HalfNormal HalfStudentT Horseshoe Kumaraswamy LambertWNormal Laplace
LinearGaussianStateSpaceModel LogLogistic Logistic MatrixNormalLinearOperator
MatrixTLinearOperator Moyal MultivariateNormalDiagPlusLowRank
MultivariateNormalDiagPlusLowRankCovariance MultivariateNormalFullCovariance
MultivariateNormalLinearOperator MultivariateNormalTriL
MultivariateStudentTLinearOperator NoncentralChi2 NormalInverseGaussian PERT
RelaxedBernoulli SigmoidBeta StudentT StudentTProcess
StudentTProcessRegressionModel Triangular TwoPieceNormal TwoPieceStudentT
VariationalGaussianProcess Weibull""".split()
# TFP itself cannot draw from it in float64.
_LEFT_OUT = {('FlatDirichlet', 64)}


def _arrays(bits):
  return lambda numbers: np.asarray(numbers, f'float{bits}')


def test_every_distribution_of_tfp_is_somewhere_in_these_lists():
  classes = {
    name
    for name in dir(tfd)
    if isinstance(getattr(tfd, name), type)
    and issubclass(getattr(tfd, name), tfd.Distribution)
  }
  listed = {*_LAWS, *_REFUSED, *_WITHOUT_A_MAP, *_AS_OTHERS}
  assert classes <= listed


@pytest.mark.parametrize('name', _REFUSED)
def test_an_unknown_that_no_map_reaches_is_refused_with_what_to_write(name):
  law, words = _REFUSED[name]
  for wrapped in (law, lambda a: tfd.Sample(law(a), 2)):
    with pytest.raises(supports.NoMapError, match=words):
      supports.map_of(wrapped(_arrays(32)))


def _by_stein(law, bijector):
  """Returns how far from draws the way back ends, and an error of moments.

  E[g] is 0 and E[z g^T] is -I, by parts, for unconstrained draws z and the
  gradient g of their log density. With another Jacobian, or draws out of reach,
  they are not. A volume that is linear in z is seen in the first one only.
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
  product = (rows - np.median(rows, axis=0)).T @ gradients / len(rows)
  back = np.max(np.abs(x - draws) / (1e-2 + np.abs(draws)))
  width = np.median(np.abs(rows - np.median(rows, axis=0)), axis=0)
  shift = np.abs(gradients.mean(axis=0)) * 1.5 * width
  error = np.max(np.abs(product + np.eye(len(product))))
  return back, max(error, np.max(shift))


@pytest.mark.full
@pytest.mark.parametrize('bits', [32, 64])
def test_maps_reach_all_draws_with_the_jacobian_of_the_law(bits):
  failed = {}
  for name, make in _LAWS.items():
    if (name, bits) in _LEFT_OUT:
      continue
    law = make(_arrays(bits))
    back, error = _by_stein(law, supports.map_of(law))
    if not (back < 1e-2 and error < 0.25):
      failed[name] = back, error
  assert not failed


def test_without_the_volume_of_its_matrix_a_factor_is_seen_to_be_wrong():
  law = _wishart_factor(_arrays(64))
  chain = supports.map_of(law)
  back, error = _by_stein(law, tfb.Chain(chain.bijectors[1:]))
  assert back < 1e-2 and error > 0.4


def test_what_is_wrong_with_maps_of_tfp_is_seen_by_these_tests():
  factor = _wishart_factor(_arrays(32))
  back, _ = _by_stein(
    factor, factor.experimental_default_event_space_bijector()
  )
  assert not back < 1e-2  # Some have no way back: NaN.
  matrix = tfd.LKJ(2, 1.0)
  _, error = _by_stein(
    matrix, matrix.experimental_default_event_space_bijector()
  )
  assert error > 0.2


_INFINITE = {
  'above': (0.0, np.inf, lambda z: np.exp(z)),
  'below': (-np.inf, 2.0, lambda z: 2 - np.exp(z)),
  'anywhere': (-np.inf, np.inf, lambda z: z),
  'between': (-1.0, 3.0, lambda z: -1 + 4 / (1 + np.exp(-z))),
}


@pytest.mark.parametrize('kind', ['float32', 'float64'])
@pytest.mark.parametrize('name', _INFINITE)
def test_an_interval_with_an_infinite_bound_has_a_map(name, kind):
  low, high, expected = _INFINITE[name]
  given = tfb.Sigmoid(*np.asarray([low, high], kind))
  bijector = supports.with_infinite_bounds(given)
  z = tf.constant([-5.0, -1.0, 0.0, 2.0, 40.0], kind)
  np.testing.assert_allclose(
    bijector.forward(z), expected(np.asarray(z)), rtol=1e-5
  )
  back = bijector.inverse(tf.identity(bijector.forward(z[:4])))
  np.testing.assert_allclose(back, z[:4], rtol=1e-4, atol=1e-5)
  # TFP's own object, so that known runs keep their bits.
  assert (bijector is given) == (name == 'between')


def test_bounds_that_mix_all_cases_have_gradients_everywhere():
  cases = list(_INFINITE.values())
  z = tf.constant([-80.0, 0.5, 80.0])[:, tf.newaxis]
  low = tf.Variable([case[0] for case in cases])
  high = tf.Variable([case[1] for case in cases])
  with tf.GradientTape(persistent=True) as tape:
    tape.watch(z)
    bijector = supports.interval(low, high)
    x = bijector.forward(z)
    volume = bijector.forward_log_det_jacobian(tf.identity(z), event_ndims=0)
  np.testing.assert_allclose(x[1], [case[2](0.5) for case in cases], rtol=1e-6)
  # Half-lines and the line: log |dx/dz| is z, or 0.
  np.testing.assert_allclose(volume[:, 0], z[:, 0])
  np.testing.assert_allclose(volume[:, 1], z[:, 0])
  np.testing.assert_array_equal(volume[:, 2], np.zeros(3))
  for value in (x, volume):
    for source in (z, low, high):
      gradient = tape.gradient(
        value, source, unconnected_gradients=tf.UnconnectedGradients.ZERO
      )
      assert np.all(np.isfinite(gradient))
  assert np.all(np.isnan(tfb.Sigmoid(0.0, np.inf).forward([0.0, 1.0])))


def test_a_soft_clip_leaves_out_an_infinite_bound():
  given = tfb.SoftClip(0.0, np.inf, hinge_softness=0.5)
  found = supports.with_infinite_bounds(given)
  z = tf.constant([-1.0, 0.0, 2.0])
  expected = tfb.SoftClip(0.0, None, hinge_softness=0.5).forward(z)
  np.testing.assert_allclose(found.forward(tf.identity(z)), expected)
  assert not np.all(np.isfinite(given.forward(tf.identity(z))))


@pytest.mark.parametrize(
  'kind', [tfd.JointDistributionNamed, tfd.JointDistributionNamedAutoBatched]
)
def test_a_factor_in_a_model_inside_of_the_model_has_its_volume(kind):
  root = tfd.WishartTriL(4.0, [[1.0]], input_output_cholesky=True)
  inner = tfd.JointDistributionNamedAutoBatched(dict(root=root))
  bijector = supports.bijector_of(kind(dict(inner=inner)))
  z = tf.constant([-0.5, 0.0, 1.0])[:, tf.newaxis]
  start = dict(inner=dict(root=z))
  found = bijector.forward(start)['inner']['root']
  np.testing.assert_allclose(found[:, 0, 0], np.exp(z[:, 0]), rtol=1e-6)
  # The matrix is exp(2 z), so that its volume is 2 exp(2 z).
  volume = bijector.forward_log_det_jacobian(
    dict(inner=dict(root=tf.identity(z))), dict(inner=dict(root=1))
  )
  np.testing.assert_allclose(volume, np.log(2) + 2 * z[:, 0], rtol=1e-6)


def _independent_supports():
  rates = tf.constant([1.0, 2.0])
  return tfd.JointDistributionCoroutineAutoBatched(
    lambda: (
      (yield tfd.Normal(0.0, 1.0, name='a')),
      (yield tfd.Sample(tfd.HalfCauchy(0.0, 2.0), 3, name='b')),
      (yield tfd.Independent(tfd.Exponential(rates), 1, name='c')),
      (yield tfd.Uniform(-1.0, 4.0, name='d')),
      (yield tfd.Sample(tfd.Beta(2.0, 2.0), 2, name='e')),
    )
  )


def test_supports_that_no_part_changes_need_no_run_of_the_model(monkeypatch):
  model = _independent_supports()
  whole = supports.bijector_of(model)
  assert type(whole).__name__ == 'JointMap'
  monkeypatch.setattr(supports, '_number_by_number', lambda law: None)
  by_tfp = supports.bijector_of(model)
  assert type(by_tfp).__name__ != 'JointMap'
  draws = model.sample(5, seed=(0, 1))
  z = tf.nest.map_structure(tf.identity, by_tfp.inverse(draws))
  ranks = [0, 1, 1, 0, 1]
  for found, expected in (
    (whole.inverse(draws), z),
    (whole.forward(z), by_tfp.forward(z)),
    (
      [whole.forward_log_det_jacobian(z, type(z)(*ranks))],
      [by_tfp.forward_log_det_jacobian(z, type(z)(*ranks))],
    ),
  ):
    for one, other in zip(found, expected, strict=True):
      np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
  'second',
  [
    lambda a: tfd.Uniform(0.0, a),
    lambda a: tfd.Sample(tfd.Uniform(0.0, a), 2),
    lambda a: tfb.Shift(a)(tfd.Exponential(1.0)),
    lambda a: tfd.TruncatedNormal(0.0, 1.0, a, np.inf),
  ],
)
def test_a_support_that_another_part_changes_follows_it(second):
  model = tfd.JointDistributionSequentialAutoBatched(
    [tfd.Gamma(3.0, 1.0), second]
  )
  bijector = supports.bijector_of(model)
  # A draw of the second part at z = 1 moves with the first part.
  z = [tf.constant([0.1, 0.9]), tf.ones([2, *model.event_shape[1]])]
  _, values = bijector.forward(z)
  assert np.all(np.asarray(values[0]) != np.asarray(values[1]))
