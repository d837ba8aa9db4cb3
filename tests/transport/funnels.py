"""A funnel whose exact map is known: its draws, maps that are not fitted."""

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa

__all__ = ['SIZE', 'exact_draws', 'fixed', 'funnel']

SIZE = 3


def fixed(log_scale=0.0, slope=0.0):
  """Returns q_0 = z_0, q_i = exp(l_i + b z_0) z_i, whose fits fail."""
  parts = tfpa.transports.conditional_gaussian(drivers=[0], init_scale=1.0)

  def init(event_size, dtype, scale):
    params = parts.init(event_size, dtype, scale)
    # The precision of the others is exp(-2 b z_0), a term of its own.
    is_driver = np.arange(SIZE) == 0
    return params._replace(
      log_scale=log_scale * tf.ones_like(params.log_scale),
      exponents=tf.constant([[0.0], [-2.0 * slope]], dtype),
      slack=tf.cast([is_driver, ~is_driver], dtype),
    )

  def fit(params, *_):
    return params._replace(log_scale=np.nan * params.log_scale)

  return parts._replace(init=init, fit=fit)


def funnel(x):
  """log pi of q_0 = z_0, q_i = exp(z_0) z_i for standard normal z."""
  first, rest = x[..., 0], x[..., 1:]
  square = tf.reduce_sum(rest**2, axis=-1) * tf.exp(-2.0 * first)
  return -0.5 * (first**2 + square) - (SIZE - 1.0) * first


def exact_draws(num_chains, seed=0, dtype=np.float64):
  """Returns exact draws of `funnel`."""
  z = np.random.default_rng(seed).normal(size=(num_chains, SIZE))
  z[:, 1:] *= np.exp(z[:, :1])
  return tf.constant(z.astype(dtype))
