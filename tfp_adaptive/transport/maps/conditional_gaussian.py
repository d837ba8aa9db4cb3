"""Conditional Gaussians: normal given a few coordinates, the drivers.

Let w = (x - m) / exp(l) by coordinate, D the indices of k drivers, u = w_D, and
R the other indices:

    w_R = P(u)^-1 h(u) + L(u)^-T y_R,   w_D = y_D,   P = L L^T,   y = C z,
    P(u) = sum_t exp(b_t.u) P_t,
    h(u) = sum_t exp(b_t.u) (h_t + H_t u) + u^T Q u

Each of T matrices P_t is diagonal or tridiagonal, and positive semi-definite.
m, l, b_t, P_t, h_t, H_t, Q and the matrix C are the params of the map. The map
is a bijection for any params, and costs O(d k (T + k)) besides C.
Hierarchies, likelihoods and random walks with unknown scales have this form,
and so do bent ridges. A prior of scale exp(u) gives a term with exponent -2,
and a normal likelihood gives a term with exponent 0.

The map is fitted to pairs of a state and the gradient g of the log density in w
there. If w_R is normal given the drivers, every pair has

    g_R = h(u) - P(u) w_R.

Linear regressions then find the terms without noise, even if chains have not
visited the whole posterior. Drivers and exponents are those with the least loss
on held-out pairs. Then C is fitted to y by the least Fisher divergence
(`linear.fisher_divergence`). `fits.conditional` and `fits.search` make these
fits in NumPy, between blocks of steps.
"""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive import preconditioners
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import shown
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.fits import conditional
from tfp_adaptive.fits import matrix
from tfp_adaptive.fits import search
from tfp_adaptive.linear import fisher_fit
from tfp_adaptive.transport.maps import drivers as drivers_lib
from tfp_adaptive.transport.maps import natural

tfb = tfp.bijectors

_STRUCTURES = ('diagonal', 'tridiagonal')


class ConditionalGaussianParams(
  collections.namedtuple(
    'ConditionalGaussianParams', [*natural.Natural._fields, 'factor']
  ),
):
  """Params of a conditional Gaussian: those of `Natural`, and of C."""

  __slots__ = ()


@shown.remembers_call
def conditional_gaussian(
  drivers=None,
  num_drivers=3,
  structure='diagonal',
  bent=False,
  exponents=None,
  preconditioner=None,
  init_scale=None,
):
  """Builds a conditional Gaussian, for hierarchies and paths.

  Args:
    drivers: Indices in the flattened state, a sequence of ints. Given these
      coordinates, such as log scales and means of a hierarchy, the others are
      nearly normal. By default drivers are found on held-out pairs.
    num_drivers: Largest number of drivers that are found.
    structure: Structure of the precision P of the other coordinates:
      `'diagonal'`, or `'tridiagonal'` for a path in time, whose neighbors in
      the flattened state depend on each other and have one unit.
    bent: Whether means also depend on products of two drivers (Q), for ridges
      like a parabola. This needs more pairs.
    exponents: Exponents of the terms of `drivers`, a float for each, per unit
      of the driver: -2 for the log scale of a normal prior, 0 for a mean. By
      default they are found. If drivers and exponents are given, nothing is
      searched.
    preconditioner: Structure of C; dense by default.
    init_scale: First scale of all coordinates, in units of the state: a
      positive float or a function of the event size. By default the adaptation
      finds this scale.

  Returns:
    An `interfaces.Transport`, to be fitted to pairs.

  Raises:
    ValueError: If drivers are not different ints, exponents are not one float
      for each driver, or the structure is unknown. At the start of a kernel, if
      drivers are not coordinates of the state or leave no other coordinate.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.transport_adaptive_hamiltonian(
      target.log_prob,
      num_adaptation_steps=1000,
      transport=tfpa.transports.conditional_gaussian(drivers=[0]),
    )
  """
  inside = preconditioner or preconditioners.cholesky()
  drivers_lib.check_preconditioner(inside)
  given = drivers_lib.as_indices(drivers, num_drivers)
  exponents = drivers_lib.as_exponents(exponents, given)
  if structure not in _STRUCTURES:
    raise ValueError(
      f'`structure` must be one of {_STRUCTURES}, but got {structure!r}.'
    )
  is_path = structure == 'tridiagonal'

  def init(event_size, dtype, scale):
    first = drivers_lib.first(event_size, given, num_drivers)
    return ConditionalGaussianParams(
      *natural.of_scale(
        event_size, first, tf.cast(scale, dtype), is_path, bent
      ),
      factor=inside.init(event_size, dtype, tf.ones([], dtype)),
    )

  form = dict(is_bent=bool(bent), is_path=is_path)

  def fit(params, states, scores):
    dtype, size = tf.float64, states.shape[-1]

    def fit_inside(*pairs):
      start = inside.init(size, dtype, tf.ones([], dtype))
      return fisher_fit.fit(
        inside, start, *(tf.constant(rows, dtype) for rows in pairs)
      )

    # A structure with a `fisher_factor` is dense, and its params are C.
    is_dense = inside.fisher_factor is not None
    found = np.array(drivers_lib.first(size, given, num_drivers)), exponents
    if exponents is None:
      found = search.find(states, scores, found[0], **form)
    fit_factor = matrix.fit if is_dense else fit_inside
    found = conditional.fit(
      states, scores, *found, **form, fit_factor=fit_factor
    )
    return ConditionalGaussianParams(*found.natural, found.factor)

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
  """The map as a bijector of rows [..., d]."""

  def __init__(self, params, inside):
    self._natural = natural.Natural(*params[:-1])
    self._operator = inside.operator(params.factor)
    super().__init__(forward_min_event_ndims=1, name='conditional_gaussian')

  def _forward(self, x):
    return self._map(x)[0]

  def _forward_log_det_jacobian(self, x):
    return self._map(x)[1] + self._operator.log_abs_determinant()

  def _map(self, x):
    """Returns f(x), and log |det Df| - log |det C|, for any batch shape."""
    shape = ps.shape(x)
    rows = scale_factor.apply(
      self._operator, tf.reshape(x, ps.stack([-1, shape[-1]]))
    )
    mapped, log_det = natural.forward(self._natural, rows)
    return tf.reshape(mapped, shape), tf.reshape(log_det, shape[:-1])

  def _inverse(self, y):
    shape = ps.shape(y)
    rows = tf.reshape(y, ps.stack([-1, shape[-1]]))
    rows = natural.inverse(self._natural, rows)
    return tf.reshape(scale_factor.unapply(self._operator, rows), shape)
