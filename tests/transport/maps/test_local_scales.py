"""Local scales: the map, who drives whom, and the chains behind it."""

import sys

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tests.transport.maps import hierarchies
from tfp_adaptive.transport.maps import local_fit

_COUNT = 6  # Coordinates with a scale each; then their log scales, and one.
_SIZE = 2 * _COUNT + 1
_OBSERVED = np.linspace(-2.0, 2.0, _COUNT)
_PRECISION = np.linspace(1.0, 9.0, _COUNT)


def _split(x):
  return x[..., :_COUNT], x[..., _COUNT : 2 * _COUNT], x[..., 2 * _COUNT :]


def _non_centered(x):
  """y_j ~ N(x_j exp(u_j + v), 1 / p_j), all else standard normal."""
  z, own, shared = _split(x)
  left = _OBSERVED - z * tf.exp(own + shared)
  return -0.5 * (
    tf.reduce_sum(_PRECISION * left**2, axis=-1) + tf.reduce_sum(x**2, axis=-1)
  )


def _centered(x):
  """x_j ~ N(0, exp(2 u_j)), y_j ~ N(x_j, 1 / p_j), all else normal."""
  rest, own, shared = _split(x)
  left = _OBSERVED - rest
  return -0.5 * (
    tf.reduce_sum(_PRECISION * left**2 + rest**2 * tf.exp(-2.0 * own), axis=-1)
    + tf.reduce_sum(2.0 * own + own**2, axis=-1)
    + tf.reduce_sum(shared**2, axis=-1)
  )


def _draw(rng, count, is_centered=False):
  """Returns states that are exact given the log scales."""
  logs = rng.normal(size=(count, _COUNT + 1))
  if is_centered:
    precision = _PRECISION + np.exp(-2.0 * logs[:, :-1])
    mean = _PRECISION * _OBSERVED / precision
  else:
    scale = np.exp(logs[:, :-1] + logs[:, -1:])
    precision = 1.0 + _PRECISION * scale**2
    mean = _PRECISION * _OBSERVED * scale / precision
  noise = rng.normal(size=mean.shape) / np.sqrt(precision)
  return np.concatenate([mean + noise, logs], axis=1)


def _fitted(target, states):
  """Returns the transport and its params."""
  part = tfpa.transports.local_scales()
  first = part.init(_SIZE, tf.float64, tf.ones([], tf.float64))
  return part, part.fit(first, *hierarchies.pairs(target, states))


def _random_params(seed=0):
  """Returns params of numbers without a meaning, and their transport."""
  rng = np.random.default_rng(seed)
  part = tfpa.transports.local_scales(num_shared=2)
  params = part.init(_SIZE, tf.float64, tf.ones([], tf.float64))
  is_driven = np.arange(_SIZE) < _COUNT
  drivers = np.where(is_driven, np.arange(_SIZE) + _COUNT, -1)
  parts = dict(
    mean=rng.normal(size=_SIZE),
    log_scale=0.5 * rng.normal(size=_SIZE),
    own=is_driven * rng.normal(size=_SIZE),
    rise=np.array([0.7, 0.0]),
    cap=np.array([-0.5, 0.0]),
    ceiling=0.5 * rng.normal(size=_SIZE),
    slack=np.stack(
      [
        np.where(is_driven, rng.exponential(size=_SIZE), 1.0),
        is_driven * rng.exponential(size=_SIZE),
      ]
    ),
    pull=is_driven * rng.normal(size=[2, _SIZE]),
    factor=np.eye(_SIZE) + 0.3 * np.tril(rng.normal(size=[_SIZE] * 2)),
  )
  return part, params._replace(
    drivers=tf.constant(drivers, tf.int32),
    shared=tf.constant([_SIZE - 1, -1], tf.int32),
    **{name: tf.constant(values) for name, values in parts.items()},
  )


def test_the_map_is_a_bijection_with_its_determinant():
  part, params = _random_params()
  rows = tf.constant(np.random.default_rng(1).normal(size=(2, 2, _SIZE)))
  mapped = part.bijector(params).forward(rows)
  back = part.bijector(params).inverse(mapped + 0.0)
  np.testing.assert_allclose(back, rows, rtol=1e-8, atol=1e-10)
  rows = tf.reshape(rows, [-1, _SIZE])
  with tf.GradientTape() as tape:
    tape.watch(rows)
    mapped = part.bijector(params).forward(rows)
  jacobian = tape.batch_jacobian(mapped, rows)
  np.testing.assert_allclose(
    part.bijector(params).forward_log_det_jacobian(rows, event_ndims=1),
    np.linalg.slogdet(jacobian)[1],
    rtol=1e-9,
  )


def test_scales_are_sums_in_inverse_squares():
  _, params = _random_params()
  scales = local_fit.Scales(
    *(getattr(params, name) for name in local_fit.Scales._fields)
  )
  rows = np.random.default_rng(2).normal(size=(5, _SIZE))
  found, share = local_fit.log_scales(scales, tf.constant(rows))
  own, v = params.own.numpy()[:_COUNT], rows[:, -1:]
  rise = own * rows[:, _COUNT : 2 * _COUNT] + 0.7 * v
  cap = params.ceiling.numpy()[:_COUNT] - 0.5 * v
  inverse = np.exp(-2.0 * rise) + np.exp(-2.0 * cap)
  np.testing.assert_allclose(found[:, :_COUNT], -0.5 * np.log(inverse))
  np.testing.assert_allclose(share[:, :_COUNT], np.exp(-2.0 * rise) / inverse)


@pytest.mark.parametrize('is_centered', [False, True])
def test_a_conditional_normal_is_found_from_few_pairs(is_centered):
  target = _centered if is_centered else _non_centered
  states = _draw(np.random.default_rng(3), 400, is_centered)
  part, params = _fitted(target, states)
  expected = [*range(_COUNT, 2 * _COUNT), *[-1] * (_COUNT + 1)]
  assert params.drivers.numpy().tolist() == expected
  # In units of the drivers: the scale, or one over it.
  units = part.scales(params).numpy()
  own = params.own.numpy()[:_COUNT] / units[_COUNT : 2 * _COUNT]
  np.testing.assert_allclose(own, -1.0 if is_centered else 1.0, rtol=1e-6)
  is_shared = params.shared.numpy() == _SIZE - 1
  rise = params.rise.numpy()[is_shared] / units[-1]
  np.testing.assert_allclose(rise, 0.0 if is_centered else 1.0, atol=1e-6)
  # What is left of the coordinates is standard normal given the log scales.
  new = tf.constant(_draw(np.random.default_rng(4), 200, is_centered))
  y, scores = _whitened(part, params, target, new)
  assert hierarchies.spread((y + scores)[:, :_COUNT]) < 0.1


def _whitened(part, params, target, states):
  """Returns y and its scores behind the map without C."""
  eye = tf.eye(_SIZE, dtype=states.dtype)
  bijector = part.bijector(params._replace(factor=eye))
  y = tf.identity(bijector.inverse(states))
  with tf.GradientTape() as tape:
    tape.watch(y)
    value = target(bijector.forward(y))
    value += bijector.forward_log_det_jacobian(y, event_ndims=1)
  return y.numpy(), tape.gradient(value, y).numpy()


def test_a_normal_has_no_drivers():
  factor = targets.correlated_factor(_SIZE, 1e2, seed=1)
  inverse = np.linalg.inv(factor)
  states = np.random.default_rng(0).normal(size=(400, _SIZE)) @ factor.T
  _, params = _fitted(
    lambda x: targets.standard_normal(tf.matmul(x, inverse, transpose_b=True)),
    states,
  )
  assert np.all(params.drivers.numpy() == -1)


def _after_one_step():
  """Returns a banana, and exact draws before and after a step behind a map
  that was not learned from it."""
  target = targets.Banana(_SIZE)
  part, params = _random_params(seed=9)
  params = params._replace(mean=tf.zeros([_SIZE], tf.float64))
  wrong = part._replace(init=lambda *_: params, init_scale=1.0)
  before = tf.constant(target.draw(20_000, seed=1))
  kernel = tfpa.MetropolisHastings(
    tfpa.proposals.UncalibratedTransportedHamiltonian(
      target.log_prob, wrong, 3, 0.2, randomize_num_steps=True
    )
  )
  after, results = targets.stepper(kernel, 'xla')(
    before, kernel.bootstrap_results(before), tf.constant([3, 4])
  )
  assert 0.05 < np.mean(results.is_accepted) < 0.97
  return target, before.numpy(), after.numpy()


@pytest.mark.full
def test_a_map_that_is_wrong_still_leaves_the_target_as_it_is():
  assert targets.smallest_p_value(*_after_one_step()) > 1e-3


@pytest.mark.full
def test_a_determinant_without_the_scales_is_detected(monkeypatch):
  # The package has the function by the name of its module.
  module = sys.modules[tfpa.transports.local_scales.__module__]
  whole = module._forward

  def without_scales(params, rows):
    slack = params.slack * tf.constant([[1.0], [0.0]], rows.dtype)
    return whole(params, rows)[0], whole(params._replace(slack=slack), rows)[1]

  monkeypatch.setattr(module, '_forward', without_scales)
  assert targets.smallest_p_value(*_after_one_step()) < 1e-6


@pytest.mark.full
def test_marginals_of_log_scales_are_those_of_the_closed_form():
  # z is summed out by hand: y_j ~ N(0, D^2 + 1 / p_j) given its log scale.
  kernel = tfpa.transport_adaptive_hamiltonian(
    _non_centered, 800, transport=tfpa.transports.local_scales()
  )
  start = tf.constant(np.random.default_rng(0).normal(size=(8, _SIZE)))
  run = tfpa.sample(kernel, start, 1500, progress=False, jit_compile=False)
  inner = run.final_kernel_results.inner_results
  params = inner.accepted_results.preconditioner_params
  assert np.sum(params.drivers.numpy() >= 0) == _COUNT
  rng = np.random.default_rng(5)
  logs = rng.normal(size=(400_000, _COUNT + 1))
  variance = np.exp(2.0 * (logs[:, :-1] + logs[:, -1:])) + 1.0 / _PRECISION
  weights = -0.5 * np.sum(np.log(variance) + _OBSERVED**2 / variance, axis=1)
  weights = np.exp(weights - weights.max())
  truth = np.average(logs, axis=0, weights=weights)
  means = run.states[..., _COUNT:].mean(axis=0)
  error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
  assert np.all(np.abs(means.mean(axis=0) - truth) < 5.0 * error + 0.01)
  assert np.all(error < 0.1)


def test_rescaled_it_is_a_multiple_of_itself():
  part, params = _random_params()
  rows = tf.constant(np.random.default_rng(1).normal(size=(4, _SIZE)))
  factor = tf.constant(2.0, tf.float64)
  np.testing.assert_allclose(
    part.bijector(part.rescale(params, factor)).forward(rows),
    2.0 * part.bijector(params).forward(rows),
    rtol=1e-12,
  )


@pytest.mark.parametrize(
  'arguments, message',
  [
    (dict(num_shared=0), 'must be a positive int'),
    (dict(preconditioner=tfpa.preconditioners.diagonal), 'with parentheses'),
  ],
)
def test_arguments_that_are_none_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    tfpa.transports.local_scales(**arguments)
