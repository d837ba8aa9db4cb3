"""A dense covariance by one eigendecomposition."""

import tensorflow as tf

from tfp_adaptive.core import shown
from tfp_adaptive.latent.priors import gaussian_prior
from tfp_adaptive.latent.priors import spectral_prior
from tfp_adaptive.linalg.symmetric import symmetric_part


@shown.remembers_call
def spectral(
  covariance=None,
  mean=0.0,
  kernel=None,
  index_points=None,
  jitter=0.0,
  auxiliary_covariance=None,
):
  """Builds the prior N(mean, C) for any covariance, by C = U diag(gamma) U^T.

  The decomposition costs O(d^3) once. A step with a gradient costs two products
  with U, O(d^2). C may be singular, because nothing is inverted.

  Args:
    covariance: C, [d, d], symmetric, or [chains..., d, d]; or give `kernel`
      and `index_points`.
    mean: Mean of the field, [], [d] or [chains..., d].
    kernel: A `tfp.math.psd_kernels` kernel.
    index_points: Inputs of the kernel, [d, features].
    jitter: Variance that is added to the diagonal of C. It makes a nearly
      singular C invertible, but sampling does not need it.
    auxiliary_covariance: S, [d, d], positive definite; the identity by default.
      The auxiliary variable becomes u ~ N(x, delta / 2 S). With S = C the
      marginal sampler is pCNL.

  Returns:
    An `interfaces.GaussianPrior` of states [chains..., d].

  Raises:
    ValueError: If C is not given exactly once, is not square or symmetric, or
      has an eigenvalue that is negative beyond rounding.

  References:
    Titsias and Papaspiliopoulos (2018), sections 3.3 and 3.4,
    https://arxiv.org/abs/1610.09641.

  Example:
    days = np.arange(100.0)[:, np.newaxis]
    kernel = tfp.math.psd_kernels.MaternThreeHalves(1.0, np.float64(20))
    prior = tfpa.gaussian_priors.spectral(kernel=kernel, index_points=days)
    draws = tfpa.gaussian_priors.sample(prior, [4], seed=(0, 1))
  """
  matrix = gaussian_prior.covariance_matrix(
    covariance, kernel, index_points, jitter
  )
  size = matrix.shape[-1]
  mean = gaussian_prior.mean(mean, matrix.dtype, size)
  to_white, from_white, log_volume = None, None, None
  if auxiliary_covariance is not None:
    from_white = tf.linalg.cholesky(
      tf.convert_to_tensor(auxiliary_covariance, dtype=matrix.dtype)
    )
    to_white = tf.linalg.inv(from_white)
    matrix = tf.matmul(to_white, tf.matmul(matrix, to_white, transpose_b=True))
    matrix = symmetric_part(matrix)
  eigenvalues, vectors = spectral_prior.eigh(matrix)
  gaussian_prior.check_eigenvalues(
    eigenvalues, 'Add `jitter`, or check the kernel.'
  )
  if from_white is None and matrix.shape.rank == 2:
    # U and U^T are stored, because every step needs both.
    basis = (vectors, tf.linalg.matrix_transpose(vectors))
    forward = adjoint = lambda basis, x: _rows_times_stored(x, *basis)
    backward = lambda basis, s: _rows_times_stored(s, basis[1], basis[0])
  elif from_white is None:
    basis = (vectors,)
    forward = adjoint = lambda basis, x: gaussian_prior.rows_times(x, basis[0])
    backward = lambda basis, s: gaussian_prior.rows_times(
      s, basis[0], transpose=True
    )
  else:
    # x = L U s with S = L L^T gives an isotropic problem in L^-1 x.
    basis = (
      tf.matmul(from_white, vectors),
      tf.matmul(to_white, vectors, transpose_a=True),
      tf.broadcast_to(
        tf.reduce_sum(tf.math.log(tf.linalg.diag_part(from_white)), axis=-1),
        tf.shape(eigenvalues)[:-1],
      ),
    )
    log_volume = lambda basis: basis[2]
    forward = lambda basis, x: gaussian_prior.rows_times(x, basis[1])
    adjoint = lambda basis, g: gaussian_prior.rows_times(g, basis[0])
    backward = lambda basis, s: gaussian_prior.rows_times(
      s, basis[0], transpose=True
    )
  return spectral_prior.build(
    'spectral',
    [size],
    spectral_prior.SpectralParams(mean, eigenvalues, basis),
    forward=forward,
    backward=backward,
    adjoint=adjoint,
    log_volume=log_volume,
  )


def _rows_times_stored(rows, matrix, transposed):
  """Returns v^T M for rows v, by the faster of M and M^T.

  With M^T, XLA on CPU takes 1.5 times as long for a few rows, but is faster for
  one row.
  """
  if rows.shape.num_elements() == rows.shape[-1]:
    return gaussian_prior.rows_times(rows, transposed, transpose=True)
  return gaussian_prior.rows_times(rows, matrix)
