"""Priors of banded precision: against dense algebra, laws and theorems."""

import functools

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.linalg import banded_scan

_D = 9
_T = 0.35  # Variance of the smoother.
_MEAN = np.linspace(-1.0, 1.0, _D)
priors = tfpa.gaussian_priors

each_order = pytest.mark.parametrize('order', [1, 2, 3])
each_batch = pytest.mark.parametrize('batch', [(), (2,)], ids=['one', 'chains'])


def _precision(order, batch=(), size=_D):
  rng = np.random.default_rng(order)
  factor = np.zeros(batch + (size, size))
  for k in range(order + 1):
    rows = np.arange(size - k)
    factor[..., rows, rows + k] = rng.normal(size=batch + (size - k,))
  eye = np.eye(size)
  return np.swapaxes(factor, -1, -2) @ factor + 0.3 * eye


def _bands(matrix, order):
  return tuple(np.diagonal(matrix, k, -2, -1).copy() for k in range(order + 1))


def _rows(seed=0, shape=(2, _D)):
  return np.random.default_rng(seed).normal(size=shape)


def _times(matrix, rows):
  return np.einsum('...ij,...j->...i', matrix, rows)


def _log_normal(rows, covariance):
  covariance = np.broadcast_to(covariance, rows.shape + rows.shape[-1:])
  return np.array(
    [
      -0.5 * (r @ np.linalg.solve(c, r) + np.linalg.slogdet(2 * np.pi * c)[1])
      for r, c in zip(rows, covariance)
    ]
  )


def _matrix_of(function):
  """Returns the matrix of a linear map of rows, [chains..., d, d]."""
  columns = [
    function(tf.constant(np.tile(unit, (2, 1)))) for unit in np.eye(_D)
  ]
  return np.stack(columns, axis=-1)


@functools.cache
def _prior(order, batch):
  bands = _bands(_precision(order, batch), order)
  return priors.markov(bands, mean=_MEAN)


def _choose_form(monkeypatch, parallel):
  """Takes the forms of depth O(log d), or the loops, on any device."""
  monkeypatch.setattr(banded_scan, 'is_preferred', lambda _: parallel)


def _in_mode(function, mode):
  if mode == 'eager':
    return function
  return tf.function(function, jit_compile=mode == 'xla', autograph=False)


def _everything(prior):
  """Returns the function of all that a prior computes, by name."""

  def compute(params, x, e):
    covariance = prior.covariance(params)
    smoother = prior.smoother(params, tf.constant(_T, x.dtype))
    s = prior.to_coordinates(params, x)
    return dict(
      coordinates=s,
      back=prior.from_coordinates(params, s),
      pull=prior.pull(params, x),
      multiply=covariance.multiply(x),
      solve=covariance.solve(x),
      log_prob=covariance.log_prob(x),
      gain=smoother.gain(x),
      solve_marginal=smoother.solve_marginal(x),
      log_marginal=smoother.log_marginal(x),
      draw_mean=smoother.draw(x, 0.0 * e),
      draw_marginal_mean=smoother.draw_marginal(x, 0.0 * e),
      draw=covariance.draw(e),
      smoother_draw=smoother.draw(x, e),
      smoother_draw_marginal=smoother.draw_marginal(x, e),
    )

  return compute


def _dense(precision, x):
  covariance = np.linalg.inv(precision)
  gain = covariance @ np.linalg.inv(covariance + _T * np.eye(_D))
  return dict(
    coordinates=x - _MEAN,
    back=x,
    pull=x,
    multiply=_times(covariance, x),
    solve=_times(precision, x),
    log_prob=_log_normal(x, covariance),
    gain=_times(gain, x),
    solve_marginal=_times(np.linalg.inv(np.eye(_D) + gain), x),
    log_marginal=_log_normal(x, covariance + _T * np.eye(_D)),
    draw_mean=_times(gain, x),
    draw_marginal_mean=_times(gain, x),
  )


@each_batch
@each_order
def test_every_function_is_that_of_dense_algebra(order, batch):
  prior = _prior(order, batch)
  x, e = _rows(1), _rows(2)
  found = _everything(prior)(prior.params, tf.constant(x), tf.constant(e))
  for name, expected in _dense(_precision(order, batch), x).items():
    np.testing.assert_allclose(
      found[name], expected, rtol=1e-10, atol=1e-10, err_msg=name
    )


@each_batch
@each_order
def test_draws_have_the_covariance_they_claim(order, batch):
  prior = _prior(order, batch)
  precision = _precision(order, batch)
  covariance = np.linalg.inv(precision)
  gain = np.linalg.inv(np.eye(_D) + _T * precision)
  functions = prior.covariance(prior.params)
  smoother = prior.smoother(prior.params, tf.constant(_T, tf.float64))
  zero = tf.zeros([2, _D], tf.float64)
  for draw, expected in (
    (functions.draw, covariance),
    (lambda e: smoother.draw(zero, e), _T * gain),
    (
      lambda e: smoother.draw_marginal(zero, e),
      _T * gain @ (np.eye(_D) + gain),
    ),
  ):
    factor = _matrix_of(draw)
    np.testing.assert_allclose(
      factor @ np.swapaxes(factor, -1, -2),
      np.broadcast_to(expected, factor.shape),
      rtol=1e-10,
      atol=1e-10,
    )


@pytest.mark.parametrize('order, batch', [(1, ()), (2, (2,)), (3, ())])
def test_parallel_form_gives_the_numbers_of_the_loop(order, batch, monkeypatch):
  x, e = tf.constant(_rows(1)), tf.constant(_rows(2))
  found = []
  for parallel in (False, True):
    _choose_form(monkeypatch, parallel)
    prior = _prior.__wrapped__(order, batch)
    found.append(_everything(prior)(prior.params, x, e))
  expected, by_scan = found
  for name, value in by_scan.items():
    np.testing.assert_allclose(
      value, expected[name], rtol=1e-8, atol=1e-8, err_msg=name
    )


@pytest.mark.full
@pytest.mark.parametrize('mode', ['graph', 'xla'])
@pytest.mark.parametrize('parallel', [False, True])
def test_compiled_numbers_are_the_eager_ones(parallel, mode, monkeypatch):
  if parallel and mode == 'graph':
    pytest.skip('Ordinary ops, the same in a graph.')
  _choose_form(monkeypatch, parallel)
  prior = _prior.__wrapped__(2, (2,))
  x, e = tf.constant(_rows(1)), tf.constant(_rows(2))

  def compute(params):
    smoother = prior.smoother(params, tf.constant(_T, tf.float64))
    return smoother.draw_marginal(x, e), smoother.log_marginal(x)

  for found, expected in zip(
    _in_mode(compute, mode)(prior.params), compute(prior.params)
  ):
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_rows_may_have_more_chains_than_the_params_or_none():
  prior, x = _prior(2, (2,)), _rows(1, (3, 2, _D))
  found = prior.covariance(prior.params).multiply(tf.constant(x))
  covariance = np.linalg.inv(_precision(2, (2,)))
  np.testing.assert_allclose(found, _times(covariance, x), rtol=1e-10)
  prior = _prior(2, ())
  found = prior.covariance(prior.params).multiply(tf.constant(x[0, 0]))
  covariance = np.linalg.inv(_precision(2))
  np.testing.assert_allclose(found, covariance @ x[0, 0], rtol=1e-10)


def test_float32_is_kept():
  bands = [b.astype(np.float32) for b in _bands(_precision(2), 2)]
  prior = priors.markov(tuple(bands))
  x = tf.constant(_rows(1), tf.float32)
  found = _everything(prior)(prior.params, x, x)
  expected = _dense(_precision(2), _rows(1))
  for name, value in found.items():
    assert value.dtype == tf.float32
    if name in expected and name != 'coordinates':
      np.testing.assert_allclose(value, expected[name], rtol=2e-3, atol=2e-3)


def _stationary_covariance(coefficients, scale, size):
  """Returns Toeplitz covariances by the state equation, run to its limit."""
  order = len(coefficients)
  companion = np.eye(order, k=-1)
  companion[0] = coefficients
  noise = np.zeros((order, order))
  noise[0, 0] = scale**2
  gram = scipy.linalg.solve_discrete_lyapunov(companion, noise)
  lags = [gram[0, 0]]
  power = np.eye(order)
  for _ in range(size - 1):
    power = companion @ power
    lags.append((power @ gram)[0, 0])
  return scipy.linalg.toeplitz(lags)


def _dense_covariance(prior):
  functions = prior.covariance(prior.params)
  size = int(np.prod(prior.event_shape))
  return functions.multiply(tf.eye(size, dtype=tf.float64)).numpy()


@pytest.mark.parametrize(
  'coefficients', [(0.9,), (0.5, 0.3), (1.6, -0.9, 0.2)], ids=len
)
@pytest.mark.parametrize('num_steps', [4, 9])
def test_stationary_process_has_its_toeplitz_covariance(
  coefficients, num_steps
):
  prior = priors.autoregression(np.array(coefficients), 0.7, num_steps)
  np.testing.assert_allclose(
    _dense_covariance(prior),
    _stationary_covariance(coefficients, 0.7, num_steps),
    rtol=1e-9,
  )


def test_started_processes_follow_their_recursion():
  cases = (
    (priors.autoregression(np.array([0.9]), 0.7, 6, initial_scale=2.0), (0.9,)),
    (priors.random_walk(np.float64(0.7), 6, initial_scale=2.0), (1.0,)),
    (
      priors.random_walk(np.float64(0.7), 6, initial_scale=2.0, order=2),
      (2.0, -1.0),
    ),
  )
  for prior, coefficients in cases:
    order = len(coefficients)
    recursion = np.eye(6)
    for k, a in enumerate(coefficients, start=1):
      recursion -= a * np.eye(6, k=-k)
    recursion[:order, :order] = np.eye(order)
    scales = np.where(np.arange(6) < order, 2.0, 0.7)
    factor = np.linalg.inv(recursion) * scales
    np.testing.assert_allclose(
      _dense_covariance(prior), factor @ factor.T, rtol=1e-9, atol=1e-10
    )


def test_a_number_is_the_persistence_of_a_process_of_order_one():
  number = priors.autoregression(np.float64(0.8), 0.5, 5)
  vector = priors.autoregression(np.array([0.8]), 0.5, 5)
  np.testing.assert_array_equal(
    _dense_covariance(number), _dense_covariance(vector)
  )


def test_processes_of_chains_have_their_own_hyperparameters():
  persistence, scale = np.array([0.3, 0.95]), np.array([0.5, 2.0])
  mean = np.array([[1.0], [-1.0]])
  prior = priors.autoregression(
    persistence[:, np.newaxis], scale, _D, mean=mean
  )
  x = _rows(3)
  functions = prior.covariance(prior.params)
  found = functions.log_prob(prior.to_coordinates(prior.params, x))
  expected = [
    _log_normal(row[np.newaxis] - m, _stationary_covariance([a], s, _D))[0]
    for row, m, a, s in zip(x, mean, persistence, scale)
  ]
  np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_state_space_paths_have_the_covariance_of_their_recursion():
  transition = np.array([[0.9, 0.3], [-0.2, 0.7]])
  noise = np.array([[0.5, 0.1], [0.1, 0.2]])
  start = np.array([[2.0, 0.3], [0.3, 1.0]])
  prior = priors.state_space(transition, noise, start, num_steps=4)
  assert prior.event_shape == (4, 2)
  recursion = np.eye(8) - np.kron(np.eye(4, k=-1), transition)
  inner = np.linalg.inv(recursion)
  blocks = scipy.linalg.block_diag(start, noise, noise, noise)
  np.testing.assert_allclose(
    _dense_covariance(prior), inner @ blocks @ inner.T, rtol=1e-9
  )


def test_indefinite_precision_is_refused_where_it_is_known():
  with pytest.raises(ValueError, match='unit circle'):
    priors.autoregression(np.array([1.01]), 1.0, 8)
  with pytest.raises(ValueError, match='not positive definite'):
    priors.markov((np.ones(4), np.ones(3)))
  with pytest.raises(ValueError, match='one fewer each'):
    priors.markov((np.ones(4), np.ones(4)))
  with pytest.raises(ValueError, match='tuple of diagonals'):
    priors.markov(np.eye(3))
  with pytest.raises(ValueError, match='1 or 2'):
    priors.random_walk(1.0, 8, initial_scale=1.0, order=3)
  with pytest.raises(ValueError, match='more than 2 steps'):
    priors.autoregression(np.array([0.1, 0.1]), 1.0, 2)
  with pytest.raises(ValueError, match='of one size'):
    priors.state_space(np.eye(2), np.eye(3), np.eye(2), 4)


def test_indefinite_precision_inside_a_chain_has_no_density_and_no_nan():
  @tf.function(jit_compile=True, autograph=False)
  def compute(persistence, x):
    prior = priors.autoregression(persistence[:, tf.newaxis], 1.0, _D)
    covariance = prior.covariance(prior.params)
    smoother = prior.smoother(prior.params, tf.constant(_T, tf.float64))
    return dict(
      log_prob=covariance.log_prob(x),
      log_marginal=smoother.log_marginal(x),
      draw=covariance.draw(x),
      draw_marginal=smoother.draw_marginal(x, x),
    )

  persistence = tf.constant([1.5, 0.5, np.nan], tf.float64)
  x = tf.constant(_rows(1, (3, _D)))
  found = compute(persistence, x)
  alone = priors.autoregression(np.float64(0.5), 1.0, _D)
  expected = alone.covariance(alone.params).log_prob(x)[1]
  np.testing.assert_allclose(
    found['log_prob'], [-np.inf, expected, -np.inf], rtol=1e-10
  )
  assert np.isneginf(found['log_marginal'].numpy()).tolist() == [1, 0, 1]
  for name in ('draw', 'draw_marginal'):
    assert np.all(np.isfinite(found[name])), name


def test_long_paths_keep_their_digits(monkeypatch):
  # Condition number of P about 1e12: a dense inverse would have lost it.
  size = 2000
  noise = np.random.default_rng(0).normal(size=size)
  path = np.concatenate([noise[:1], noise[1:2], np.zeros(size - 2)])
  for i in range(2, size):
    path[i] = 2.0 * path[i - 1] - path[i - 2] + noise[i]
  expected = -0.5 * (noise @ noise + size * np.log(2.0 * np.pi))
  for parallel in (False, True):
    _choose_form(monkeypatch, parallel)
    prior = priors.random_walk(
      np.float64(1.0), size, initial_scale=1.0, order=2
    )
    found = prior.covariance(prior.params).log_prob(tf.constant(path))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
