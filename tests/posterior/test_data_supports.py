"""Data that a distribution cannot draw are refused, however it is wrapped.

Nothing is sampled: the check needs a graph and the data.
"""

import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.posterior.model import data

tfb = tfp.bijectors
tfd = tfp.distributions

_ROW = tf.constant([0.1, 0.2, 0.3])
_HALF = np.float32([1, 0.5, 2])
_COUNTS = np.float32([1, 0, 2])


def _model(law):
  """A model with a positive unknown x of which the data are drawn."""

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    x = yield tfd.LogNormal(0.0, 1.0, name='x')
    # With a name, and as an event in the other kinds of models as well.
    yield law(x)

  return model


def _checked(law, value):
  model = _model(law)
  name = data.parts_and_events(model)[0][-1]
  return name, data.checked(model, {name: value})


def _poisson(x):
  return tfd.Poisson(log_rate=x)


def _three(x):
  return tfd.Poisson(log_rate=x * tf.ones(3))


def _mixture(x):
  weights = tfd.Categorical(probs=[0.5, 0.5])
  return tfd.Mixture(weights, [_poisson(x), tfd.Poisson(9.0)])


def _family(x):
  rates = tf.stack([x, 2.0])
  weights = tfd.Categorical(probs=[0.5, 0.5])
  return tfd.MixtureSameFamily(weights, tfd.Poisson(log_rate=rates))


def _hidden(x):
  return tfd.HiddenMarkovModel(
    tfd.Categorical(probs=[0.5, 0.5]),
    tfd.Categorical(probs=[[0.9, 0.1], [0.2, 0.8]]),
    tfd.Poisson(log_rate=tf.stack([x, 2.0])),
    3,
  )


def _markov(x):
  first = tfd.Poisson(log_rate=x)
  return tfd.MarkovChain(first, lambda _, k: tfd.Poisson(1.0 + k), 3)


def _autoregressive(x):
  return tfd.Autoregressive(
    lambda y: tfd.Independent(tfd.Poisson(1.0 + 0 * y + x**2), 1), tf.ones(3)
  )


def _with_a_model_inside(x):
  return tfd.JointDistributionNamedAutoBatched(
    dict(a=tfd.Inflated(_poisson(x), inflated_loc_probs=0.3))
  )


_MASK = [True, False, True]
# Each wrapper, data that it refuses, and data that are its own.
_WRAPPED = dict(
  sample=(lambda x: tfd.Sample(_poisson(x), 3), _HALF, _COUNTS),
  independent=(lambda x: tfd.Independent(_three(x), 1), _HALF, _COUNTS),
  inflated=(
    lambda x: tfd.Sample(tfd.Inflated(_poisson(x), inflated_loc_probs=0.3), 3),
    _HALF, _COUNTS,
  ),
  inflated_elsewhere=(
    lambda x: tfd.Inflated(
      _poisson(x), inflated_loc_probs=0.3, inflated_loc=0.5
    ),
    1.5, 0.5,
  ),
  zero_inflated=(
    lambda x: tfd.ZeroInflatedNegativeBinomial(
      inflated_loc_probs=0.2, total_count=3.0, logits=x
    ),
    -1.0, 0.0,
  ),
  mixture=(_mixture, 1.5, 1.0),
  mixture_of_events=(lambda x: tfd.Sample(_mixture(x), 3), _HALF, _COUNTS),
  family=(lambda x: tfd.Sample(_family(x), 3), _HALF, _COUNTS),
  masked=(lambda x: tfd.Masked(_three(x), _MASK), [1, 2, 0.5], _HALF),
  batch_reshape=(
    lambda x: tfd.BatchReshape(_three(x), [3, 1]), _HALF[:, None],
    _COUNTS[:, None],
  ),
  batch_broadcast=(
    lambda x: tfd.BatchBroadcast(_poisson(x), [3]), _HALF, _COUNTS,
  ),
  batch_concat=(
    lambda x: tfd.BatchConcat([_three(x), tfd.Poisson([1.0, 2.0])], 0),
    [1, 2, 3, 4, 0.5], [1, 2, 3, 4, 5],
  ),
  shift=(lambda x: tfb.Shift(0.5)(_poisson(x)), 1.0, 1.5),
  scale=(lambda x: tfb.Scale(0.5)(_poisson(x)), 0.7, 1.5),
  chain=(
    lambda x: tfd.Sample(tfb.Shift(1.0)(tfb.Scale(2.0)(_poisson(x))), 3),
    [1, 2, 5], [1, 3, 5],
  ),
  exp_of_normal=(lambda x: tfb.Exp()(tfd.Normal(x, 1.0)), -1.0, 2.0),
  softsign_of_normal=(lambda x: tfb.Softsign()(tfd.Normal(x, 1.0)), 2.0, 0.5),
  shift_of_exponential=(lambda x: tfb.Shift(2.0)(tfd.Exponential(x)), 1.5, 2.5),
  absolute=(lambda x: tfb.AbsoluteValue()(tfd.Normal(x, 1.0)), -1.0, 1.0),
  hidden_markov=(_hidden, _HALF, _COUNTS),
  markov_chain=(_markov, _HALF, _COUNTS),
  autoregressive=(_autoregressive, _HALF, _COUNTS),
  quantized=(
    lambda x: tfd.QuantizedDistribution(tfd.Normal(x, 3.0), 0.0, 5.0), 2.5, 2.0,
  ),
  quantized_beyond=(
    lambda x: tfd.QuantizedDistribution(tfd.Normal(x, 3.0), 0.0, 5.0), 7.0, 5.0,
  ),
  quantized_of_positive=(
    lambda x: tfd.QuantizedDistribution(tfd.LogNormal(x, 3.0)), -2.0, 3.0,
  ),
  scale_that_rounds=(
    lambda x: tfd.Sample(tfb.Scale(0.1)(_poisson(x)), 3), [0.1, 0.3, 0.75],
    [0.1, 0.3, 0.7],
  ),
  hidden_markov_of_two=(
    lambda x: tfd.HiddenMarkovModel(
      tfd.Categorical(probs=[[0.5, 0.5]] * 2),
      tfd.Categorical(probs=[[[0.9, 0.1], [0.2, 0.8]]] * 2),
      tfd.Poisson(log_rate=x * tf.ones([2, 2])),
      3,
    ),
    np.stack([_COUNTS, _HALF]), np.stack([_COUNTS, _COUNTS]),
  ),
  blockwise=(
    lambda x: tfd.Blockwise(
      [tfd.Normal(x, 1.0), tfd.Sample(tfd.Exponential(1.0), 2)]
    ),
    [-1, 1, -1], [-1, 1, 1],
  ),
  masked_family=(
    lambda x: tfd.Independent(
      tfd.Masked(tfd.BatchBroadcast(_family(x), [3]), _MASK), 1
    ),
    [1, 2, 0.5], _HALF,
  ),
  inflated_shift=(
    lambda x: tfd.Inflated(
      tfb.Shift(1.0)(tfd.Exponential(x)), inflated_loc_probs=0.3
    ),
    0.5, 0.0,
  ),
  model_inside=(_with_a_model_inside, dict(a=1.5), dict(a=2.0)),
)  # fmt: skip


@pytest.mark.parametrize(
  'law, value, message',
  [
    (_WRAPPED['inflated'][0], _HALF, 'tfd.Inflated.tfd.Poisson.* 0.5 is among'),
    (
      lambda x: tfb.Permute([1, 0, 2])(tfd.Sample(_poisson(x), 3)),
      _HALF,
      'whole numbers from 0 before `tfb.Permute` moves them, but 0.5 is among',
    ),
    (
      lambda x: tfd.Sample(tfd.Dirichlet(x * _ROW), 2),
      [[0.2, 0.3, 0.5], [0.5, 0.5, 0.5]],
      r'sum to 1, but \[0.5 0.5 0.5\] is among them',
    ),
  ],
)
def test_the_message_names_the_wrapper_and_the_number(law, value, message):
  with pytest.raises(ValueError, match=f"The data 'var1' are .*{message}"):
    _checked(law, value)


def _log_shares(x):
  return tfd.ExpRelaxedOneHotCategorical(0.5, logits=x * _ROW)


_CORRELATION = np.float32([[1, 0.5], [0.5, 1]])
_ROOT = np.linalg.cholesky(_CORRELATION)


def _by_root(law):
  return lambda x: law(x, input_output_cholesky=True)


def _wishart(x, **options):
  return tfd.WishartTriL(4.0 + x**2, tf.eye(2), **options)


_FIVE = tf.Variable(5.0)


def _four_and_nine(x):
  return tfd.Binomial([4.0, 9.0], logits=x * tf.ones(2))


def _lkj(x, **options):
  return tfd.LKJ(2, 1.0 + x**2, **options)


def _extreme(x):
  return tfd.GeneralizedExtremeValue(0.0, 1.0, 0.5)


# Laws, data that they refuse, and data that are their own; of these some at the
# edge, and some rounded. Of laws with the same map in TFP there is one.
_LAWS = dict(
  bernoulli=(lambda x: tfd.Bernoulli(x), 2, 1),
  bernoulli_of_floats=(lambda x: tfd.Bernoulli(x, dtype=tf.float32), 2, 0.3),
  beta=(lambda x: tfd.Beta(1.0, x), 1.5, 0.0),
  beta_binomial=(lambda x: tfd.BetaBinomial(5.0, x, 1.0), 2.5, 5.0),
  binomial=(lambda x: tfd.Binomial(5.0, logits=x), 6.0, 5.0),
  binomial_of_a_variable=(lambda x: tfd.Binomial(_FIVE, logits=x), -1, 5),
  binomial_of_unknowns=(lambda x: tfd.Binomial(x + 9.0, logits=x), -1, 6),
  binomials=(lambda x: tfd.Independent(_four_and_nine(x), 1), [9, 4], [4, 9]),
  binomials_thrice=(
    lambda x: tfd.Independent(tfd.Sample(_four_and_nine(x), 3), 1),
    [[4, 4, 4], [9, 9, 0.5]], [[4, 4, 4], [9, 9, 0]],
  ),
  categorical=(lambda x: tfd.Categorical(x * _ROW), 3, 2),
  cholesky_lkj=(
    lambda x: tfd.CholeskyLKJ(2, 1.0 + x**2), 2 * _ROOT, np.round(_ROOT, 3),
  ),
  cholesky_lkj_turned=(lambda x: tfd.CholeskyLKJ(2, 1.0), _ROOT.T, _ROOT),
  deterministic=(lambda x: tfd.Deterministic(2.0), 3.0, 2.0),
  dirichlet=(
    lambda x: tfd.Dirichlet(x * _ROW), [0.5, 0.5, 0.5], [0.333, 0.333, 0.333],
  ),
  dirichlet_negative=(
    lambda x: tfd.Dirichlet(x * _ROW), [0.5, 0.9, -0.4], [0.2, 0.3, 0.5],
  ),
  dirichlet_multinomial=(
    lambda x: tfd.DirichletMultinomial(5.0, x * _ROW), [2, 2, 2], [5, 0, 0],
  ),
  empirical=(lambda x: tfd.Empirical([1.0, 2.0]), 1.5, 2.0),
  exponential=(lambda x: tfd.Exponential(x), -1.0, 0.0),
  finite=(
    lambda x: tfd.FiniteDiscrete([1.0, 2.5], logits=x * tf.ones(2)), 2.0, 2.5,
  ),
  generalized_pareto=(lambda x: tfd.GeneralizedPareto(1.0, x, 0.5), 0.5, 1.0),
  extreme=(_extreme, -2.5, -1.5),
  geometric=(lambda x: tfd.Geometric(logits=x), 0.5, 0.0),
  half_cauchy=(lambda x: tfd.HalfCauchy(1.0, x), 0.5, 1.0),
  inverse_gamma=(lambda x: tfd.InverseGamma(1.0, x), -1.0, 1.0),
  inverse_gaussian=(lambda x: tfd.InverseGaussian(1.0, x), -1.0, 1.0),
  lkj=(_lkj, np.float32([[1, 0.5], [0.4, 1]]), _CORRELATION),
  lkj_diagonal=(_lkj, 2 * _CORRELATION, _CORRELATION),
  lkj_root=(_by_root(_lkj), _CORRELATION, _ROOT),
  log_normal=(lambda x: tfd.LogNormal(x, 1.0), -1.0, 1.0),
  logit_normal=(lambda x: tfd.LogitNormal(x, 1.0), 1.5, 0.5),
  multinomial=(lambda x: tfd.Multinomial(5.0, x * _ROW), [5, 5, 5], [5, 0, 0]),
  multinomial_fraction=(
    lambda x: tfd.Multinomial(5.0, x * _ROW), [2.5, 2.5, 0], [2, 3, 0],
  ),
  negative_binomial=(lambda x: tfd.NegativeBinomial(2.5, x), 0.5, 0.0),
  one_hot=(lambda x: tfd.OneHotCategorical(x * _ROW), [1, 1, 0], [0, 1, 0]),
  ordered=(lambda x: tfd.OrderedLogistic([-1.0, 1.0], x), 3, 2),
  pareto=(lambda x: tfd.Pareto(x, 2.0), 1.5, 2.0),
  plackett_luce=(lambda x: tfd.PlackettLuce(x * _ROW), [0, 0, 2], [2, 0, 1]),
  points=(
    lambda x: tfd.DeterminantalPointProcess(x * tf.ones(2), tf.eye(2)), [0, 2],
    [0, 1],
  ),
  poisson=(_poisson, -1.0, 0.0),
  poisson_lognormal=(
    lambda x: tfd.PoissonLogNormalQuadratureCompound(x, 1.0), 0.5, 2.0,
  ),
  power_spherical=(
    lambda x: tfd.PowerSpherical([1.0, 0.0], x), [1, 1], [0.71, 0.71],
  ),
  probit=(lambda x: tfd.ProbitBernoulli(x), 2, 1),
  relaxed=(
    lambda x: tfd.RelaxedOneHotCategorical(0.5, x * _ROW), [0.5, 0.6, 0.7],
    [0.2, 0.3, 0.5],
  ),
  log_relaxed=(_log_shares, [0.2, 0.3, 0.5], np.log([0.2, 0.3, 0.5])),
  skellam=(lambda x: tfd.Skellam(x, 1.0), 0.5, -2.0),
  spherical=(lambda x: tfd.SphericalUniform(2), [1, 1], [0, -1]),
  stopping=(lambda x: tfd.StoppingRatioLogistic([-1.0, 1.0], x), 1.5, 2),
  truncated_cauchy=(
    lambda x: tfd.TruncatedCauchy(x, 1.0, 0.0, np.inf), -1.0, 0.0,
  ),
  uniform=(lambda x: tfd.Uniform(0.0, 2.0), 3.0, 2.0),
  von_mises=(lambda x: tfd.VonMises(x, 1.0), 90.0, 6.0),
  von_mises_fisher=(
    lambda x: tfd.VonMisesFisher([1.0, 0.0], x), [2, 0], [-0.6, 0.8],
  ),
  wishart=(_wishart, np.float32([[1, 2], [3, 9]]), 2 * _CORRELATION),
  wishart_indefinite=(_wishart, np.float32([[1, 2], [2, 1]]), _CORRELATION),
  wishart_root=(_by_root(_wishart), _CORRELATION, 2 * _ROOT),
  zipf=(lambda x: tfd.Zipf(2.0 + x**2), 0.0, 1.0),
  zipf_fraction=(lambda x: tfd.Zipf(2.0 + x**2), 1.5, 3.0),
)  # fmt: skip


@pytest.mark.parametrize('name', [*_LAWS, *_WRAPPED])
def test_a_law_refuses_what_it_cannot_draw_and_no_wrapper_hides_it(name):
  law, bad, good = (_LAWS | _WRAPPED)[name]
  _checked(law, good)
  with pytest.raises(ValueError, match='must be .* is among them'):
    _checked(law, bad)


@pytest.mark.parametrize(
  'law, value',
  [
    (lambda x: tfd.LogNormal(x, 1.0), 0.0),
    (lambda x: tfd.Sample(tfd.Gamma(2.0, x), 2), [1.0, 0.0]),
    (lambda x: tfd.InverseGamma(2.0, x), 0.0),
    (lambda x: tfd.Beta(2.0, x), 0.0),
    (lambda x: tfb.Shift(2.0)(tfd.Gamma(2.0, x)), 2.0),
    (lambda x: tfd.Dirichlet([2.0, 2.0, 2.0] + 0 * x), [0.5, 0.5, 0.0]),
  ],
)
def test_data_at_an_end_without_a_density_are_refused(law, value):
  with pytest.raises(ValueError, match='at the end of its support'):
    _checked(law, value)


@pytest.mark.parametrize(
  'law, value, words',
  [
    (lambda x: tfb.Shift(x)(tfd.Poisson(2.0)), 1.0, 'whole numbers from 0'),
    (lambda x: tfb.Scale(x)(tfd.Geometric(0.5)), 1.0, 'whole numbers from 0'),
    (lambda x: tfd.Multinomial(x + 9.0, [0.0, 0.0]), [5, 5], 'sum to'),
    (lambda x: tfd.Deterministic(x), 1.0, 'equal to its constant'),
    (lambda x: tfb.Shift(x)(tfd.Dirichlet([1.0, 1.0])), [0.5, 0.5], 'sum to 1'),
  ],
)
def test_data_that_only_single_values_allow_are_refused(law, value, words):
  with pytest.raises(ValueError, match=f'must be .*{words}.* single points'):
    _checked(law, value)


def test_numbers_of_unknowns_are_not_refused_with_the_others():
  # All are real numbers: nothing is known against them.
  for law in (tfd.Cauchy, tfd.Gumbel):
    _, found = _checked(lambda x, law=law: law(x, 1.0), -1.0)
    assert not found.inexact and not found.bounding


@pytest.mark.parametrize(
  'value, words',
  [
    (['a', 'b', 'c'], 'are strings, but must be'),
    (np.array([1, None, 2]), r'are Python objects \(NoneType, int\), but'),
    ([[1.0], [2.0, 3.0], [4.0]], 'are rows of several lengths, but must be'),
    (np.array(['2020-01-01'] * 3, 'datetime64[D]'), 'are of dtype datetime64'),
    ([1.0, np.nan, 2.0], 'are not finite numbers throughout'),
    (np.array([1.0, np.inf, 2.0], object), r'are Python objects \(float\)'),
  ],
)
def test_data_that_are_no_numbers_are_called_what_they_are(value, words):
  with pytest.raises(ValueError, match=f"The data 'var1' {words}"):
    _checked(lambda x: tfd.Sample(tfd.Normal(x, 1.0), 3), value)


def test_a_mask_hides_missing_numbers_at_its_place_only():
  law = lambda x: tfd.Masked(tfd.Normal(x * tf.ones(3), 1.0), _MASK)
  _checked(law, [1.0, np.nan, 2.0])
  with pytest.raises(ValueError, match='not finite numbers throughout'):
    _checked(law, [np.nan, 1.0, 2.0])


class _Cosh(tfb.Bijector):
  """A user's bijector that claims to be one to one."""

  def __init__(self):
    super().__init__(forward_min_event_ndims=0, parameters={}, name='cosh')

  def _forward(self, x):
    return tf.cosh(x)

  def _inverse(self, y):
    return tf.acosh(y)

  def _forward_log_det_jacobian(self, x):
    return tf.math.log(tf.abs(tf.sinh(x)))


def _factor(bijector, x):
  normal = tfd.MultivariateNormalDiag(x * tf.ones(3))
  return tfb.Chain([tfb.CholeskyOuterProduct(), bijector])(normal)


_ONE = tfd.Normal(0.0, 1.0)
_SCALED = tfb.Chain([tfb.Exp(), tfb.Square(), tfb.Scale(3.0)])
_FOLDED = dict(
  square=lambda x: tfb.Square()(tfd.Normal(x, 1.0)),
  power=lambda x: tfd.Sample(tfb.Power(2.0)(tfd.Normal(x, 1.0)), 3),
  negative_power=lambda x: tfb.Power(-2.0)(tfd.Normal(x, 1.0)),
  broken_power=lambda x: tfb.Power(1.5)(tfd.Normal(x, 1.0)),
  chain=lambda x: _SCALED(tfd.Normal(x, 1.0)),
  shift=lambda x: tfb.Chain([tfb.Square(), tfb.Shift(x)])(_ONE),
  uniform=lambda x: tfb.Square()(tfd.Uniform(-tf.exp(x), tf.exp(x))),
  factor=lambda x: _factor(tfb.FillTriangular(), x),
  own=lambda x: _Cosh()(tfd.Normal(x, 1.0)),
)
_NOT_FOLDED = dict(
  positive=lambda x: tfb.Power(2.0)(tfd.Exponential(tf.exp(x))),
  uniform=lambda x: tfb.Square()(tfd.Uniform(0.0, tf.exp(x))),
  counts=lambda x: tfb.Square()(tfd.Poisson(tf.exp(x))),
  odd=lambda x: tfb.Power(3.0)(tfd.Normal(x, 1.0)),
  chain=lambda x: tfb.Chain([tfb.Square(), tfb.Exp(), tfb.Shift(x)])(_ONE),
  far=lambda x: tfb.Chain([tfb.Square(), tfb.Shift(1e7)])(
    tfd.Exponential(tf.exp(x))
  ),
  negative_scale=lambda x: tfb.Scale(-2.0)(tfd.Normal(x, 1.0)),
  factor=lambda x: _factor(tfb.FillScaleTriL(), x),
)


_DATA_OF = dict(
  factor=np.float32([[2.0, 0.5], [0.5, 1.0]]), power=[4.0] * 3, far=4e14
)


@pytest.mark.parametrize('name', _FOLDED)
def test_a_transformation_that_loses_draws_is_refused(name):
  with pytest.raises(ValueError, match='is not one to one.*AbsoluteValue'):
    _checked(_FOLDED[name], _DATA_OF.get(name, 4.0))


@pytest.mark.parametrize('name', _NOT_FOLDED)
def test_a_transformation_that_is_one_to_one_for_its_draws_is_not(name):
  _checked(_NOT_FOLDED[name], _DATA_OF.get(name, 4.0))


def test_an_unknown_is_not_drawn_through_a_square():
  square = lambda base: tfd.JointDistributionNamedAutoBatched(
    dict(x=tfb.Square()(base), y=lambda x: tfd.Normal(x, 1.0))
  )
  with pytest.raises(ValueError, match="'x' .*Draw the unknown from `tfd.Nor"):
    data.checked(square(_ONE), dict(y=1.0))
  data.checked(square(tfd.LogNormal(0.0, 1.0)), dict(y=1.0))


_SECONDS = 1.7e9 + 30.0 * np.sin(np.arange(40.0))


@pytest.mark.parametrize(
  'value, words',
  [
    (_SECONDS, 'becomes 1700000000. The error is'),
    (np.int64(_SECONDS), 'becomes 1700000000. The error is'),
    (tf.constant(_SECONDS), 'becomes 1700000000. The error is'),
    # The first column has a large spread and the other one a small spread.
    (np.stack([1e9 * np.sin(np.arange(40.0)), _SECONDS], -1), 'becomes 17000'),
    (np.ma.masked_equal(np.append(_SECONDS, 0.0), 0.0), 'becomes 1700000000'),
    (np.array([1.0, 1e39]), 'becomes inf'),
  ],
)
def test_data_that_float32_rounds_are_refused_or_warned_of(value, words):
  def law(dtype):
    ones = np.ones(np.shape(value), dtype)
    normal = tfd.Normal(1.7e9 * ones, 99.0 * ones)
    return tfd.Masked(normal, ~np.ma.getmaskarray(np.ma.asarray(value)))

  with pytest.raises(ValueError, match=words):
    _checked(lambda x: law(np.float32), value)
  _checked(lambda x: law(np.float64), value)


def test_data_that_float32_rounds_a_little_bring_a_warning():
  few = lambda x: tfd.Sample(tfd.Normal(x, 1.0), 40)
  with pytest.warns(UserWarning, match='are rounded to float32'):
    _checked(few, _SECONDS - 1.699e9)
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    _checked(few, _SECONDS - 1.69999e9)
    _checked(few, np.full(40, 1.7e9 + 1.0))  # Their spread is not known.
    _checked(few, np.float32(_SECONDS))
