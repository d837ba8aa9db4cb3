"""Matrices, kernels and shapes that make no prior are refused with a reason."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import gaussian_priors

_kernels = tfp.math.psd_kernels
_TWO = np.array([[2.0, 0.5], [0.5, 1.0]])
_MATERN = _kernels.MaternOneHalf(length_scale=np.float64(2.0))
_LINEAR = _kernels.Linear(np.float64(1.0))
_DENSE = gaussian_priors.spectral(_TWO)
_SINGLE = gaussian_priors.spectral(_TWO.astype(np.float32))
_line = functools.partial(gaussian_priors.stationary, 4)
_cholesky, _kronecker = gaussian_priors.cholesky, gaussian_priors.kronecker
_block, _markov = gaussian_priors.block, gaussian_priors.markov


@pytest.mark.parametrize(
  'build, arguments, message',
  [
    (_cholesky, [np.diag([1.0, -0.1])], 'Add `jitter`'),
    (_cholesky, [np.diag([1.0, np.inf])], 'not finite'),
    (_cholesky, [np.triu(_TWO)], 'symmetric'),
    (_cholesky, [np.ones([2, 3])], 'square'),
    (_kronecker, [], 'one matrix for every axis'),
    (_kronecker, [[_TWO, _TWO.astype(np.float32)]], 'one dtype'),
    (_kronecker, [[_TWO, _TWO - 2.0 * np.eye(2)]], 'That is factor 1'),
    (_kronecker, [[_TWO, np.triu(_TWO)]], 'symmetric'),
    (_block, [_DENSE], 'num_blocks=3'),
    (_block, [[_DENSE, _DENSE], 2], 'Leave it out'),
    (_block, [[_DENSE, _TWO]], 'list of at least one'),
    (_block, [[_DENSE, _SINGLE]], 'one dtype'),
    (_markov, [(np.ones(4), np.ones(3))], 'not positive definite'),
    (_markov, [(np.ones(4), np.ones(4))], 'one fewer each'),
    (_markov, [np.eye(3)], 'tuple of diagonals'),
    (gaussian_priors.autoregression, [[1.01], 1.0, 8], 'unit circle'),
    (gaussian_priors.random_walk, [1.0, 8, 1.0, 3], '1 or 2'),
    (
      gaussian_priors.state_space,
      [np.eye(2), np.eye(3), np.eye(2), 4],
      'of one size',
    ),
    (_line, [_LINEAR], 'not stationary'),
    (_line, [3.0], 'function of distance'),
    (_line, [lambda r: r], 'largest there'),
    (_line, [lambda r: 1.0 / r], 'not finite'),
    (_line, [tf.reduce_sum], 'one number for every distance'),
    (_line, [_MATERN, -1.0], 'spacing'),
    (gaussian_priors.stationary, [(3, 3, 3), _MATERN], 'one or two positive'),
    (functools.partial(_line, torus_shape=5), [_MATERN], 'on the torus'),
    (functools.partial(_line, torus_shape=3), [_MATERN], 'at least the grid'),
    (gaussian_priors.log_prob, [_DENSE, np.zeros([4, 3])], 'event shape'),
  ],
)
def test_what_makes_no_prior_is_refused(build, arguments, message):
  with pytest.raises((TypeError, ValueError), match=message):
    build(*arguments)
