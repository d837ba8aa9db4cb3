"""Conditional Gaussians: prototype."""

import collections

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive import preconditioners
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linear import fisher_divergence
from tfp_adaptive.transport.maps import natural
from tfp_adaptive.transport.maps import natural_fit
from tfp_adaptive.transport.maps import natural_search

tfb = tfp.bijectors


class ConditionalGaussianParams(
  collections.namedtuple(
    'ConditionalGaussianParams', [*natural.Natural._fields, 'factor']
  )
):
  __slots__ = ()


def conditional_gaussian(num_drivers=3, is_path=False, preconditioner=None, init_scale=None):
  inside = preconditioner or preconditioners.cholesky()

  def init(event_size, dtype, scale):
    count = min(num_drivers, event_size - 1)
    zeros = tf.zeros([1 + count, event_size], dtype)
    return ConditionalGaussianParams(
      mean=zeros[0],
      log_scale=zeros[0] + tf.math.log(tf.cast(scale, dtype)),
      drivers=tf.fill([count], -1),
      exponents=tf.zeros([1 + count, count], dtype),
      offset=zeros,
      slope=tf.zeros([1 + count, event_size, count], dtype),
      slack=zeros + tf.one_hot(0, 1 + count, dtype=dtype)[:, tf.newaxis],
      edge=zeros if is_path else zeros[:, :0],
      factor=inside.init(event_size, dtype, tf.ones([], dtype)),
    )

  def fit(params, states, scores, weights):
    drivers, exponents = natural_search.find(states, scores, weights, params.drivers.shape[0], is_path)
    pairs = natural_fit.standardize(states, scores, weights, is_path)
    matrix = tf.linalg.diag(exponents * natural.pick(pairs.scale, drivers, 1.0))
    matrix = tf.concat([tf.zeros_like(matrix[:1]), matrix], axis=0)
    found = natural_fit.fit(pairs, weights, drivers, matrix, is_path)
    rows, row_scores = natural.whitened(found, pairs.states, pairs.scores)
    start = inside.init(ps.shape(states)[-1], states.dtype, tf.ones([], states.dtype))
    # Diagonal first: drivers have scales of their own.
    factor = fisher_divergence.fit(inside, start, rows, row_scores, weights)
    found = found._replace(mean=pairs.mean, log_scale=tf.math.log(pairs.scale))
    return ConditionalGaussianParams(*found, factor)

  return interfaces.Transport(
    name='conditional_gaussian',
    init=init,
    bijector=lambda params: _ConditionalGaussian(params, inside),
    scales=lambda params: tf.exp(params.log_scale),
    rescale=lambda params, factor: params._replace(
      mean=factor * params.mean,
      log_scale=params.log_scale + tf.math.log(factor),
    ),
    init_scale=init_scale,
    fit=fit,
  )


class _ConditionalGaussian(tfb.Bijector):
  def __init__(self, params, inside):
    self._natural = natural.Natural(*params[:-1])
    self._operator = inside.operator(params.factor)
    super().__init__(forward_min_event_ndims=1, name='conditional_gaussian')

  def _forward(self, x):
    return natural.forward(self._natural, scale_factor.apply(self._operator, x))[0]

  def _forward_log_det_jacobian(self, x):
    _, log_det = natural.forward(self._natural, scale_factor.apply(self._operator, x))
    return log_det + self._operator.log_abs_determinant()

  def _inverse(self, y):
    rows = natural.inverse(self._natural, y)
    rows = self._operator.solve(rows, adjoint_arg=True)
    return tf.linalg.matrix_transpose(rows)
