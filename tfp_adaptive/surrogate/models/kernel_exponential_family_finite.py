"""Kernel exponential family in random Fourier features.

  f(x) = sqrt(2 / m) sum_j c_j cos(w_j . v + u_j),   u_j ~ U(0, 2 pi)

with m features and the coordinates v = B z of `kernel_surrogate`. The c_j are
fitted. w_j are drawn from the spectral density of the kernel k(v, v'):

  exp(-|v - v'|^2)                   w ~ N(0, 2 I)
  (1 + |v - v'|^2 / shape)^-shape    w ~ N(0, 2 g I), g ~ Gamma(shape, shape)

Source: Strathmann et al. (2015), section 4.3 and Proposition 2,
https://arxiv.org/abs/1506.02564.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.core import arguments
from tfp_adaptive.core import random
from tfp_adaptive.core import shown
from tfp_adaptive.core import trigonometry
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.surrogate.models import kernel_surrogate
from tfp_adaptive.surrogate.models import score_matching
from tfp_adaptive.surrogate.models import surrogate_frame

_FEWEST_FEATURES = 128  # Features in the comparison of candidates.


class _Features(NamedTuple):
  """The random features."""

  frequencies: tf.Tensor  # w, [d, m].
  phases: tf.Tensor  # u, [m].


@shown.remembers_call
def kernel_exponential_family_finite(
  num_points=1000,
  num_features=500,
  kernel='gaussian',
  shape=1,
  online=False,
):
  """Returns a surrogate of fixed size, the first one to try.

  A fit to n draws with m features costs n m^2 + m^3, and a score m d per chain,
  in runs of any length. Cross-validation chooses bandwidth, metric,
  regularization and whether a Gaussian is the base of the density. Cosines do
  not decay, so that the score is reduced to zero far from the draws.

  Args:
    num_points: n, draws of the history that a fit uses, a positive int.
    num_features: m, a positive int.
    kernel: `'gaussian'`, or `'rational_quadratic'` for a mixture of bandwidths.
    shape: Shape of the rational quadratic kernel, a positive int. 1 gives the
      widest mixture.
    online: Whether draws can be added to a fit by `update`, at m^2 d per draw.
      This adds m^2 numbers to the params.

  Returns:
    An `interfaces.Surrogate`.

  Raises:
    ValueError: If a count is not a positive int or the kernel is unknown.

  References:
    Strathmann et al. (2015), Proposition 2, https://arxiv.org/abs/1506.02564.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.kernel_hamiltonian(
      target.log_prob,
      num_adaptation_steps=1000,
      surrogate=tfpa.surrogates.kernel_exponential_family_finite(500),
    )
  """
  arguments.check_count(num_points, 'num_points', 1000)
  arguments.check_count(num_features, 'num_features', 500)
  arguments.check_count(shape, 'shape', 1)
  if kernel not in ('gaussian', 'rational_quadratic'):
    raise ValueError(
      "`kernel` must be 'gaussian' or 'rational_quadratic', but got "
      f'{kernel!r}.'
    )
  mixture = None if kernel == 'gaussian' else shape
  return kernel_surrogate.build(
    'kernel_exponential_family_finite',
    num_points,
    _basis(num_features, mixture),
    online=online,
  )


def _basis(num_features, mixture=None):
  """Returns the `score_matching.Basis` of cosines."""
  return score_matching.Basis(
    init=lambda *args: _draw(*args, num_features, mixture),
    refresh=lambda data, draws: data,
    shrink=_shrink,
    size=lambda data: ps.shape(data.phases)[-1],
    at=lambda data, maps: data,
    moments=_moments,
    value=_value,
    gradient=_gradient,
    features=_slopes,
  )


def _draw(event_size, dtype, seed, num_features, mixture):
  """Draws frequencies and phases."""
  normal_seed, phase_seed, scale_seed = random.split(seed, 3)
  frequencies = math.sqrt(2.0) * random.normal(
    [event_size, num_features], dtype, normal_seed
  )
  if mixture:
    # A Gamma draw of integer shape is a sum of exponentials.
    exponentials = -random.log_uniform(
      [mixture, num_features], dtype, scale_seed
    )
    frequencies *= tf.sqrt(tf.reduce_mean(exponentials, axis=0))
  phases = 2.0 * math.pi * random.uniform([num_features], dtype, phase_seed)
  return _Features(frequencies, phases)


def _shrink(data):
  count = ps.minimum(_FEWEST_FEATURES, ps.shape(data.phases)[-1])
  return _Features(data.frequencies[:, :count], data.phases[:count])


def _moments(data, maps, draws, base):
  """Returns G and h of Proposition 2; h has a term for the base."""
  frequencies, cos, sin = _waves(data, maps, draws.points)
  products = tf.matmul(frequencies, frequencies, transpose_a=True)
  gram = products * tf.matmul(
    sin, draws.weights[:, None] * sin, transpose_a=True
  )
  along = sin * tf.matmul(base, frequencies)
  curved = cos * tf.reduce_sum(frequencies**2, axis=-2, keepdims=True)
  return gram, tf.linalg.matvec(curved + along, draws.weights, transpose_a=True)


def _slopes(data, maps, points):
  """Returns gradients in z [n, d, m] and Laplacians [n, m]."""
  frequencies, cos, sin = _waves(data, maps, points)
  slopes = -frequencies * sin[..., None, :]
  return slopes, -tf.reduce_sum(frequencies**2, axis=-2) * cos


def _waves(data, maps, points):
  """Returns B^T w, and sqrt(2 / m) times cos and sin of w_j . v + u_j."""
  frequencies = tf.matmul(maps, data.frequencies, transpose_a=True)
  cos, sin = trigonometry.cos_and_sin(
    tf.matmul(points, frequencies) + data.phases
  )
  amplitude = _amplitude(data)
  return frequencies, amplitude * cos, amplitude * sin


def _value(data, coefficients, v):
  cos, _ = trigonometry.cos_and_sin(
    surrogate_frame.multiply(v, data.frequencies) + data.phases
  )
  return _amplitude(data) * tf.reduce_sum(coefficients * cos, axis=-1)


def _gradient(data, coefficients, v):
  _, sin = trigonometry.cos_and_sin(
    surrogate_frame.multiply(v, data.frequencies) + data.phases
  )
  return surrogate_frame.multiply(
    -_amplitude(data) * coefficients * sin, data.frequencies, transpose=True
  )


def _amplitude(data):
  count = tf.cast(ps.shape(data.phases)[-1], data.phases.dtype)
  return tf.sqrt(2.0 / count)
