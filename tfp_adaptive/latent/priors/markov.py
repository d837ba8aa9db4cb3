"""A banded precision matrix, given by its diagonals."""

import tensorflow as tf

from tfp_adaptive.core import shown
from tfp_adaptive.latent.priors import gaussian_prior
from tfp_adaptive.latent.priors import markov_prior


@shown.remembers_call
def markov(precision_bands, mean=0.0):
  """Builds the prior N(mean, P^-1) of a Markov chain by its precision P.

  x_i depends only on its p neighbors on either side, so that P has p diagonals
  on each side of the main one. A step costs O(p^2 d) in time and O(p d) in
  memory per chain. AR(p) processes, random walks, splines and state-space
  models have such priors; `autoregression`, `random_walk` and `state_space`
  compute P. On a GPU or TPU, P is factorized and solved in O(log d) steps
  instead of d, with at least p times the work.

  If the prior depends on hyperparameters, diagonals may have leading chain
  dimensions. Every chain then has its own P and its own factor. A compiled
  function cannot raise an error. There, a P that is not positive definite has
  log density -inf, without NaN, and a move to it is rejected.

  Args:
    precision_bands: Tuple of the diagonals of P, the main one first, of shapes
      [chains..., d], [chains..., d - 1], ..., [chains..., d - p]; float32 or
      float64. P is symmetric, so that its diagonals on one side are enough.
    mean: Mean of the field, [], [d] or [chains..., d].

  Returns:
    An `interfaces.GaussianPrior` of states [chains..., d].

  Raises:
    ValueError: If the diagonals do not fit together, or P is not positive
      definite.

  References:
    Rue and Held (2005), Gaussian Markov random fields, chapter 2.

  Example:
    precision = tf.fill([100], 2.5), tf.fill([99], -1.0)
    prior = tfpa.gaussian_priors.markov(precision)
    draws = tfpa.gaussian_priors.sample(prior, [4], seed=(0, 1))
  """
  bands = _diagonals(precision_bands)
  size = bands[0].shape[-1]
  return markov_prior.build(
    'markov',
    bands,
    gaussian_prior.mean(mean, bands[0].dtype, size),
    'Every diagonal of P on one side of the main one must be given, and P be '
    'the inverse of a covariance: an intrinsic random walk needs a proper '
    'start, as in `tfpa.gaussian_priors.random_walk`.',
  )


def _diagonals(precision_bands):
  """Returns the diagonals as Tensors of one dtype and one batch shape."""
  if not isinstance(precision_bands, (tuple, list)) or not precision_bands:
    raise ValueError(
      '`precision_bands` must be a tuple of diagonals, the main one first, but '
      f'got {type(precision_bands).__name__}. For a tridiagonal P write '
      '`(diagonal, off_diagonal)`, of shapes [..., d] and [..., d - 1].'
    )
  main = tf.convert_to_tensor(precision_bands[0])
  if not main.dtype.is_floating:
    raise ValueError(
      f'The precision must be float32 or float64, but has {main.dtype.name}.'
    )
  bands = [main] + [
    tf.convert_to_tensor(band, dtype=main.dtype) for band in precision_bands[1:]
  ]
  shapes = [band.shape for band in bands]
  if any(shape.rank in (None, 0) or shape[-1] is None for shape in shapes):
    raise ValueError(
      'Diagonals must end in a static number of entries, but have shapes '
      f'{shapes}.'
    )
  size = main.shape[-1]
  wanted = [size - k for k in range(len(bands))]
  if [shape[-1] for shape in shapes] != wanted or wanted[-1] < 1:
    raise ValueError(
      f'The diagonals of a matrix of {size} rows have {size}, {size - 1}, ... '
      f'entries, one fewer each, but got {[s[-1] for s in shapes]}.'
    )
  batch = main.shape[:-1]
  for shape in shapes:
    batch = tf.broadcast_static_shape(batch, shape[:-1])
  return tuple(tf.broadcast_to(band, batch + band.shape[-1:]) for band in bands)
