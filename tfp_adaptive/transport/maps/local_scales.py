"""Local scales: every coordinate of many has a log scale of its own.

With w = (x - m) / e coordinate by coordinate, j a coordinate whose driver is
i(j), v those that all share,

  w_j = (b_j + p_j D_j) / P_j + P_j^-1/2 y_j,   P_j = r_j + a_j D_j^2,
  D_j(w)^-2 = exp(-2 (c w_i(j) + s.v)) + exp(-2 (t.v + q_j)),

and w = y for all others, y = C z: a bijection for any params, O(d k) beside C.
P is the precision of a coordinate with a prior of scale one whose likelihood
sees D_j x_j, as in sparse regressions, c = 1, and of one with a prior of scale
1 / D_j, c = -1; the second term of D is a slab, which no scale exceeds.

It is fitted to pairs of a state and the gradient of the log density there,
drivers and exponents included: see `local_fit`. Then C has the least Fisher
divergence in y.

Sources: Seyboldt, Carlson and Carpenter (2026), https://arxiv.org/abs/2603.18845,
for the divergence; Piironen and Vehtari (2017), Sparsity information and
regularization in the horseshoe and other shrinkage priors, for the scales.
"""

import collections

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive import preconditioners
from tfp_adaptive.core import arguments
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.linear import fisher_divergence
from tfp_adaptive.transport.maps import drivers as drivers_lib
from tfp_adaptive.transport.maps import local_fit
from tfp_adaptive.transport.maps import pairs as pairs_lib

__all__ = ['LocalScalesParams', 'local_scales']

tfb = tfp.bijectors


class LocalScalesParams(
  collections.namedtuple(
    'LocalScalesParams',
    ['mean', 'log_scale', *local_fit.Scales._fields, 'slack', 'pull', 'factor'],
  )
):
  """Params of local scales, in units of w.

  Attributes:
    mean: m, [d].
    log_scale: log e, [d].
    drivers: i(j), [d] int32; -1: none.
    shared: Coordinates v, [k] int32; -1: none in this place.
    own: c, [d]: in units of the drivers.
    rise: s, [k].
    cap: t, [k].
    ceiling: q, [d].
    slack: r and a, [2, d], not negative.
    pull: b and p, [2, d].
    factor: Params of C.
  """

  __slots__ = ()

  @staticmethod
  def merged(parts):
    """Returns one of the fits: others may have other drivers."""
    return parts[0]


def local_scales(num_shared=3, preconditioner=None, init_scale=None):
  """Builds a map for many coordinates with a log scale each.

  For shrinkage priors, the horseshoe among them, and scale mixtures, around
  zero: which coordinate is the log scale of which is found. Where none is, it
  is the preconditioner alone.

  Args:
    num_shared: The most log scales that all of these share, a positive int.
    preconditioner: Structure of C, inside; dense by default.
    init_scale: First scale of all coordinates, in units of the state: a
      positive float, a function of the event size, or `None`: found by the
      adaptation.

  Returns:
    An `interfaces.Transport`, to be fitted to pairs.

  Raises:
    ValueError: If `num_shared` is no positive int, or the preconditioner not
      one structure for the whole state; at the start of a kernel, if the state
      has one coordinate, or a size that is not static.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.transport_adaptive_hamiltonian(
      target.log_prob, 1000, transport=tfpa.transports.local_scales()
    )
  """
  inside = preconditioner or preconditioners.cholesky()
  drivers_lib.check_preconditioner(inside)
  arguments.check_count(num_shared, 'num_shared', 3)

  def init(event_size, dtype, scale):
    count = len(drivers_lib.first(event_size, None, num_shared))
    zeros = tf.zeros([event_size], dtype)
    none = -tf.ones([event_size], tf.int32)
    return LocalScalesParams(
      mean=zeros,
      log_scale=zeros + tf.math.log(tf.cast(scale, dtype)),
      drivers=none,
      shared=none[:count],
      own=zeros,
      rise=zeros[:count],
      cap=zeros[:count],
      ceiling=zeros + local_fit.NO_CEILING,
      slack=tf.stack([zeros + 1.0, zeros]),
      pull=tf.stack([zeros, zeros]),
      factor=inside.init(event_size, dtype, tf.ones([], dtype)),
    )

  def fit(params, states, scores, weights):
    found, rows, scores = _fitted(params, states, scores, weights)
    size, one = ps.shape(states)[-1], tf.ones([], states.dtype)
    factor = fisher_divergence.fit(
      inside, inside.init(size, states.dtype, one), rows, scores, weights
    )
    return found._replace(factor=factor)

  return interfaces.Transport(
    name='local_scales',
    init=init,
    bijector=lambda params: _LocalScales(params, inside),
    scales=lambda params: tf.exp(params.log_scale),
    rescale=lambda params, factor: params._replace(
      mean=factor * params.mean,
      log_scale=params.log_scale + tf.math.log(factor),
    ),
    init_scale=init_scale,
    fit=fit,
  )


class _LocalScales(tfb.Bijector):
  """The map as a bijector of rows [..., d]."""

  def __init__(self, params, inside):
    self._params = params
    self._operator = inside.operator(params.factor)
    super().__init__(forward_min_event_ndims=1, name='local_scales')

  def _forward(self, x):
    return self._map(x)[0]

  def _forward_log_det_jacobian(self, x):
    return self._map(x)[1] + self._operator.log_abs_determinant()

  def _map(self, x):
    """Returns f(x), and log |det| without C's, of rows of any batch shape."""
    shape = ps.shape(x)
    rows = tf.reshape(x, ps.stack([-1, shape[-1]]))
    mapped, log_det = _forward(
      self._params, scale_factor.apply(self._operator, rows)
    )
    return tf.reshape(mapped, shape), tf.reshape(log_det, shape[:-1])

  def _inverse(self, y):
    shape = ps.shape(y)
    rows = _inverse(self._params, tf.reshape(y, ps.stack([-1, shape[-1]])))
    return tf.reshape(scale_factor.unapply(self._operator, rows), shape)


def _forward(params, rows):
  """Returns x of y, rows [n, d], and log |det| of its derivative, [n]."""
  root, center = _normal(params, rows)
  mapped = params.mean + tf.exp(params.log_scale) * (center + rows / root)
  return mapped, tf.reduce_sum(params.log_scale - tf.math.log(root), axis=-1)


def _inverse(params, states):
  """Returns y of x, rows [n, d]."""
  # Drivers are the same in w and in y.
  rows = (states - params.mean) * tf.exp(-params.log_scale)
  root, center = _normal(params, rows)
  return root * (rows - center)


def _normal(params, rows):
  """Returns P^1/2 and the mean given the drivers, [n, d] each."""
  scales = local_fit.Scales(
    *(getattr(params, name) for name in local_fit.Scales._fields)
  )
  scale = tf.exp(local_fit.log_scales(scales, rows)[0])
  precision = params.slack[0] + params.slack[1] * scale**2
  return tf.sqrt(precision), (
    params.pull[0] + params.pull[1] * scale
  ) / precision


def _whitened(params, states, scores):
  """Returns y and the gradient of its log density, [n, d] each."""
  rows = _inverse(params, states)
  step = tf.zeros_like(rows)
  with tf.GradientTape() as tape:
    tape.watch(step)
    mapped, log_det = _forward(params, rows + step)
    value = tf.reduce_sum(scores * mapped, axis=-1) + log_det
  return rows, tape.gradient(value, step)


def _fitted(params, states, scores, weights):
  """Returns params with C = I, and y and its scores, [n, d] each."""
  drivers, shared = local_fit.find_drivers(
    states, scores, weights, params.shared.shape[0]
  )
  units = pairs_lib.standardize(states, scores, weights)
  scales = local_fit.find_scales(
    states, scores, weights, drivers, shared, units.mean
  )
  is_driven = drivers >= 0
  # Scales are around zero.
  mean = tf.where(is_driven, tf.zeros_like(units.mean), units.mean)
  of_shared = pairs_lib.pick(units.scale, shared, 1.0)
  scales = scales._replace(
    own=scales.own * pairs_lib.pick(units.scale, drivers, 1.0),
    rise=scales.rise * of_shared,
    cap=scales.cap * of_shared,
  )
  rows = (states - mean) / units.scale
  slack, pull = local_fit.regress(rows, units.scores, weights, scales, rows)
  params = params._replace(
    mean=mean,
    log_scale=tf.math.log(units.scale),
    slack=slack,
    pull=pull,
    **scales._asdict(),
  )
  return params, *_whitened(params, states, scores)
