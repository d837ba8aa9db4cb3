"""A low-rank factor from pairs of states and gradients, mostly of a normal."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.linear import fisher_fit
from tfp_adaptive.preconditioners import low_rank_pairs

_SIZE, _RANK, _NUM_PAIRS = 40, 3, 60


def _problem(dtype):
  """Returns a covariance of condition 1e9, states and gradients there."""
  rng = np.random.default_rng(0)
  axes, _ = np.linalg.qr(rng.normal(size=(_SIZE, _RANK)))
  long = (axes * [1e2, 1e4, 1e6]) @ axes.T
  scales = np.geomspace(1.0, 30.0, _SIZE)
  covariance = (np.eye(_SIZE) + long) * np.outer(scales, scales)
  factor = np.linalg.cholesky(covariance)
  states = rng.normal(size=(_NUM_PAIRS, _SIZE)) @ factor.T
  gradients = -np.linalg.solve(covariance, states.T).T
  weights = np.full(_NUM_PAIRS, 1.0 / _NUM_PAIRS)
  pairs = (tf.constant(a, dtype) for a in (states, gradients, weights))
  return covariance, *pairs


def _condition(preconditioner, params, covariance):
  """Returns what is left of the condition number behind C."""
  factor = preconditioner.operator(params).to_dense().numpy().astype(float)
  half = np.linalg.solve(factor, np.linalg.cholesky(covariance))
  return np.linalg.cond(half) ** 2


@pytest.mark.full
@pytest.mark.parametrize('dtype', [tf.float32, tf.float64])
def test_long_directions_beside_scales_are_found_from_pairs(dtype):
  covariance, *pairs = _problem(dtype)
  part = tfpa.preconditioners.low_rank(_RANK)
  fit = tf.function(fisher_fit.fit, autograph=False, jit_compile=True)
  first = part.init(_SIZE, dtype, tf.ones([], dtype))
  left = _condition(part, fit(part, first, *pairs), covariance)
  # Scales alone do not get there.
  diagonal = tfpa.preconditioners.diagonal()
  scales = fit(diagonal, first.scales, *pairs)
  assert left < 1.1 < 1e3 < _condition(diagonal, scales, covariance)
  assert np.linalg.cond(covariance) > 1e8


def test_what_a_fit_gains_is_told_by_pairs_that_it_has_not_seen():
  covariance, *pairs = _problem(tf.float64)
  part = tfpa.preconditioners.low_rank(_RANK)
  first = part.init(_SIZE, tf.float64, tf.ones([], tf.float64))
  fitted, gain = fisher_fit.fit_and_gain(part, first, *pairs)
  assert gain > 1.0
  # Nothing is gained over it.
  again = fisher_fit.fit_and_gain(part, fitted, *pairs)[1]
  assert float(again) == pytest.approx(0.0, abs=1e-6)
  # For a normal at its own covariance, |z|^2 and |s|^2 are d each.
  dense = tfpa.preconditioners.cholesky()
  factor = tf.constant(np.linalg.cholesky(covariance))
  loss = fisher_fit.loss(dense, factor, *pairs)
  assert float(loss) == pytest.approx(np.log(2.0), abs=0.05)


def test_gradients_in_a_neck_do_not_set_the_scales():
  _, states, gradients, weights = _problem(tf.float64)
  narrow = tf.concat([gradients[:-2], 1e3 * gradients[-2:]], axis=0)
  plain, _ = low_rank_pairs.fit(_RANK, states, gradients, weights)
  robust, _ = low_rank_pairs.fit(_RANK, states, narrow, weights)
  np.testing.assert_allclose(robust, plain, rtol=0.2)


def test_pairs_far_out_count_for_little_whatever_the_params():
  rng = np.random.default_rng(6)
  states = rng.normal(size=(_NUM_PAIRS, _SIZE))
  states[0] *= 100.0
  weights = np.full(_NUM_PAIRS, 1.0 / _NUM_PAIRS)
  part = tfpa.preconditioners.diagonal()
  # At the fit, and far from it: then all are far out, one more than the others.
  for scale in (1.0, 1e-3):
    scales = tf.fill([_SIZE], tf.constant(scale, tf.float64))
    found = fisher_fit._without_far(part, scales, states, -states, weights)
    assert float(tf.reduce_sum(found)) == pytest.approx(1.0)
    others = found[1:].numpy()
    assert found[0] < 1e-3 * others.min() and others.max() < 3 * others.min()


def test_a_fit_to_noise_gains_nothing():
  # Long directions by chance, of a standard normal with noise in its scores.
  rng = np.random.default_rng(4)
  states = rng.normal(size=(_NUM_PAIRS, _SIZE))
  gradients = -states + 0.5 * rng.normal(size=states.shape)
  part = tfpa.preconditioners.low_rank(_RANK)
  right = part.init(_SIZE, tf.float64, tf.constant(1.25**-0.25, tf.float64))
  weights = np.full(_NUM_PAIRS, 1.0 / _NUM_PAIRS)
  rows = map(tf.constant, (states, gradients, weights))
  assert fisher_fit.fit_and_gain(part, right, *rows)[1] < 0.0
