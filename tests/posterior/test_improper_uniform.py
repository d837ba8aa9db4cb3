"""Flat priors: their density, every kind of joint distribution, the posterior.

The density in unconstrained space is compared with closed forms. A posterior
under a flat prior is normalized by hand, so constants are compared as well.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import special
from scipy import stats

import tfp_adaptive as tfpa
from tfp_adaptive import improper_uniform
from tfp_adaptive.posterior.model import problem as problem_lib

tfb = tfp.bijectors
tfd = tfp.distributions

Flat = tfpa.ImproperUniform
_Y = np.float64([2.1, 3.4, 1.9, 4.2, 2.7, 3.3])
_N, _MEAN = len(_Y), np.mean(_Y)
_SQUARES = np.sum((_Y - _MEAN) ** 2)


def _flat64(*args, **kwargs):
  return Flat(*args, dtype=tf.float64, **kwargs)


def _rows(problem, seed=0, count=5):
  rows = np.random.default_rng(seed).normal(size=(count, problem.event_size))
  return tf.constant(rows, problem.dtype)


def _values(problem, rows):
  return np.asarray(problem.target_log_prob_fn(rows))


# Supports: event shape, bijector, a value inside, values outside.
_SUPPORTS = {
  'reals': ((), None, 3.0, [np.nan, np.inf]),
  'vector': (2, None, [3.0, -1.0], [[np.inf, 0.0], [0.0, np.nan]]),
  'positive': ((), tfb.Exp, 3.0, [-1.0, np.nan, np.inf]),
  'softplus': ((), tfb.Softplus, 3.0, [-1.0]),
  'interval': ((), lambda: tfb.Sigmoid(-1.0, 2.0), 1.5, [-1.1, 2.1]),
  'tensor bounds': (
    [2], lambda: tfb.Sigmoid(tf.constant([0.0, 1.0]), tf.constant([1.0, 3.0])),
    [0.5, 2.5], [[0.5, 0.5], [2.5, 2.5]],
  ),
  'softsign': ((), tfb.Softsign, -0.9, [-5.0, -1.0, 1.0, 1.01, 2.0]),
  'shifted softsign': (
    [2], lambda: tfb.Chain([tfb.Shift(1e3), tfb.Scale(-2.0), tfb.Softsign()]),
    [998.5, 1000.0], [[998.5, 1002.5], [997.0, 1000.0]],
  ),
  'exp of softsign': (
    (), lambda: tfb.Chain([tfb.Exp(), tfb.Softsign()]), 2.0, [0.2, 3.0, -1.0],
  ),
  'below zero': (
    (), lambda: tfb.Chain([tfb.Scale(-2.0), tfb.Exp()]), -0.1, [0.1],
  ),
  'simplex': (
    3, tfb.SoftmaxCentered, [0.2, 0.3, 0.5],
    [[0.2, 0.3, 0.6], [0.2, -0.3, 1.1]],
  ),
  'ordered': (3, tfb.Ascending, [-1.0, 0.0, 4.0], [[0.0, -1.0, 4.0]]),
  'correlation factor': (
    [2, 2], tfb.CorrelationCholesky, [[1.0, 0.0], [0.6, 0.8]],
    [[[1.0, 0.0], [0.6, 0.9]], [[1.0, 0.5], [0.6, 0.8]]],
  ),
  'triangular': (
    [2, 2], tfb.FillScaleTriL, [[1.0, 0.0], [5.0, 2.0]],
    [[[1.0, 1.0], [5.0, 2.0]], [[1.0, 0.0], [5.0, -2.0]]],
  ),
  'covariance': (
    [2, 2],
    lambda: tfb.Chain([tfb.CholeskyOuterProduct(), tfb.FillScaleTriL()]),
    [[2.0, 1.0], [1.0, 3.0]], [[[1.0, 2.0], [2.0, 1.0]]],
  ),
}  # fmt: skip


def _law(name, dtype=tf.float32):
  shape, make, inside, outside = _SUPPORTS[name]
  law = Flat(shape, None if make is None else make(), dtype)
  return law, tf.constant(inside, dtype), tf.constant(outside, dtype)


@pytest.mark.parametrize('jit_compile', [False, True])
@pytest.mark.parametrize('name', _SUPPORTS)
def test_the_density_is_one_inside_and_zero_outside(name, jit_compile):
  law, inside, outside = _law(name)
  log_prob = tf.function(law.log_prob, autograph=False, jit_compile=jit_compile)
  assert float(log_prob(inside)) == 0.0
  np.testing.assert_array_equal(log_prob(outside), [-np.inf] * len(outside))
  # A point of the support that `sample` returns, one for each draw.
  points = law.sample([4, 3], seed=(0, 1))
  assert points.shape[2:] == law.event_shape
  np.testing.assert_array_equal(log_prob(points), np.zeros([4, 3]))


_OF_REALS = {
  'sinh': tfb.Sinh,
  'inverse of sinh': lambda: tfb.Invert(tfb.Sinh()),
  'sinh-arcsinh': lambda: tfb.SinhArcsinh(skewness=0.5),
  'cube': lambda: tfb.Power(3.0),
}


@pytest.mark.parametrize('name', _OF_REALS)
def test_bijectors_onto_all_numbers_leave_none_out(name):
  values = tf.constant([-80.0, -5.0, 0.0, 1e-3, 0.2, 5.0, 80.0])
  np.testing.assert_array_equal(
    Flat((), _OF_REALS[name]()).log_prob(values), np.zeros([7])
  )


@pytest.mark.parametrize('name', ['reals', 'vector', 'positive', 'softplus'])
@pytest.mark.parametrize('dtype', [tf.float32, tf.float64])
def test_large_and_small_values_are_inside(name, dtype):
  law, inside, _ = _law(name, dtype)
  for size in (1e-20, 1e-6, 1e6, 1e20):
    assert float(law.log_prob(size * tf.abs(inside))) == 0.0


def test_values_near_the_boundary_are_inside_as_far_as_floats_tell_them():
  ordered, _, _ = _law('ordered')
  assert float(ordered.log_prob([1e6, 1e6 + 0.25, 1e6 + 1e5])) == 0.0
  interval, _, _ = _law('interval')
  eps = np.finfo(np.float32).eps
  close = tf.constant([-1.0 + eps, 2.0 - 4 * eps])
  np.testing.assert_array_equal(interval.log_prob(close), [0.0, 0.0])
  simplex, _, _ = _law('simplex')
  assert float(simplex.log_prob([1e-30, 1e-10, 1.0])) == 0.0


def test_draws_are_uniform_within_two_in_unconstrained_space():
  law = Flat((), tfb.Exp())
  z = np.log(law.sample(2000, seed=(3, 4)))
  assert stats.kstest(z, stats.uniform(-2, 4).cdf).pvalue > 1e-3
  assert stats.kstest(np.exp(z), stats.uniform(-2, 4).cdf).pvalue < 1e-9


def test_it_slices_copies_and_passes_through_functions_as_tfp_does():
  law = Flat((), tfb.Sigmoid(tf.constant([0.0, 1.0]), tf.constant([1.0, 3.0])))
  assert law.batch_shape == [2] and law.event_shape == []
  assert law[1].batch_shape == []
  np.testing.assert_array_equal(law[1].log_prob([0.5, 2.5]), [-np.inf, 0.0])
  assert law.copy(event_shape=2).batch_shape == []
  assert law.copy(name='x').parameters['bijector'] is law.bijector
  through = tf.function(lambda law, x: law.log_prob(x), autograph=False)
  np.testing.assert_array_equal(through(law, [0.5, 0.5]), [0.0, -np.inf])
  flattened = tf.nest.flatten(law, expand_composites=True)
  again = tf.nest.pack_sequence_as(law, flattened, expand_composites=True)
  np.testing.assert_array_equal(again.log_prob(0.5), [0.0, -np.inf])


def test_the_gradient_of_the_density_is_zero_and_not_nan():
  for name in _SUPPORTS:
    law, inside, _ = _law(name)
    of = lambda x, law=law: law.log_prob(x) + 0.0 * tf.reduce_sum(x)
    assert not np.any(tfp.math.value_and_gradient(of, inside)[1])


# Joint distributions: a normal sample of unknown mean and deviation.


def _coroutine():
  mean = yield _flat64(name='mean')
  scale = yield _flat64((), tfb.Exp(), name='scale')
  yield tfd.Sample(tfd.Normal(mean, scale), _N, name='y')


def _rooted():
  root = tfd.JointDistributionCoroutine.Root
  mean = yield root(_flat64(name='mean'))
  scale = yield root(_flat64((), tfb.Exp(), name='scale'))
  ones = tf.ones([_N], tf.float64)
  law = tfd.Normal(mean[..., tf.newaxis] * ones, scale[..., tf.newaxis])
  yield tfd.Independent(law, 1, name='y')


def _parts():
  return dict(
    mean=_flat64(),
    scale=_flat64((), tfb.Exp()),
    y=lambda mean, scale: tfd.Sample(tfd.Normal(mean, scale), _N),
  )


def _listed():
  return [
    _flat64(),
    _flat64((), tfb.Exp()),
    lambda scale, mean: tfd.Sample(tfd.Normal(mean, scale), _N),
  ]


def _in_sample():
  both = yield tfd.Sample(_flat64(), 1, name='mean')
  scale = yield tfd.Sample(_flat64((), tfb.Exp()), [1, 1], name='scale')
  yield tfd.Sample(tfd.Normal(both[0], scale[0, 0]), _N, name='y')


def _in_independent():
  zero = tf.zeros([1], tf.float64)
  bijector = tfb.Chain([tfb.Shift(zero), tfb.Exp()])
  mean = yield _flat64(1, name='mean')
  scale = yield tfd.Independent(_flat64((), bijector), 1, name='scale')
  yield tfd.Sample(tfd.Normal(mean[0], scale[0]), _N, name='y')


def _nested():
  inner = tfd.JointDistributionNamed(
    dict(mean=_flat64(), scale=_flat64((), tfb.Exp()))
  )
  return tfd.JointDistributionNamed(
    dict(
      inner=inner,
      y=lambda inner: tfd.Independent(
        tfd.Normal(
          inner['mean'][..., tf.newaxis] * tf.ones([_N], tf.float64),
          inner['scale'][..., tf.newaxis],
        ),
        1,
      ),
    )
  )


_JOINT = {
  'coroutine, batched': lambda: tfd.JointDistributionCoroutineAutoBatched(
    _coroutine
  ),
  'coroutine': lambda: tfd.JointDistributionCoroutine(_rooted),
  'named, batched': lambda: tfd.JointDistributionNamedAutoBatched(_parts()),
  'named': lambda: tfd.JointDistributionNamed(_parts()),
  'sequential, batched': lambda: tfd.JointDistributionSequentialAutoBatched(
    _listed()
  ),
  'sequential': lambda: tfd.JointDistributionSequential(_listed()),
  'sample': lambda: tfd.JointDistributionCoroutineAutoBatched(_in_sample),
  'independent': lambda: tfd.JointDistributionCoroutineAutoBatched(
    _in_independent
  ),
  'nested': _nested,
}
_PLAIN = ('named', 'sequential')  # Chains come first: `y` needs an axis more.


def _log_posterior(mean, log_scale):
  """p(mean, log scale | y) under a flat prior on (mean, scale), normalized.

  scale**2 is inverse gamma, mean given scale is normal.
  """
  scale = np.exp(log_scale)
  variance = stats.invgamma((_N - 2) / 2, scale=_SQUARES / 2)
  return (
    stats.norm(_MEAN, scale / np.sqrt(_N)).logpdf(mean)
    + variance.logpdf(scale**2)
    + np.log(2.0 * scale)  # From the variance to the scale,
    + log_scale  # and to its logarithm.
  )


def _log_evidence():
  """The log of the integral of the likelihood over (mean, scale)."""
  return (
    special.gammaln(_N / 2 - 1)
    - (_N / 2 - 1) * np.log(_SQUARES / 2)
    - np.log(2.0)
    - (_N - 1) / 2 * np.log(2 * np.pi)
    - 0.5 * np.log(_N)
  )


@pytest.mark.parametrize('kind', _JOINT)
def test_every_joint_distribution_has_the_density_by_hand(kind):
  model = _JOINT[kind]()
  if kind in _PLAIN:
    rows = np.random.default_rng(0).normal(size=(5, 2))
    found = [_plain_density(model, row) for row in rows]
  else:
    problem = problem_lib.of_joint(model, {_data_name(model): _Y})
    rows = _rows(problem).numpy()
    found = _values(problem, rows)
    assert problem.draw_prior is None
    assert problem.dtype == tf.float64
  expected = _log_posterior(*rows.T) + _log_evidence()
  np.testing.assert_allclose(found, expected, rtol=1e-10)
  # The model has starting points of the right shapes, in the supports.
  drawn = model.sample(3, seed=(0, 1))
  shapes = [part.shape for part in tf.nest.flatten(drawn)]
  assert all(shape[0] == 3 for shape in shapes)
  assert np.all(np.isfinite(model.log_prob(drawn)))
  # The prior 1 / scale is another posterior: the comparison sees it.
  assert np.ptp(found - (expected - rows[:, 1])) > 0.1


def _data_name(model):
  """Returns the name of the data: TFP names the last part of a list."""
  return (
    'x'
    if isinstance(model.event_shape, (list, tuple))
    and not hasattr(model.event_shape, '_fields')
    else 'y'
  )


def _plain_density(model, row):
  """Returns the density of a model that is not written for chains."""
  pinned = model.experimental_pin(**{_data_name(model): _Y})
  bijector = pinned.experimental_default_event_space_bijector()
  z = tf.nest.pack_sequence_as(pinned.event_shape, list(row))
  determinant = bijector.forward_log_det_jacobian(
    z, tf.nest.map_structure(lambda _: 0, z)
  )
  return pinned.unnormalized_log_prob(bijector.forward(z)) + determinant


def _of_parts(data, **parts):
  model = tfd.JointDistributionNamedAutoBatched(parts)
  return problem_lib.of_joint(model, data)


def test_a_simplex_has_the_dirichlet_posterior():
  counts = np.float64([3.0, 0.0, 5.0])
  problem = _of_parts(
    dict(counts=counts),
    shares=_flat64(3, tfb.SoftmaxCentered()),
    counts=lambda shares: tfd.Multinomial(np.float64(8.0), probs=shares),
  )
  assert problem.event_size == 2
  rows = _rows(problem)
  shares = np.asarray(problem.constrain(rows)['shares'])
  expected = stats.dirichlet(counts + 1.0).logpdf(shares.T)
  # The determinant of the softmax is the product of all shares.
  gap = _values(problem, rows) - expected - np.log(shares).sum(axis=-1)
  assert np.ptp(gap) < 1e-10
  assert np.ptp(gap + np.log(shares).sum(axis=-1)) > 0.1


def test_ordered_means_have_the_truncated_normal_posterior():
  y = np.float64([0.3, -0.2])
  problem = _of_parts(
    dict(y=y),
    means=_flat64(2, tfb.Ascending()),
    y=lambda means: tfd.Independent(tfd.Normal(means, np.float64(1.0)), 1),
  )
  rows = _rows(problem).numpy()
  means = np.asarray(problem.constrain(tf.constant(rows))['means'])
  assert np.all(np.diff(means) > 0.0)
  expected = stats.norm(y).logpdf(means).sum(axis=-1) + rows[:, 1]
  np.testing.assert_allclose(_values(problem, rows), expected, rtol=1e-10)


def test_a_correlation_factor_differs_from_lkj_by_its_density():
  size = 4

  def problem_of(prior):
    return _of_parts(
      dict(y=np.zeros([size])),
      factor=prior,
      y=lambda factor: tfd.MultivariateNormalTriL(
        np.zeros([size]), scale_tril=factor
      ),
    )

  flat = problem_of(_flat64([size, size], tfb.CorrelationCholesky()))
  lkj = problem_of(tfd.CholeskyLKJ(size, np.float64(1.5)))
  rows = _rows(flat)
  diagonal = np.diagonal(flat.constrain(rows)['factor'], axis1=-2, axis2=-1)
  # log LKJ(L) = sum_k (size - k + 2 eta - 2) log L_kk, up to a constant.
  powers = size - np.arange(1, size + 1) + 2 * 1.5 - 2
  gap = _values(lkj, rows) - _values(flat, rows)
  assert np.ptp(gap - np.log(diagonal) @ powers) < 1e-10
  assert np.ptp(gap) > 0.1


def test_bounds_may_depend_on_other_unknowns():
  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    low = yield _flat64(name='low')
    high = yield _flat64(
      (), tfb.Chain([tfb.Shift(low), tfb.Exp()]), name='high'
    )
    yield _flat64((), tfb.Sigmoid(low, high), name='between')
    yield tfd.Normal(low + high, np.float64(1.0), name='y')

  problem = problem_lib.of_joint(model, dict(y=np.float64(1.0)))
  rows = _rows(problem).numpy()
  state = problem.constrain(tf.constant(rows))
  low, high = np.asarray(state.low), np.asarray(state.high)
  share = special.expit(rows[:, 2])
  np.testing.assert_allclose(state.between, low + (high - low) * share)
  expected = stats.norm(low + high).logpdf(1.0) + rows[:, 1]
  expected += np.log((high - low) * share * (1.0 - share))
  np.testing.assert_allclose(_values(problem, rows), expected, rtol=1e-9)


def test_a_part_is_found_wherever_it_hides():
  hiding = [
    Flat(),
    tfd.Sample(Flat(), 3),
    tfd.Independent(tfd.Sample(Flat(2, tfb.Exp()), 2), 0),
    tfd.BatchReshape(tfd.BatchBroadcast(Flat(), [4]), [2, 2]),
    tfb.Shift(1.0)(Flat()),
    tfd.Masked(Flat(), True),
    *[make() for make in _JOINT.values()],
    _JOINT['named']().experimental_pin(y=_Y),
    tfd.JointDistributionSequential([tfd.Normal(0.0, 1.0), _nested()]),
  ]
  for law in hiding:
    assert improper_uniform.has_flat_part(law), law
  proper = tfd.JointDistributionNamed(
    dict(x=tfd.Normal(0.0, 1.0), y=lambda x: tfd.Sample(tfd.Normal(x, 1.0), 3))
  )
  assert not improper_uniform.has_flat_part(proper)
  data = dict(y=np.zeros([3], np.float32))
  # A model without such a part keeps the draws of its prior.
  batched = tfd.JointDistributionNamedAutoBatched(
    dict(x=tfd.Normal(0.0, 1.0), y=lambda x: tfd.Sample(tfd.Normal(x, 1.0), 3))
  )
  assert problem_lib.of_joint(batched, data).draw_prior is not None


@pytest.mark.parametrize(
  'arguments, error, words',
  [
    (dict(event_shape=[None]), ValueError, 'event_shape.*number on every axis'),
    (dict(event_shape=[2, 0]), ValueError, 'event_shape.*positive number'),
    (dict(dtype=tf.int32), ValueError, 'dtype.*int32.*Write `tf.float32`'),
    (dict(bijector=tfb.Exp), TypeError, '`tfb.Exp\\(\\)` with its parentheses'),
    (
      dict(bijector=tfb.Chain([tfb.Exp(), tfb.Shift(np.zeros([3]))])),
      ValueError,
      'float64.*float32.*dtype=tf.float64',
    ),
    (dict(bijector=tfb.SoftmaxCentered()), ValueError, '1 axes or more'),
    (
      dict(event_shape=[3, 2], bijector=tfb.CorrelationCholesky()),
      ValueError,
      'correlation_cholesky cannot make values of the shape \\[3, 2\\]',
    ),
  ],
)
def test_what_is_no_flat_prior_is_refused(arguments, error, words):
  with pytest.raises(error, match=f'(?s){words}'):
    Flat(**arguments)


def test_a_value_of_another_shape_is_refused():
  law = Flat(3)
  assert law.log_prob(tf.zeros([5, 3])).shape == [5]
  with pytest.raises(ValueError, match=r'must be \[3\], the event shape'):
    law.log_prob(tf.zeros([5, 4]))
  with pytest.raises(ValueError, match=r'must be \[3\], the event shape'):
    law.log_prob(0.0)


@pytest.mark.full
@pytest.mark.parametrize('is_flat_in_log', [False, True])
def test_draws_of_mean_and_scale_follow_student_and_inverse_chi(is_flat_in_log):
  scale = Flat() if is_flat_in_log else Flat((), tfb.Exp())
  number = tf.exp if is_flat_in_log else tf.identity
  model = tfd.JointDistributionNamedAutoBatched(
    dict(
      mean=Flat(),
      scale=scale,
      y=lambda mean, scale: tfd.Sample(tfd.Normal(mean, number(scale)), _N),
    )
  )
  posterior = tfpa.sample_posterior(
    model,
    y=np.float32(_Y),
    num_draws=1000,
    num_chains=4,
    max_gradients=40_000,
    progress=False,
  )
  # Its neck at small scales leaves some proposals nowhere to go.
  assert all('diverg' in failed for failed in posterior.failed), posterior
  degrees = _N - 1 if is_flat_in_log else _N - 2
  spread = np.sqrt(_SQUARES / (_N * degrees))
  scales = posterior.states['scale']
  scales = np.exp(scales) if is_flat_in_log else scales
  size = np.min(posterior.summary()['bulk'])
  mean = stats.t(degrees, _MEAN, spread)
  variance = stats.invgamma(degrees / 2, scale=_SQUARES / 2)
  # Data drawn anew have a t distribution, too, that is wider.
  anew = stats.t(degrees, _MEAN, spread * np.sqrt(_N + 1))
  drawn = posterior.posterior_predictive(seed=1)['y'][..., 0]
  for level in (0.1, 0.5, 0.9):
    tolerance = 5.0 * np.sqrt(level * (1 - level) / size)
    for values, law in (
      (posterior.states['mean'], mean),
      (scales**2, variance),
      (drawn, anew),
    ):
      assert abs(np.mean(values <= law.ppf(level)) - level) < tolerance
  # The other prior is told apart by the same numbers.
  wrong = stats.invgamma((2 * _N - 3 - degrees) / 2, scale=_SQUARES / 2)
  share = np.mean(scales**2 <= wrong.ppf(0.5))
  assert abs(share - 0.5) > 5.0 * 0.5 / np.sqrt(size)


_OFFSET = {
  'shifted exp': ((), lambda: tfb.Shift(-100.0)(tfb.Exp()), [0.0, 1e-8, 1e-3]),
  'interval': ((), lambda: tfb.Sigmoid(-1.0, 1.0), [1e-8, 3e-6, -1e-7]),
  'softplus': ((), lambda: tfb.Shift(-1e4)(tfb.Softplus()), [0.0, 1e-3, 5.0]),
  'ordered': (
    [3],
    lambda: tfb.Shift(-100.0)(tfb.Ascending()),
    [-1e-3, 0, 1e-3],
  ),
}


@pytest.mark.parametrize('name', _OFFSET)
def test_values_near_zero_are_inside_whatever_the_offset(name):
  shape, bijector, values = _OFFSET[name]
  flat = Flat(shape, bijector())
  np.testing.assert_array_equal(flat.log_prob(np.float32(values)), 0.0)
  if name == 'ordered':
    assert float(flat.log_prob(np.float32([1.0, -1.0, 2.0]))) == -np.inf


@pytest.mark.parametrize('is_joint', [True, False])
@pytest.mark.parametrize(
  'make, shape, outside',
  [(tfb.Softsign, [], 2.0), (tfb.SoftmaxCentered, [3], [0.2, 0.3, 0.8])],
)
def test_starts_outside_whose_inverse_is_finite_are_refused(
  is_joint, make, shape, outside
):
  bijector = make()
  inside = bijector.forward(tf.zeros(bijector.inverse_event_shape(shape)))
  for last in (inside, outside):
    init = dict(x=np.stack([inside, inside, inside, last]))
    if is_joint:
      model = tfd.JointDistributionNamedAutoBatched(
        dict(x=Flat(shape, bijector), y=lambda x: tfd.Normal(x, 1.0))
      )
      arguments = model, dict(y=tf.zeros(shape)), init, 4
      of = problem_lib.of_joint
    else:
      init['x'] = tf.constant(init['x'], tf.float32)
      arguments = (lambda p: p['x']), init, dict(x=bijector), 4
      of = problem_lib.of_density
    if last is inside:
      of(*arguments)
      continue
    with pytest.raises(ValueError, match='for chain 3, outside of the support'):
      of(*arguments)
