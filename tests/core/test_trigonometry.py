"""Cosines and sines of polynomials are numpy's."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.core import trigonometry


@pytest.mark.parametrize('jit_compile', [False, True])
@pytest.mark.parametrize(
  'dtype, error', [('float32', 3e-6), ('float64', 1e-14)]
)
def test_cos_and_sin_over_many_turns(dtype, error, jit_compile):
  # Multiples of pi / 4, where the quadrants meet, and points between.
  angle = np.linspace(-4.0 * np.pi, 4.0 * np.pi, 1025).astype(dtype)
  compiled = tf.function(
    trigonometry.cos_and_sin, jit_compile=jit_compile, autograph=False
  )
  cos, sin = compiled(tf.constant(angle))
  np.testing.assert_allclose(cos, np.cos(angle.astype('float64')), atol=error)
  np.testing.assert_allclose(sin, np.sin(angle.astype('float64')), atol=error)


def test_turns_are_measured_from_minus_an_eighth():
  turns = tf.constant([0.0, 0.125, 0.375, 0.625, 0.875], tf.float64)
  cos, sin = trigonometry.rotated_cos_and_sin(turns)
  half = np.sqrt(0.5)
  np.testing.assert_allclose(cos, [half, 1.0, 0.0, -1.0, 0.0], atol=1e-14)
  np.testing.assert_allclose(sin, [-half, 0.0, 1.0, 0.0, -1.0], atol=1e-14)


def test_derivatives_are_cos_and_sin():
  angle = tf.constant(np.linspace(-7.0, 7.0, 50))
  with tf.GradientTape() as tape:
    tape.watch(angle)
    cos, sin = trigonometry.cos_and_sin(angle)
    total = 2.0 * cos + sin
  np.testing.assert_allclose(
    tape.gradient(total, angle),
    -2.0 * np.sin(angle) + np.cos(angle),
    atol=1e-12,
  )
