"""Starts, and densities that are none of each chain."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.posterior.density import Density
from tfp_adaptive.posterior.model import problem as problem_lib
from tfp_adaptive.posterior.starts import arrival
from tfp_adaptive.posterior.starts import ascent
from tfp_adaptive.posterior.starts import starts as starts_lib

tfd = tfp.distributions

_NUM_CHAINS, _SIZE = 4, 3
_SEED = tf.constant([1, 2])


def _problem(log_prob, dtype=tf.float64, **replaced):
  return problem_lib.of_density(
    log_prob, tf.TensorSpec([_SIZE], dtype), None, _NUM_CHAINS
  )._replace(**replaced)


def _found(log_prob, dtype=tf.float64, **replaced):
  problem = _problem(log_prob, dtype, **replaced)
  density = Density(problem, _NUM_CHAINS, dtype)
  return starts_lib.draw(problem, density, _NUM_CHAINS, _SEED)


def _drawn(log_prob, **replaced):
  starts = _found(log_prob, **replaced)
  return starts.rows, starts.num_redrawn


_normal = targets.standard_normal


def test_starts_lie_apart():
  starts, num_redrawn = _drawn(_normal)
  assert starts.shape == (_NUM_CHAINS, _SIZE) and num_redrawn == 0
  assert np.ptp(starts, axis=0).min() > 0.1 and np.abs(starts).max() <= 2.0


def test_starts_without_a_finite_density_are_drawn_again_and_counted():
  half = lambda x: tf.where(x[..., 0] > 0.0, _normal(x), np.nan)
  starts, num_redrawn = _drawn(half)
  assert np.all(starts[:, 0] > 0.0) and num_redrawn > 0


def test_starts_far_below_the_others_climb_and_stay_apart():
  cliff = lambda x: _normal(x) + 1e9 * tf.minimum(x[..., 0] - 1.0, 0.0)
  starts, _ = _drawn(cliff)
  assert np.all(starts[:, 0] > 1.0 - 1e-7) and np.ptp(starts[:, 1]) > 0.1
  # Starts that a user gave climb as well, but those that lie well stay.
  given = tf.constant([[-2.0] * 3, [1.5] * 3, [2.0] * 3, [1.0] * 3], tf.float64)
  starts, num_redrawn = _drawn(cliff, draw_starts=lambda *_: given)
  np.testing.assert_array_equal(starts[1:], given[1:])
  assert starts[0, 0] > 1.0 - 1e-7 and num_redrawn == 0


@pytest.mark.parametrize('dtype', [tf.float32, tf.float64])
@pytest.mark.parametrize('scales', [(1e-4, 1.0, 1e4), (1e5, 1e5, 1e-3)])
def test_starts_come_near_the_posterior_whatever_its_units(dtype, scales):
  scales = np.array(scales, dtype.as_numpy_dtype)
  far = lambda x: _normal(x / scales - 30.0)
  found = _found(far, dtype)
  starts = found.rows
  assert found.gain > 1e4
  depth = 0.5 * np.sum((starts / scales - 30.0) ** 2, axis=-1)
  assert np.all(depth < 1000.0) and np.unique(depth).size == _NUM_CHAINS


def test_starts_stay_in_the_mode_that_they_were_drawn_below():
  def two(x):
    return tf.reduce_logsumexp(
      [_normal(1e3 * (x - side)) for side in (-1.0, 1.0)], axis=0
    )

  given = tf.constant(
    [[-2.0] * 3, [2.0] * 3, [-0.5] * 3, [0.5] * 3], tf.float64
  )
  starts, _ = _drawn(two, draw_starts=lambda *_: given)
  np.testing.assert_allclose(starts, np.sign(given), atol=0.05)


def test_a_density_without_a_maximum_is_not_climbed_for_ever():
  # A funnel's neck: the density grows by eight nats for each unit of depth.
  def funnel(x):
    spread = x[..., :1]
    return -8.0 * spread[..., 0] + _normal(x[..., 1:] * tf.exp(-spread))

  starts, _ = _drawn(funnel)
  assert np.all(np.abs(starts[:, 0]) <= 2.0)


def test_where_none_is_near_zero_the_prior_is_drawn_from():
  far = lambda x: tf.where(x[..., 0] > 5.0, _normal(x), -np.inf)
  prior = lambda num_chains, seed: tf.fill(
    [num_chains, _SIZE], tf.constant(6.0, tf.float64)
  )
  starts, _ = _drawn(far, draw_prior=prior)
  np.testing.assert_array_equal(starts, 6.0)
  with pytest.raises(
    ValueError, match='log density is not finite at the starts of 4 of 4'
  ):
    _drawn(far)


def _fails(num_chains, seed):
  raise ValueError('must be wrapped in `Root`')


@pytest.mark.parametrize(
  'prior', [_fails, lambda *_: tf.zeros([1, _SIZE], tf.float64)]
)
def test_a_prior_that_cannot_be_drawn_of_chains_hides_nothing(prior):
  far = lambda x: tf.where(x[..., 0] > 5.0, _normal(x), -np.inf)
  with pytest.raises(
    ValueError, match='log density is not finite at the starts of 4 of 4'
  ):
    _drawn(far, draw_prior=prior)


@pytest.mark.parametrize(
  'log_prob, message',
  [
    (lambda x: -0.5 * tf.reduce_sum(x**2), r'shape \(\) for 4 chains'),
    (lambda x: -0.5 * x**2, r'shape \(4, 3\) for 4 chains'),
    (
      lambda x: _normal(x) + tf.reduce_sum(x),
      'another chain moves: it mixes chains',
    ),
    (
      lambda x: _normal(x) + tf.range(4.0, dtype=x.dtype) * x[::-1, 0],
      'another chain moves: it mixes chains',
    ),
  ],
  ids=['sums all', 'sums none', 'adds all chains', 'takes another chain'],
)
def test_a_density_that_is_none_of_each_chain_is_refused(log_prob, message):
  with pytest.raises(ValueError, match=message):
    _drawn(log_prob)


def test_equal_data_without_their_sum_are_refused_also_where_they_fit():
  y = tf.ones([_NUM_CHAINS], tf.float64)
  unit = lambda loc: tfd.Normal(loc, tf.ones([], tf.float64))
  with pytest.raises(ValueError, match='for one chain too.*Sum over the data'):
    _drawn(lambda x: _normal(x) + unit(x[..., 0]).log_prob(y))
  _drawn(lambda x: _normal(x) + _normal(y - x[..., :1]))
  # These are right for this number of chains, and for no other number.
  _drawn(lambda x: _normal(tf.ensure_shape(x, [_NUM_CHAINS, _SIZE])))
  _drawn(lambda x: tf.stack(tf.unstack(_normal(x), _NUM_CHAINS)))


def test_chains_that_are_mixed_are_seen_where_the_first_two_start_alike():
  mixed = lambda x: _normal(x) - tf.reduce_mean(x) ** 2
  given = tf.constant([[1.0] * 3, [1.0] * 3, [2.0] * 3, [5.0] * 3], tf.float64)
  with pytest.raises(ValueError, match='it mixes chains'):
    _drawn(mixed, draw_starts=lambda *_: given)


def _check(log_prob, given):
  dtype = tf.as_dtype(given.dtype)
  density = Density(_problem(log_prob, dtype), _NUM_CHAINS, dtype)
  starts_lib._check(density, given)


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_a_small_term_that_mixes_chains_is_told_beside_a_large_one(dtype):
  large = lambda x: 1e6 - 1e6 * tf.reduce_sum(x**2, axis=-1)
  mixed = lambda x: large(x) - 100.0 * tf.reduce_sum(x**2)
  given = dtype(0.1 * np.random.default_rng(0).normal(size=[4, _SIZE]))
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    _check(large, given)
  with pytest.warns(UserWarning, match='changes by .* it mixes chains'):
    _check(mixed, given)


def test_warnings_name_the_line_that_called_the_library():
  @tf.custom_gradient
  def log_prob(x):  # Chains are mixed, and the gradient has a wrong factor.
    value = 1e6 * _normal(x) - 100.0 * tf.reduce_sum(x**2)
    return value, lambda upstream: -3e6 * upstream[:, None] * x

  with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter('always')
    tfpa.sample_posterior(
      log_prob, num_chains=4, init=tf.TensorSpec([_SIZE], tf.float64),
      jit_compile=False, progress=False, max_seconds=1e-6, max_gradients=5000,
    )  # fmt: skip
  words = [str(warning.message) for warning in found]
  assert len(words) == 2
  assert 'mixes chains' in words[0] and 'gradient' in words[1]
  assert {warning.filename for warning in found} == {__file__}


def test_a_gradient_that_is_not_finite_is_told_from_a_density():
  half = lambda x: (
    _normal(x)
    + tf.reduce_sum(
      tf.where(x > 1e3, tf.math.log(tf.nn.relu(x - 1e3)), 0.0), axis=-1
    )
  )
  with pytest.raises(ValueError, match='The gradient of the log density is no'):
    _drawn(half)
  # With a second `tf.where`, as the message says.
  right = lambda x: (
    _normal(x)
    + tf.reduce_sum(
      tf.where(x > 1e3, tf.math.log(tf.where(x > 1e3, x - 1e3, 1.0)), 0.0), -1
    )
  )
  assert np.all(np.isfinite(_drawn(right)[0]))


def test_a_long_step_is_shortened_as_long_as_that_gains():
  # Steep below 0, and ever flatter above: a long step would gain as well.
  def evaluate(rows):
    x = rows[:, 0]
    values = np.where(x < 0.0, 1e4 * x, -np.log1p(np.maximum(x, 0.0)))
    slopes = np.where(x < 0.0, 1e4, -1.0 / (1.0 + np.maximum(x, 0.0)))
    return values, slopes[:, np.newaxis]

  points = np.array([[-10.0]])
  values, gradients = evaluate(points)
  found, value, _ = ascent._searched(
    evaluate, points, values, gradients, np.array([[1000.0]]), np.array([True])
  )
  assert 0.0 <= found[0, 0] < 10.0 and value[0] > -3.0


# Chains that lie far below the others are lost, others are not.


def _normal_draws(size, num_draws=250, num_chains=8):
  """Returns log densities and draws of chains of N(0, I)."""
  draws = np.random.default_rng(0).normal(size=(num_draws, num_chains, size))
  return -0.5 * np.sum(draws**2, axis=-1), draws


@pytest.mark.parametrize('size', [1, 10, 1000])
def test_chains_of_one_posterior_have_arrived(size):
  assert not np.any(arrival.lost(*_normal_draws(size)))


@pytest.mark.parametrize('size', [1, 10])
@pytest.mark.parametrize('depth', [1e3, 1e6, np.inf, np.nan])
def test_a_chain_far_below_has_not(size, depth):
  log_prob, draws = _normal_draws(size)
  log_prob[:, 3] -= depth
  assert np.flatnonzero(arrival.lost(log_prob, draws)).tolist() == [3]


@pytest.mark.parametrize(
  'depth, scale, is_mode',
  # Its mass is exp(-depth) scale^2 of the others'.
  [
    (10.0, 1.0, True),
    (35.0, 1.0, False),
    (35.0, 1e5, True),
    (-30.0, 1e-6, True),
    (0.0, 1e-8, False),
    (0.0, 0.0, False),
  ],
)
def test_a_mode_is_one_by_its_mass(depth, scale, is_mode):
  log_prob, draws = _normal_draws(2)
  log_prob[:, 3] -= depth
  draws[:, 3] = 50.0 + scale * draws[:, 3]
  assert np.any(arrival.lost(log_prob, draws)) != is_mode


@pytest.mark.parametrize('autocorrelation', [0.0, 0.95])
def test_a_chain_in_the_neck_of_a_funnel_holds_mass(autocorrelation):
  # N(0, 3) for log_scale, then nine coordinates of this scale.
  rng = np.random.default_rng(0)
  log_scale = np.where(np.arange(8) < 6, 1.0, -5.0)
  log_scale = log_scale + rng.normal(0.0, 0.3, (250, 8))
  z = rng.normal(size=(250, 8, 9))
  for t in range(1, 250):
    z[t] *= np.sqrt(1.0 - autocorrelation**2)
    z[t] += autocorrelation * z[t - 1]
  draws = np.concatenate(
    [log_scale[..., None], np.exp(log_scale)[..., None] * z], axis=-1
  )
  log_prob = -((log_scale / 3.0) ** 2) / 2.0 - 9.0 * log_scale
  log_prob = log_prob - 0.5 * np.sum(z**2, axis=-1)
  assert not np.any(arrival.lost(log_prob, draws))


def test_a_chain_that_arrived_late_has_arrived():
  log_prob, draws = _normal_draws(2)
  log_prob[:100, 3] -= 1e6
  assert not np.any(arrival.lost(log_prob, draws))


def test_lost_chains_have_the_states_of_others():
  rows = np.arange(8.0).reshape(4, 2)
  found = arrival.replaced(rows, np.array([False, True, False, True]))
  np.testing.assert_array_equal(found, rows[[0, 0, 2, 2]])
  np.testing.assert_array_equal(rows, np.arange(8.0).reshape(4, 2))


def _with_a_ledge(x):
  """N(0, I), and a narrow peak 5000 nats below its top, at 60."""
  peak = -5000.0 - 0.5e6 * tf.reduce_sum((x - 60.0) ** 2, axis=-1)
  return tf.maximum(-0.5 * tf.reduce_sum(x**2, axis=-1), peak)


@pytest.mark.full
def test_one_lost_chain_costs_neither_matrix_nor_structure():
  starts = np.random.default_rng(0).normal(size=(8, 2))
  starts[3] = 60.0
  posterior = tfpa.sample_posterior(
    _with_a_ledge, init=starts, progress=False, seed=1
  )
  assert posterior.converged and posterior.choice == 'dense matrix'
  assert abs(posterior.unconstrained.std() - 1.0) < 0.05
