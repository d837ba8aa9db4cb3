"""Transports: invertible, with the right log det, the identity at the start."""

import numpy as np
import pytest
import tensorflow as tf

from tests.transport.maps import networks
from tfp_adaptive import transports

_TRANSPORTS = {
  'one_pair': transports.real_nvp(hidden_sizes=(4,)),
  'three_pairs': transports.real_nvp(3, hidden_sizes=(5, 4), seed=7),
  'linear': networks.linear(),
}
each_transport = pytest.mark.parametrize('name', _TRANSPORTS)
each_size = pytest.mark.parametrize('event_size', [2, 3, 5])


def _rows(event_size, num_rows=6, seed=0):
  rng = np.random.default_rng(seed)
  return tf.constant(rng.normal(size=(num_rows, event_size)))


@each_transport
@each_size
def test_the_start_is_the_identity_times_the_scale(name, event_size):
  transport = _TRANSPORTS[name]
  params = transport.init(event_size, tf.float64, tf.constant(0.3, tf.float64))
  rows = _rows(event_size)
  bijector = transport.bijector(params)
  np.testing.assert_allclose(bijector.forward(rows), 0.3 * rows, rtol=1e-12)
  np.testing.assert_allclose(
    bijector.forward_log_det_jacobian(rows, event_ndims=1),
    event_size * np.log(0.3),
    rtol=1e-12,
  )
  np.testing.assert_allclose(transport.scales(params), 0.3, rtol=1e-12)


@each_transport
def test_rescaled_params_give_the_map_times_the_factor(name):
  transport = _TRANSPORTS[name]
  params = networks.random_params(transport, 3)
  rescaled = transport.rescale(params, tf.constant(2.5, tf.float64))
  np.testing.assert_allclose(
    transport.bijector(rescaled).forward(_rows(3)),
    2.5 * transport.bijector(params).forward(_rows(3)),
    rtol=1e-12,
  )


@each_transport
def test_the_start_is_the_same_at_every_call(name):
  first, second = (
    tf.nest.flatten(_TRANSPORTS[name].init(4, tf.float64, 1.0))
    for _ in range(2)
  )
  for one, other in zip(first, second, strict=True):
    np.testing.assert_array_equal(one, other)


@each_transport
@each_size
def test_the_inverse_undoes_the_map(name, event_size):
  transport = _TRANSPORTS[name]
  params = networks.random_params(transport, event_size)
  rows = _rows(event_size)
  mapped = transport.bijector(params).forward(rows)
  assert np.abs(mapped - rows).max() > 0.1
  np.testing.assert_allclose(
    transport.bijector(params).inverse(tf.identity(mapped)), rows, atol=1e-10
  )


@each_transport
@each_size
def test_log_det_is_that_of_the_jacobian(name, event_size):
  transport = _TRANSPORTS[name]
  params = networks.random_params(transport, event_size)
  rows = _rows(event_size)
  with tf.GradientTape() as tape:
    tape.watch(rows)
    mapped = transport.bijector(params).forward(rows)
  _, expected = np.linalg.slogdet(tape.batch_jacobian(mapped, rows))
  log_det = transport.bijector(params).forward_log_det_jacobian(
    rows, event_ndims=1
  )
  np.testing.assert_allclose(
    log_det + np.zeros(len(rows)), expected, rtol=1e-8, atol=1e-10
  )


@pytest.mark.parametrize('chains', [(), (3,), (2, 3)])
def test_rows_of_any_number_of_chain_dimensions_pass(chains):
  transport = _TRANSPORTS['three_pairs']
  params = networks.random_params(transport, 3)
  size = int(np.prod(chains, dtype=int))
  rows = tf.reshape(_rows(3, size), (*chains, 3))
  flat = tf.reshape(rows, [-1, 3])
  np.testing.assert_allclose(
    tf.reshape(transport.bijector(params).forward(rows), [-1, 3]),
    transport.bijector(params).forward(flat),
    rtol=1e-12,
  )


def test_the_scale_of_a_coupling_stays_within_its_bounds():
  transport = transports.real_nvp(hidden_sizes=(4,))
  params = networks.random_params(transport, 2, spread=1.5, seed=1)
  params = params._replace(raw_scale=tf.zeros_like(params.raw_scale))
  log_det = transport.bijector(params).forward_log_det_jacobian(
    3.0 * _rows(2, 200), event_ndims=1
  )
  # Two layers, one coordinate each; the bounds are reached to rounding.
  assert np.exp(log_det).max() <= 2.0**2 * (1 + 1e-12)
  assert np.exp(log_det).min() >= 0.5**2 * (1 - 1e-12)
  assert np.ptp(log_det) > 0.5
