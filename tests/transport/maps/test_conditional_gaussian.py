"""Conditional Gaussians: the map, the regressions, and the chains behind it."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.transport.maps import hierarchies
from tfp_adaptive.fits import natural as fits_natural
from tfp_adaptive.transport.maps import natural
from tfp_adaptive.transport.maps.conditional_gaussian import (
  ConditionalGaussianParams,
)


def _products(numbers):
  return itertools.combinations_with_replacement(numbers, 2)


def _random_map(drivers, is_path, size=hierarchies.SIZE, seed=0, is_bent=True):
  """Returns a `Natural` whose drivers depend on nothing."""
  rng = np.random.default_rng(seed)
  count = len(drivers)
  is_driver = np.isin(np.arange(size), drivers)
  keep = ~is_driver * np.ones([count + 1, 1])
  held = np.array(drivers) >= 0
  slack = keep * rng.exponential(size=keep.shape)
  slack[0, is_driver] = 1.0
  is_coupled = keep * np.append(~is_driver[1:], False)
  edge = is_coupled * rng.normal(size=keep.shape)
  exponents = rng.normal(size=[count + 1, count]) * held
  exponents[0] = 0.0
  if is_bent:
    held = np.concatenate([held, [a and b for a, b in _products(held)]])
  slope = rng.normal(size=[count + 1, size, len(held)]) * held
  parts = dict(
    mean=rng.normal(size=size),
    log_scale=0.5 * rng.normal(size=size) * (not is_path),
    exponents=exponents,
    offset=keep * rng.normal(size=keep.shape),
    slope=keep[..., np.newaxis] * slope,
    slack=slack,
    edge=edge if is_path else edge[:, :0],
  )
  parts = {name: tf.constant(part) for name, part in parts.items()}
  return natural.Natural(drivers=tf.constant(drivers), **parts)


def _random_params(drivers, is_path, seed=0):
  rng = np.random.default_rng(seed + 100)
  factor = np.eye(hierarchies.SIZE) + 0.3 * np.tril(
    rng.normal(size=[hierarchies.SIZE] * 2)
  )
  return ConditionalGaussianParams(
    *_random_map(drivers, is_path, seed=seed), tf.constant(factor)
  )


def _transport(is_path=False, **options):
  return tfpa.transports.conditional_gaussian(
    structure='tridiagonal' if is_path else 'diagonal', **options
  )


@pytest.mark.parametrize('is_path', [False, True])
@pytest.mark.parametrize('drivers', [[1], [5, 0], [2, -1]])
def test_the_map_is_a_bijection_with_its_determinant(drivers, is_path):
  transport = _transport(is_path, num_drivers=len(drivers))
  params = _random_params(drivers, is_path)
  rows = tf.constant(
    np.random.default_rng(1).normal(size=(2, 2, hierarchies.SIZE))
  )
  bijector = transport.bijector(params)
  back = transport.bijector(params).inverse(bijector.forward(rows) + 0.0)
  np.testing.assert_allclose(back, rows, rtol=1e-8, atol=1e-10)
  rows = tf.reshape(rows, [-1, hierarchies.SIZE])
  with tf.GradientTape() as tape:
    tape.watch(rows)
    mapped = transport.bijector(params).forward(rows)
  jacobian = tape.batch_jacobian(mapped, rows)
  np.testing.assert_allclose(
    transport.bijector(params).forward_log_det_jacobian(rows, event_ndims=1),
    np.linalg.slogdet(jacobian)[1],
    rtol=1e-9,
  )


@pytest.mark.parametrize('is_path', [False, True])
def test_given_the_drivers_the_rest_is_normal(is_path):
  # Its precision and mean are those of the formula, by dense algebra.
  found = _random_map([0, 5], is_path, seed=4)
  u = np.array([0.3, -0.7])
  terms = np.exp(found.exponents.numpy() @ u)
  dense = np.diag(terms @ found.slack.numpy())
  for t in range(hierarchies.SIZE - 1 if is_path else 0):
    for term, edge in zip(terms, found.edge.numpy()[:, t]):
      step = np.zeros(hierarchies.SIZE)
      step[t], step[t + 1] = 1.0, -np.sign(edge)
      dense += term * abs(edge) * np.outer(step, step)
  inputs = [*u, *(a * b for a, b in _products(u))]
  pull = found.offset.numpy() + found.slope.numpy() @ inputs
  noise = np.random.default_rng(5).normal(size=(200_000, hierarchies.SIZE))
  noise[:, [0, 5]] = u
  mapped, _ = natural.forward(found, tf.constant(noise))
  whitened = (mapped - found.mean) / np.exp(found.log_scale)
  rest = slice(1, 5)
  precision = dense[rest, rest]
  mean = np.linalg.solve(precision, (terms @ pull)[rest])
  draws = np.asarray(whitened)[:, rest]
  error = np.linalg.cholesky(precision).T @ (draws.mean(axis=0) - mean)
  assert np.abs(error).max() < 4.0 / np.sqrt(len(noise))
  covariance = np.linalg.inv(precision)
  np.testing.assert_allclose(
    np.cov(draws.T), covariance, atol=0.02 * covariance.max()
  )


def test_exponents_that_are_given_are_taken_as_they_are():
  states = hierarchies.draw_hierarchy(
    np.random.default_rng(3), hierarchies.NUM_PAIRS
  )
  pairs = [
    rows.numpy() for rows in hierarchies.pairs(hierarchies.hierarchy, states)
  ]

  def spread(exponents):
    part = _transport(drivers=[0, 1], exponents=exponents)
    # Without C, whose noise is that of the drivers.
    found = fits_natural.Natural(*part.fit(None, *pairs[:2])[:-1])
    rows, scores = fits_natural.whitened(found, *pairs[:2])
    return hierarchies.spread((rows + scores)[:, 2:])

  assert spread([0.0, -2.0]) < 1e-2
  assert spread([0.0, 2.0]) > 0.1


def test_rescaled_it_is_a_multiple_of_itself():
  transport = _transport()
  params = _random_params([2, 0], False)
  rows = tf.constant(
    np.random.default_rng(1).normal(size=(4, hierarchies.SIZE))
  )
  factor = tf.constant(2.0, tf.float64)
  np.testing.assert_allclose(
    transport.bijector(transport.rescale(params, factor)).forward(rows),
    2.0 * transport.bijector(params).forward(rows),
    rtol=1e-12,
  )


@pytest.mark.parametrize(
  'is_path',
  [
    pytest.param(False, marks=pytest.mark.full),
    pytest.param(True, marks=pytest.mark.nightly),
  ],
)
def test_chains_find_the_drivers_in_single_precision(is_path):
  target = hierarchies.walk if is_path else hierarchies.hierarchy
  kernel = tfpa.transport_adaptive_hamiltonian(
    target,
    num_leapfrog_steps=(1, 3),
    num_adaptation_steps=600,
    transport=_transport(is_path, num_drivers=2),
  )
  rng = np.random.default_rng(0)
  start = tf.constant(rng.normal(size=(8, hierarchies.SIZE)), tf.float32)
  run = tfpa.sample(kernel, start, 200, progress=False)
  statistics = run.final_kernel_results.statistics
  assert int(statistics.num_fits) >= 4
  assert int(statistics.num_failed_fits) == 0
  inner = run.final_kernel_results.inner_results
  params = inner.accepted_results.preconditioner_params
  # Any mean of a hierarchy tells of the common mean.
  assert ({0, 1} if is_path else {1}) <= set(params.drivers.numpy())


@pytest.mark.full
def test_chains_learn_the_neck_of_a_funnel_that_they_did_not_enter():
  kernel = tfpa.transport_adaptive_hamiltonian(
    hierarchies.funnel,
    700,
    num_leapfrog_steps=(1, 3),
    transport=_transport(num_drivers=2),
  )
  start = tf.constant(np.random.default_rng(0).normal(size=(8, 10)))
  run = tfpa.sample(kernel, start, 1000, progress=False, jit_compile=False)
  inner = run.final_kernel_results.inner_results
  params = inner.accepted_results.preconditioner_params
  np.testing.assert_array_equal(params.drivers, [0, -1])
  neck = run.states[..., 0]
  # Chains are independent: their means and mean squares give the noise.
  for moment, truth in ((neck, 0.0), (neck**2, 9.0)):
    means = moment.mean(axis=0)
    error = means.std(ddof=1) / len(means) ** 0.5
    assert abs(means.mean() - truth) < 4.0 * error
    assert error < 0.2 * max(truth, 3.0)  # Power: a matrix leaves 1 or more.


@pytest.mark.parametrize(
  'drivers, size, message',
  [(None, 1, 'two coordinates or more'), ([7], 5, 'coordinates from 0 to 4')],
)
def test_states_that_leave_no_other_are_refused(drivers, size, message):
  kernel = tfpa.transport_adaptive_hamiltonian(
    hierarchies.funnel, 10, transport=_transport(drivers=drivers)
  )
  with pytest.raises(ValueError, match=message):
    tfpa.sample(kernel, tf.zeros([2, size], tf.float64), 1, progress=False)
