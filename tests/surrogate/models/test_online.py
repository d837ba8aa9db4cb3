"""Draws added to a fit: the coefficients of all draws in one batch."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.surrogate.models import kernel_exponential_family_finite
from tfp_adaptive.surrogate.models import surrogate_frame
from tfp_adaptive.surrogate.models.kernel_exponential_family_finite import (
  _basis as finite_basis,
)

_SEED = (1, 2)
_NUM_POINTS, _NUM_FEATURES, _SIZE = 60, 30, 2


@functools.cache
def _fitted(dtype=tf.float64):
  """Returns surrogate, params of a fit and the draws [n, d] it saw."""
  surrogate = kernel_exponential_family_finite(
    _NUM_POINTS, _NUM_FEATURES, online=True
  )
  points = tf.constant(_rows(_NUM_POINTS, 0), dtype)
  weights = tf.fill([_NUM_POINTS], tf.constant(1 / _NUM_POINTS, dtype))
  params = surrogate.init(_SIZE, dtype, _SEED)
  return surrogate, surrogate.fit(params, points, weights, _SEED), points


def _rows(num, seed):
  """Returns draws of two bumps: no Gaussian, whose base needs no kernel."""
  rng = np.random.default_rng(seed)
  rows = rng.normal(size=(num, _SIZE)) * [0.6, 0.5]
  rows[:, 0] += 3.0 * rng.choice([-1.0, 1.0], size=num)
  return rows


def _batch_coefficients(params, old, new):
  """Returns coefficients at the choice of `params` for old and new draws.

  From dense sums; n r is that of the fit, n the number of its draws.
  """
  basis = finite_basis(_NUM_FEATURES)

  def sums(x):
    z = surrogate_frame.whiten(params.frame, tf.constant(x)).numpy()
    frequencies = (params.map.numpy().T @ params.data.frequencies.numpy()).T
    phases = z @ frequencies.T + params.data.phases.numpy()
    amplitude = np.sqrt(2.0 / _NUM_FEATURES)
    gram, moment = 0.0, 0.0
    for row, phase in zip(z, phases):
      slope = -amplitude * np.sin(phase)[:, np.newaxis] * frequencies
      curved = -amplitude * np.cos(phase) * np.sum(frequencies**2, axis=-1)
      gram = gram + slope @ slope.T
      moment = moment - curved + slope @ (params.precision.numpy() @ row)
    return gram, moment

  assert basis.size(params.data) == _NUM_FEATURES
  gram, moment = sums(old.numpy())
  ridge = params.choice.regularization.numpy() * np.trace(gram) / len(old)
  more_gram, more_moment = sums(new)
  return np.linalg.solve(
    gram + more_gram + ridge * np.eye(_NUM_FEATURES), moment + more_moment
  )


@pytest.mark.full
@pytest.mark.parametrize('jit_compile', [False, True])
def test_updates_agree_with_a_batch_solution(jit_compile):
  surrogate, params, old = _fitted()
  update = tf.function(
    surrogate.update, jit_compile=jit_compile, autograph=False
  )
  new = _rows(12, 1)
  updated = params
  for rows in np.split(new, 3):
    updated = update(updated, tf.constant(rows))
  expected = _batch_coefficients(params, old, new)
  np.testing.assert_allclose(updated.coefficients, expected, atol=1e-6)
  # Power: the new draws do matter, and the old ones alone are the fit.
  before = _batch_coefficients(params, old, new[:0])
  np.testing.assert_allclose(params.coefficients, before, atol=1e-6)
  assert np.max(np.abs(expected - before)) > 1e-2
  for name in ('frame', 'map', 'precision', 'choice'):
    tf.nest.map_structure(
      np.testing.assert_array_equal,
      getattr(updated, name),
      getattr(params, name),
    )


def test_rows_that_are_not_finite_are_left_out():
  surrogate, params, _ = _fitted()
  rows = _rows(4, 2)
  spoiled = np.concatenate([rows, [[np.nan, 0.0], [np.inf, -np.inf]]])
  np.testing.assert_allclose(
    surrogate.update(params, tf.constant(spoiled)).coefficients,
    surrogate.update(params, tf.constant(rows)).coefficients,
    rtol=1e-9,
  )


def test_updates_before_the_first_fit_change_nothing():
  surrogate, _, _ = _fitted()
  start = surrogate.init(_SIZE, tf.float32, _SEED)
  after = surrogate.update(start, tf.constant(_rows(4, 2), tf.float32))
  tf.nest.map_structure(np.testing.assert_array_equal, after, start)
