"""Targets that are normal given a few coordinates, their draws and pairs."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

SIZE, NUM_PAIRS = 6, 400


def pairs(target, states):
  """Returns states, gradients and equal weights."""
  point = tf.constant(states)
  _, gradient = tfp.math.value_and_gradient(target, point)
  weights = tf.fill([len(states)], tf.constant(1.0 / len(states), tf.float64))
  return point, gradient, weights


def hierarchy(x):
  """Means around x_0 with log scale x_1, observed at 1, 2, ...."""
  mean, log_scale, rest = x[..., 0], x[..., 1], x[..., 2:]
  observed = np.arange(1.0, rest.shape[-1] + 1.0)
  distance = (rest - mean[..., tf.newaxis]) ** 2
  return (
    -0.5 * tf.reduce_sum(distance, axis=-1) * tf.exp(-2.0 * log_scale)
    - rest.shape[-1] * log_scale
    - 0.5 * tf.reduce_sum((rest - observed) ** 2, axis=-1)
    - 0.5 * (mean**2 / 9.0 + log_scale**2)
  )


def draw_hierarchy(rng, count, size=SIZE):
  """Returns states near its posterior: exact given mean and log scale."""
  log_scale = 0.5 * rng.normal(size=(count, 1))
  mean = size / 2.0 + 0.5 * rng.normal(size=(count, 1))
  prior = np.exp(-2.0 * log_scale)
  observed = np.arange(1.0, size - 1.0)
  center = (prior * mean + observed) / (prior + 1.0)
  noise = rng.normal(size=(count, size - 2)) / np.sqrt(prior + 1.0)
  return np.concatenate([mean, log_scale, center + noise], axis=1)


def schools(x):
  """As `hierarchy`, one observation of each mean, of noise 15: x of 10."""
  mean, log_scale, rest = x[..., 0], x[..., 1], x[..., 2:]
  observed = 5.0 * np.arange(1.0, rest.shape[-1] + 1.0) - 15.0
  distance = (rest - mean[..., tf.newaxis]) ** 2
  return (
    -0.5 * tf.reduce_sum(distance, axis=-1) * tf.exp(-2.0 * log_scale)
    - rest.shape[-1] * log_scale
    - 0.5 * tf.reduce_sum((rest - observed) ** 2, axis=-1) / 225.0
    - 0.5 * (mean**2 / 25.0 + (log_scale - 1.0) ** 2)
  )


def walk(x):
  """A random walk whose log step size is x_0, observed with log noise x_1."""
  step, noise, path = x[..., 0], x[..., 1], x[..., 2:]
  before = tf.concat([tf.zeros_like(path[..., :1]), path[..., :-1]], axis=-1)
  size = path.shape[-1]
  observed = np.sin(np.arange(size))
  return (
    -0.5 * tf.reduce_sum((path - before) ** 2, -1) * tf.exp(-2.0 * step)
    - 0.5 * tf.reduce_sum((path - observed) ** 2, -1) * tf.exp(-2.0 * noise)
    - size * (step + noise)
    - 0.5 * (step**2 + noise**2)
  )


def draw_walk(rng, count, size=SIZE):
  scales = 0.5 * rng.normal(size=(count, 2))
  steps = np.exp(scales[:, :1]) * rng.normal(size=(count, size - 2))
  return np.concatenate([scales, np.cumsum(steps, axis=1)], axis=1)


def funnel(x):
  """Neal's funnel: v = x_0 ~ N(0, 9), the rest N(0, exp v)."""
  neck = x[..., 0]
  rest = -0.5 * tf.reduce_sum(x[..., 1:] ** 2, axis=-1) * tf.exp(-neck)
  return -(neck**2) / 18.0 - 0.5 * (x.shape[-1] - 1) * neck + rest


def draw_funnel(rng, neck, size=SIZE):
  rest = np.exp(neck / 2.0)[:, np.newaxis] * rng.normal(
    size=(len(neck), size - 1)
  )
  return np.concatenate([neck[:, np.newaxis], rest], axis=1)


def spread(residuals):
  """Returns the largest standard deviation of a coordinate's residual."""
  return np.std(residuals, axis=0).max()


def parabola(x):
  """x_0 ~ N(0, 9), x_1 around a multiple of its square, the others alone."""
  first, rest = x[..., :1], x[..., 1:]
  bends = 0.3 * np.eye(rest.shape[-1])[0]
  return -0.5 * (
    first[..., 0] ** 2 / 9.0 + tf.reduce_sum((rest - bends * first**2) ** 2, -1)
  )
