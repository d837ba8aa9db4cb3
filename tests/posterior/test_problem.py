"""Models as densities over vectors: change of variables, names, refusals."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import tfp_adaptive as tfpa
from tfp_adaptive.posterior.model import data as data_lib
from tfp_adaptive.posterior.model import problem as problem_lib

tfb = tfp.bijectors
tfd = tfp.distributions

_DATA = np.float64([0.5, -1.0, 2.0])


def _model():
  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    mu = yield tfd.Normal(np.float64(0.0), 2.0, name='mu')
    tau = yield tfd.HalfNormal(np.float64(1.5), name='tau')
    theta = yield tfd.Sample(tfd.Normal(mu, tau), 3, name='theta')
    yield tfd.Uniform(np.float64(-1.0), 1.0, name='share')
    yield tfd.Normal(theta, np.float64(1.0), name='y')

  return model


def _log_normal(x, loc, scale):
  return -0.5 * ((x - loc) / scale) ** 2 - np.log(scale * np.sqrt(2 * np.pi))


def test_the_density_of_a_joint_distribution_is_that_by_hand():
  problem = problem_lib.of_joint(_model(), dict(y=_DATA))
  assert problem.event_size == 6 and problem.dtype == tf.float64
  rows = np.random.default_rng(0).normal(size=(4, 6))
  state = problem.constrain(tf.constant(rows))
  mu, tau, share = (
    np.asarray(getattr(state, n)) for n in ('mu', 'tau', 'share')
  )
  theta = np.asarray(state.theta)
  assert np.all(tau > 0.0) and np.all(np.abs(share) < 1.0)
  expected = (
    _log_normal(mu, 0.0, 2.0)
    + np.log(2.0)
    + _log_normal(tau, 0.0, 1.5)
    + _log_normal(theta, mu[:, None], tau[:, None]).sum(axis=1)
    + _log_normal(_DATA, theta, 1.0).sum(axis=1)
    - np.log(2.0)
  )
  # And the determinant, by differences of the map itself.
  step = 1e-6
  for i in range(6):
    moved = rows.copy()
    moved[:, i] += step
    after = problem.constrain(tf.constant(moved))
    change = sum(
      np.abs(np.asarray(a) - np.asarray(b)).reshape(4, -1).sum(axis=1)
      for a, b in zip(after, state)
    )
    expected = expected + np.log(change / step)
  found = problem.target_log_prob_fn(tf.constant(rows))
  np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize('pins', [{}, dict(share=0.5)])
def test_what_is_observed_is_known_wherever_it_was_pinned(pins):
  pinned = _model().experimental_pin(y=_DATA)
  observed = problem_lib.of_joint(pinned, pins).observed
  assert set(observed) == {'y', *pins}
  np.testing.assert_array_equal(observed['y'], _DATA)
  assert problem_lib.of_joint(_model(), {}).observed == {}


def _starts(num_chains=4):
  random = np.random.default_rng(3)
  return dict(
    mu=random.normal(size=num_chains),
    tau=random.uniform(0.5, 2.0, num_chains),
    theta=random.normal(size=(num_chains, 3)),
    share=random.uniform(-0.9, 0.9, num_chains),
  )


def _as_namedtuple(starts):
  names = sorted(starts)  # Another order than that of the model.
  kind = collections.namedtuple('Starts', names)
  return kind(**starts)


@pytest.mark.parametrize(
  'structured', [dict, _as_namedtuple, lambda parts: tuple(parts.values())]
)
def test_a_joint_distribution_starts_where_it_is_told_to(structured):
  starts = _starts()
  init = structured(starts)
  problem = problem_lib.of_joint(_model(), dict(y=_DATA), init, 4)
  state = problem.constrain(problem.draw_starts(4, tf.constant([1, 2])))
  for name, part in starts.items():
    np.testing.assert_allclose(getattr(state, name), part, rtol=1e-6)
  # Where the density is not finite there nobody else's starts are taken.
  assert problem.draw_prior is None


_A, _B = np.float32([1.0, 2.0]), np.float32([3.0, 4.0])


@pytest.mark.parametrize(
  'init', [dict(g=dict(a=_A, b=_B)), {'g.a': _A, 'g.b': _B}]
)
def test_starts_of_a_model_inside_of_the_model(init):
  inner = tfd.JointDistributionNamed(
    dict(b=tfd.Normal(0.0, 1.0), a=tfd.Normal(0.0, 1.0))
  )
  model = tfd.JointDistributionNamed(
    dict(g=inner, y=lambda g: tfd.Normal(g['a'] + g['b'], 1.0))
  )
  problem = problem_lib.of_joint(model, dict(y=1.0), init, 2)
  state = problem.constrain(problem.draw_starts(2, tf.constant([1, 2])))
  np.testing.assert_array_equal(state['g']['a'], _A)
  np.testing.assert_array_equal(state['g']['b'], _B)


@pytest.mark.parametrize(
  'init, message',
  [
    (dict(mu=np.zeros(4)), 'has the parts mu, but the unknowns .* mu, tau, th'),
    (tf.TensorSpec([3]), r"of 4 chains for each by name, `init={'mu': arr"),
    (dict(_starts(), mu=tf.TensorSpec([])), r'of mu must .* got TensorSpec'),
    (
      dict(_starts(), tau=-np.ones(4)),
      'of tau is -1.0 for chain 0, outside of the',
    ),
    (
      dict(_starts(), theta=np.zeros([4, 2])),
      r'`init` of theta must be .* \(4, 3\), .* got the shape \(4, 2\)',
    ),
  ],
)
def test_starts_that_are_none_of_the_model_are_refused(init, message):
  with pytest.raises(ValueError, match=message):
    problem_lib.of_joint(_model(), dict(y=_DATA), init, 4)


def test_parts_and_coordinates_have_the_models_names():
  problem = problem_lib.of_joint(_model(), dict(y=_DATA))
  assert problem.names == ('mu', 'tau', 'theta', 'share')
  effects = [f'theta[{i}]' for i in range(3)]
  assert problem.coordinates == ('mu', 'tau', *effects, 'share')


def test_prior_draws_come_back_as_they_are():
  problem = problem_lib.of_joint(_model(), dict(y=_DATA))
  draws = problem.draw_prior(500, tf.constant([1, 2]))
  state = problem.constrain(draws)
  assert draws.shape == (500, 6)
  assert abs(np.std(state.mu) - 2.0) < 0.3
  assert np.abs(state.share).max() <= 1.0


def _of_density(**options):
  return problem_lib.of_density(
    lambda scale, x: -scale - 0.5 * tf.reduce_sum(x**2, axis=-1),
    **{
      'init': [tf.TensorSpec([], tf.float64), tf.TensorSpec([2], tf.float64)],
      'bijectors': [tfb.Exp(), None],
      'num_chains': 3,
      **options,
    },
  )


def test_a_density_gets_the_determinant_of_its_bijectors():
  problem = _of_density()
  rows = np.random.default_rng(2).normal(size=(3, 3))
  expected = -np.exp(rows[:, 0]) + rows[:, 0]
  expected -= 0.5 * np.sum(rows[:, 1:] ** 2, axis=1)
  found = problem.target_log_prob_fn(tf.constant(rows))
  np.testing.assert_allclose(found, expected, rtol=1e-12)
  assert problem.names == ('x0', 'x1')


def test_starts_that_are_given_are_mapped_to_unconstrained_space():
  starts = [np.exp([0.0, 1.0, 2.0]), np.ones([3, 2])]
  problem = _of_density(init=starts)
  found = problem.draw_starts(3, tf.constant([0, 0]))
  np.testing.assert_allclose(found[:, 0], [0.0, 1.0, 2.0], atol=1e-12)


@pytest.mark.parametrize('kind', ['dict', 'namedtuple'])
@pytest.mark.parametrize('order', ['scale first', 'effects first'])
def test_bijectors_go_by_name_and_not_by_place(kind, order):
  specs = dict(scale=tf.TensorSpec([]), effects=tf.TensorSpec([2]))
  keys = sorted(specs, reverse=order == 'scale first')
  init = {key: specs[key] for key in keys}
  if kind == 'namedtuple':
    init = collections.namedtuple('Parts', keys)(**init)
  log_prob = lambda x: (
    0.0 * tf.reduce_sum(x[0] if kind != 'dict' else x['scale'])
  )
  for bijectors in (
    {'scale': tfb.Exp()},
    {'effects': None, 'scale': tfb.Exp()},
  ):
    problem = problem_lib.of_density(log_prob, init, bijectors, num_chains=2)
    state = problem.constrain(tf.constant([[-3.0, -3.0, -3.0]] * 2))
    state = state if kind == 'dict' else state._asdict()
    assert np.all(state['scale'] > 0.0) and np.all(state['effects'] == -3.0)


def test_parts_of_a_sequential_model_have_their_names():
  model = tfd.JointDistributionSequential(
    [tfd.Normal(0.0, 1.0, name='mu'), lambda mu: tfd.Normal(mu, 1.0, name='y')]
  )
  name = [name for name, _ in model.resolve_graph()]
  problem = problem_lib.of_joint(model, {name[1]: 0.5})
  assert problem.names == (name[0],) == ('mu',)


def test_a_simplex_has_one_coordinate_less_and_the_law_of_the_model():
  model = tfd.JointDistributionNamed(
    dict(
      p=tfd.Dirichlet([2.0, 1.5, 1.0]), y=lambda p: tfd.Normal(p[..., 0], 0.3)
    )
  )
  problem = problem_lib.of_joint(model, dict(y=0.4))
  assert problem.event_size == 2
  axis = np.linspace(-12.0, 12.0, 401, dtype=np.float32)
  grid = np.stack(np.meshgrid(axis, axis, indexing='ij'), -1).reshape(-1, 2)
  np.testing.assert_allclose(
    tf.reduce_sum(problem.constrain(grid)['p'], -1), 1.0, atol=1e-5
  )
  total = np.exp(problem.target_log_prob_fn(grid)).sum() * (24.0 / 400) ** 2
  p = (np.arange(4000) + 0.5) / 4000  # p[0] ~ Beta(2, 2.5).
  expected = stats.beta(2.0, 2.5).pdf(p) * stats.norm(p, 0.3).pdf(0.4)
  # TFP measures the simplex by its area, sqrt(3) times that of two shares.
  np.testing.assert_allclose(total, np.sqrt(3) * expected.mean(), rtol=1e-3)


def _model_with_a_seed():
  return tfd.JointDistributionNamed(
    dict(rate=tfd.Gamma(2.0, 1.0), seed=lambda rate: tfd.Poisson(rate))
  )


def test_parts_that_are_named_as_options_are_given_in_data():
  observed = data_lib.joined({'seed': 3.0}, {})
  problem = problem_lib.of_joint(_model_with_a_seed(), observed)
  assert problem.names == ('rate',)
  assert problem.observed == {'seed': 3.0}
  rates = np.float32([[0.5], [2.0]])
  expected = stats.gamma.logpdf(rates, 2.0) + stats.poisson.logpmf(3, rates)
  found = problem.target_log_prob_fn(tf.math.log(rates)) - np.log(rates)[:, 0]
  np.testing.assert_allclose(found, expected[:, 0], rtol=1e-5)


@pytest.mark.parametrize(
  'given, error, message',
  [
    (dict(data={'seed': 3.0, 'rate': 1.0}, rate=1.0), ValueError, 'both in'),
    (dict(data=3.0), TypeError, r"`data` must be a mapping.*`data={'y': y}`"),
    (dict(data={1: 3.0}), TypeError, '`data` must be a mapping'),
  ],
)
def test_data_are_a_mapping_and_no_part_is_given_twice(given, error, message):
  with pytest.raises(error, match=message):
    tfpa.sample_posterior(_model_with_a_seed(), **given)


def test_data_by_position_are_refused_with_the_way_to_give_them():
  with pytest.raises(
    TypeError, match=r'2 arguments.*sample_posterior\(model, y'
  ):
    tfpa.sample_posterior(_model_with_a_seed(), 3.0)
