"""Cosines and sines of polynomials are numpy's."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

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
  cos, sin = (lambda a, i=i: trigonometry.cos_and_sin(a)[i] for i in (0, 1))
  for function, expected in ((cos, -np.sin(angle)), (sin, np.cos(angle))):
    _, found = tfp.math.value_and_gradient(function, angle)
    np.testing.assert_allclose(found, expected, atol=1e-12)
