"""Linear Gaussian state-space models: paths of a vector Markov chain."""

import tensorflow as tf

from tfp_adaptive.core import shown
from tfp_adaptive.latent.priors import gaussian_prior
from tfp_adaptive.latent.priors import markov_prior


@shown.remembers_call
def state_space(
  transition,
  noise_covariance,
  initial_covariance,
  num_steps,
  mean=0.0,
):
  """Builds the prior of the states of a linear Gaussian state-space model.

    x_0 ~ N(mean, S),   x_i - mean = A (x_{i-1} - mean) + N(0, Q)

  The state of the sampler is the path [num_steps, q]. Put observations into the
  likelihood. Ordered by time, the precision has 2 q - 1 superdiagonals, and a
  step costs O(q^2 d) for d = num_steps q. Q must not be singular. For an AR(p),
  whose Q is singular, use `autoregression`.

  Args:
    transition: A, [q, q] or [chains..., q, q], float32 or float64.
    noise_covariance: Q, the same shape, positive definite.
    initial_covariance: S, the same shape, positive definite.
    num_steps: Python int, at least 2.
    mean: Mean of the flat path, [], [num_steps q] or [chains..., num_steps q].

  Returns:
    An `interfaces.GaussianPrior` of states [chains..., num_steps, q].

  Raises:
    ValueError: If a matrix is not square, or a covariance not positive
      definite.

  Example:
    transition = np.array([[1.0, 1.0], [0.0, 1.0]])  # A level, its slope.
    noise = np.diag([0.1, 0.01])
    prior = tfpa.gaussian_priors.state_space(transition, noise, noise, 100)
    draws = tfpa.gaussian_priors.sample(prior, [4], seed=(0, 1))
  """
  transition = tf.convert_to_tensor(transition)
  matrices = [transition] + [
    tf.convert_to_tensor(m, dtype=transition.dtype)
    for m in (noise_covariance, initial_covariance)
  ]
  size = transition.shape[-1]
  batch = tf.TensorShape([])
  for matrix in matrices:
    if matrix.shape.rank < 2 or matrix.shape[-2:] != [size, size]:
      raise ValueError(
        'All three matrices must be square and of one size, but have shapes '
        f'{[m.shape for m in matrices]}.'
      )
    batch = tf.broadcast_static_shape(batch, matrix.shape[:-2])
  transition, noise, start = (
    tf.broadcast_to(m, batch + [size, size]) for m in matrices
  )
  here, ahead = _blocks(transition, noise, start, num_steps)
  return markov_prior.build(
    'state_space',
    _bands(here, ahead),
    gaussian_prior.mean(mean, transition.dtype, num_steps * size),
    '`noise_covariance` and `initial_covariance` must be positive definite.',
    event_shape=[num_steps, size],
  )


def _blocks(transition, noise, start, num_steps):
  """Returns the blocks (i, i) and (i, i + 1) of P, [..., num_steps, q, q]."""
  pushed = tf.linalg.cholesky_solve(tf.linalg.cholesky(noise), transition)
  inner = tf.matmul(transition, pushed, transpose_a=True)
  identity = tf.eye(noise.shape[-1], dtype=noise.dtype)
  first, later = (
    tf.linalg.cholesky_solve(
      tf.linalg.cholesky(m), tf.broadcast_to(identity, m.shape)
    )
    for m in (start, noise)
  )

  def repeat(block, number):
    block = block[..., tf.newaxis, :, :]
    return tf.repeat(block, number, axis=-3)

  here = tf.concat(
    [
      repeat(first + inner, 1),
      repeat(later + inner, num_steps - 2),
      repeat(later, 1),
    ],
    axis=-3,
  )
  return here, repeat(-tf.linalg.matrix_transpose(pushed), num_steps)


def _bands(here, ahead):
  """Returns the diagonals of the block tridiagonal matrix."""
  size, num_steps = here.shape[-1], here.shape[-3]
  # Each row holds its entries from the first column of its block on.
  rows = tf.concat([here, ahead], axis=-1)
  zero = tf.zeros_like(rows[..., 0, 0])
  flat = here.shape[:-3] + [num_steps * size]
  bands = []
  for k in range(2 * size):
    entries = [
      rows[..., a, a + k] if a + k < 2 * size else zero for a in range(size)
    ]
    band = tf.reshape(tf.stack(entries, axis=-1), flat)
    bands.append(band[..., : num_steps * size - k])
  return tuple(bands)
