"""No prior at all, as the limit of a wide one: R = I.

It makes MALA a latent Gaussian sampler: the marginal gradient proposal becomes
MALA, the auxiliary one auxiliary MALA.
"""

import tensorflow as tf

from tfp_adaptive import interfaces

__all__ = ['FLAT']


def _smoother(params, variance):
  del params
  return interfaces.Smoother(
    gain=lambda v: v,
    draw=lambda v, e: v + tf.sqrt(variance) * e,
    draw_marginal=lambda v, e: v + tf.sqrt(2.0 * variance) * e,
    solve_marginal=lambda v: 0.5 * v,
    log_marginal=_improper,
  )


def _improper(*_):
  raise ValueError('A flat prior has no density.')


FLAT = interfaces.GaussianPrior(
  name='flat',
  event_shape=None,
  params=(),
  to_coordinates=lambda params, x: x,
  from_coordinates=lambda params, s: s,
  pull=lambda params, g: g,
  covariance=_improper,
  smoother=_smoother,
  is_singular=True,
)
