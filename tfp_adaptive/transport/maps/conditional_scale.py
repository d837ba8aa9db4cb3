"""Conditional scales: a few drivers set the scale and the place of the rest.

With u the drivers' distances from their means, z = C y and y ~ N(0, I),

  x_j = m_j + c_j.u + exp(l_j + b_j.u) z_j,     u_k = x_{D_k} - m_{D_k},

b and c zero for the drivers themselves: a bijection for any params, O(d k)
beside C. Log-linear, the scale goes on into a neck that no chain has entered.

The params are fitted to pairs of a state x and the gradient g of the log
density there, by the Fisher divergence mean |y + s|^2, s the gradient of the
log density of y. Coordinate j but for the drivers has a residual of its own,

  r_j = z_j + e_j g_j,   e_j = exp(l_j + b_j.u),

and 2 + 2 k params: small least-squares problems, all at once. Where the others
are independent normals whose means and log scales are linear in the drivers,
r_j = 0, and what is left of the drivers' gradient,

  g_D + sum_j (c_j g_j + b_j (1 + e_j z_j g_j)),

is that of their marginal density. Then C has the least divergence on (z, s).

Source: the divergence is that of Seyboldt, Carlson and Carpenter (2026),
https://arxiv.org/abs/2603.18845; the log-linear form that of partial
non-centring, Gorinova, Moore and Hoffman (2020).
"""

import collections

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive import preconditioners
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linear import fisher_divergence
from tfp_adaptive.transport.maps import conditional
from tfp_adaptive.transport.maps import conditional_fit
from tfp_adaptive.transport.maps import drivers as drivers_lib

__all__ = ['ConditionalScaleParams', 'conditional_scale']

tfb = tfp.bijectors


class ConditionalScaleParams(
  collections.namedtuple(
    'ConditionalScaleParams',
    ['mean', 'log_scale', 'drivers', 'shift', 'slope', 'factor'],
  )
):
  """Params of a conditional scale.

  Attributes:
    mean: m, [d].
    log_scale: l, [d].
    drivers: D, [k] int32; -1: none in this place.
    shift: c, [d, k].
    slope: b, [d, k].
    factor: Params of C.
  """

  __slots__ = ()


def conditional_scale(
  drivers=None, num_drivers=2, preconditioner=None, init_scale=None
):
  """Builds a conditional scale, for funnels and hierarchies.

  Args:
    drivers: Indices, in the flattened state, of the coordinates on which scale
      and place of the others depend, a sequence of ints; `None`: found, on
      pairs held out.
    num_drivers: The most that are found.
    preconditioner: Structure of C, inside; dense by default.
    init_scale: First scale of all coordinates, in units of the state: a
      positive float, a function of the event size, or `None`: found by the
      adaptation.

  Returns:
    An `interfaces.Transport`, to be fitted to pairs.

  Raises:
    ValueError: If the drivers are no ints, or repeat themselves; at the start
      of a kernel, if they are not coordinates of the state or leave no other.
  """
  inside = preconditioner or preconditioners.cholesky()
  drivers_lib.check_preconditioner(inside)
  given = drivers_lib.as_indices(drivers, num_drivers)

  def init(event_size, dtype, scale):
    first = drivers_lib.first(event_size, given, num_drivers)
    zeros = tf.zeros([event_size, len(first)], dtype)
    return ConditionalScaleParams(
      mean=tf.zeros([event_size], dtype),
      log_scale=tf.math.log(tf.cast(scale, dtype)) * tf.ones_like(zeros[:, 0]),
      drivers=tf.constant(first, tf.int32),
      shift=zeros,
      slope=zeros,
      factor=inside.init(event_size, dtype, tf.ones([], dtype)),
    )

  def fit(params, states, scores, weights):
    if given is None:
      num_places = params.drivers.shape[0]
      found = conditional_fit.fit(states, scores, weights, num_places)
    else:
      found = conditional_fit.fit_with(states, scores, weights, params.drivers)
    whitened, scores = conditional.whitened(found, states, scores)
    start = inside.init(
      ps.shape(states)[-1], states.dtype, tf.ones([], states.dtype)
    )
    factor = fisher_divergence.fit(inside, start, whitened, scores, weights)
    return ConditionalScaleParams(*found, factor)

  return interfaces.Transport(
    name='conditional_scale',
    init=init,
    bijector=lambda params: _ConditionalScale(params, inside),
    scales=lambda params: tf.exp(params.log_scale),
    rescale=lambda params, factor: params._replace(
      mean=factor * params.mean,
      log_scale=params.log_scale + tf.math.log(factor),
      slope=params.slope / factor,
    ),
    init_scale=init_scale,
    fit=fit,
  )


class _ConditionalScale(tfb.Bijector):
  """The map as a bijector of rows [..., d]."""

  def __init__(self, params, inside):
    self._map = conditional.Conditional(*params[:-1])
    self._operator = inside.operator(params.factor)
    super().__init__(forward_min_event_ndims=1, name='conditional_scale')

  def _forward(self, x):
    whitened = scale_factor.apply(self._operator, x)
    return conditional.forward(self._map, whitened)

  def _forward_log_det_jacobian(self, x):
    whitened = scale_factor.apply(self._operator, x)
    return (
      conditional.log_det(self._map, whitened)
      + self._operator.log_abs_determinant()
    )

  def _inverse(self, y):
    whitened = conditional.inverse(self._map, y)
    shape = ps.shape(whitened)
    rows = tf.reshape(whitened, ps.stack([-1, shape[-1]]))
    rows = self._operator.solve(rows, adjoint_arg=True)
    return tf.reshape(tf.linalg.matrix_transpose(rows), shape)
