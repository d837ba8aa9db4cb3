"""Transports and params for tests."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import transports

__all__ = ['linear', 'random_params']


def linear():
  """Returns f(z) = exp(10 raw_scale) * L z, L lower triangular."""
  return transports.scaled(
    lambda event_size, dtype: tf.eye(event_size, dtype=dtype),
    lambda factor: tfp.bijectors.ScaleMatvecTriL(
      scale_tril=tf.linalg.band_part(factor, -1, 0)
    ),
  )


def random_params(transport, event_size, scale=1.0, spread=0.4, seed=0):
  """Returns float64 params around the start, on all entries."""
  rng = np.random.default_rng(seed)
  params = transport.init(
    event_size, tf.float64, tf.constant(scale, tf.float64)
  )
  moved = tf.nest.map_structure(
    lambda p: p + spread * rng.normal(size=p.shape), params
  )
  return moved._replace(
    raw_scale=params.raw_scale + 0.1 * spread * rng.normal(size=[event_size])
  )
