"""Autoregressive processes AR(p), stationary or from a given start."""

import tensorflow as tf

from tfp_adaptive.core import arguments
from tfp_adaptive.core import shown
from tfp_adaptive.latent.priors import gaussian_prior
from tfp_adaptive.latent.priors import markov_prior


@shown.remembers_call
def autoregression(
  coefficients,
  scale,
  num_steps,
  mean=0.0,
  initial_scale=None,
):
  """Builds the prior of an autoregressive process, with banded precision.

    x_i - mean = sum_k a_k (x_{i-k} - mean) + scale e_i,   e_i ~ N(0, 1)

  By default the process starts in its stationary distribution. The precision
  has the closed form of Gohberg and Semencul. Coefficients may differ between
  chains. A chain whose process is not stationary then has log density -inf.

  Args:
    coefficients: a_1, ..., a_p, [p] or [chains..., p], float32 or float64; or a
      number, the persistence of an AR(1).
    scale: Standard deviation of the noise, positive, [] or [chains...].
    num_steps: d, Python int, above p.
    mean: Mean of the process, [], [d], or [chains..., 1 or d].
    initial_scale: Standard deviation of the first p values, which are then
      independent, [] or [chains...]. By default the start is stationary.

  Returns:
    An `interfaces.GaussianPrior` of states [chains..., d].

  Raises:
    ValueError: If the process is not stationary and `initial_scale` is not
      given, or a shape is wrong.

  References:
    Siddiqui (1958), On the inversion of the sample covariance matrix in a
    stationary autoregressive process.

  Example:
    prior = tfpa.gaussian_priors.autoregression([0.9, -0.2], 0.1, 100)
    draws = tfpa.gaussian_priors.sample(prior, [4], seed=(0, 1))
    print(draws.shape)  # (4, 100)
  """
  coefficients = tf.convert_to_tensor(coefficients)
  if not coefficients.dtype.is_floating:
    raise ValueError(
      '`coefficients` must be float32 or float64, but are '
      f'{coefficients.dtype.name}.'
    )
  if coefficients.shape.rank == 0:
    coefficients = coefficients[tf.newaxis]
  order, dtype = coefficients.shape[-1], coefficients.dtype
  if num_steps <= order:
    raise ValueError(
      f'An AR({order}) process needs more than {order} steps, but `num_steps` '
      f'is {num_steps}.'
    )
  coefficients = [a[..., tf.newaxis] for a in tf.unstack(coefficients, axis=-1)]
  arguments.check_positive(scale, 'scale', 1.0, is_array=True)
  scale = tf.convert_to_tensor(scale, dtype=dtype)[..., tf.newaxis]
  if initial_scale is None:
    bands = _stationary_bands(coefficients, num_steps)
    bands = tuple(band / scale**2 for band in bands)
  else:
    arguments.check_positive(initial_scale, 'initial_scale', 1.0, is_array=True)
    initial = tf.convert_to_tensor(initial_scale, dtype=dtype)[..., tf.newaxis]
    bands = _started_bands(coefficients, scale, initial, num_steps)
  return markov_prior.build(
    'autoregression',
    bands,
    gaussian_prior.mean(mean, dtype, num_steps),
    'The roots of z^p - a_1 z^(p-1) - ... - a_p must lie inside the unit '
    'circle and `scale` be positive. For a process that is not stationary give '
    '`initial_scale`.',
  )


def _stationary_bands(coefficients, size):
  """Returns the diagonals of P for unit noise.

  P = A A^T - B B^T with lower Toeplitz A and B, whose first columns are (1,
  -a_1, ..., -a_p, 0, ...) and (0, ..., 0, -a_p, ..., -a_1). Let
  b = (1, -a_1, ..., -a_p). Entry (i, i + k) is the sum of b_r b_{r+k} over
  r <= i, minus the sum over r >= d - i - k.
  """
  polynomial = [tf.ones_like(coefficients[0]), *(-a for a in coefficients)]
  bands = []
  for k in range(len(polynomial)):
    i = tf.range(size - k)
    total = 0.0
    for r in range(len(polynomial) - k):
      count = tf.cast(r <= i, polynomial[0].dtype) - tf.cast(
        r >= size - i - k, polynomial[0].dtype
      )
      total += polynomial[r] * polynomial[r + k] * count
    bands.append(total)
  return bands


def _started_bands(coefficients, scale, initial_scale, size):
  """Returns the diagonals of P if the first p values are independent."""
  order = len(coefficients)
  is_start = tf.range(size) < order
  precisions = tf.where(is_start, initial_scale**-2.0, scale**-2.0)
  shape = precisions.shape
  for a in coefficients:
    shape = tf.broadcast_static_shape(shape, a.shape)
  precisions = tf.broadcast_to(precisions, shape)
  rows = [
    tf.broadcast_to(tf.where(is_start, 0.0, a), shape) for a in coefficients
  ]
  return markov_prior.conditional_bands(rows, precisions)
