"""Moments of what all chains visit, where some chains have no number."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.linear import running_moments


def _moments(dense):
  spread = np.array([[2.0, 0.3], [0.3, 0.5]])
  return running_moments.Moments(
    tf.constant([1.0, -2.0], tf.float64),
    tf.constant(spread if dense else np.diag(spread)),
  )


@pytest.mark.parametrize('dense', [False, True])
def test_a_step_says_what_its_finite_chains_say(dense):
  rows, weight = np.random.default_rng(0).normal(size=(4, 2)), 0.4
  is_finite = np.array([True, False, True, True])
  before = _moments(dense)
  after = running_moments.add(
    before,
    tf.constant(rows * is_finite[:, np.newaxis]),
    tf.constant(is_finite[:, np.newaxis]),
    tf.constant(weight, tf.float64),
  )
  # Of a mixture, with the weight that the old moments keep.
  finite = rows[is_finite]
  np.testing.assert_allclose(
    after.mean, (1.0 - weight) * before.mean + weight * finite.mean(axis=0)
  )
  shift = finite.mean(axis=0) - before.mean
  between = (1.0 - weight) * weight * np.outer(shift, shift)
  within = weight * np.cov(finite.T, bias=True)
  if not dense:
    between, within = np.diag(between), np.diag(within)
  np.testing.assert_allclose(
    after.spread, (1.0 - weight) * before.spread + between + within
  )
