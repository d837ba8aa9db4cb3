"""Draws known before the run: what is fitted, kept, refused."""

import numpy as np
import pytest
import tensorflow as tf

from tests.surrogate import learning
from tests.surrogate import surrogates

_SIZE, _NUM_CHAINS = learning.SIZE, learning.NUM_CHAINS


@pytest.mark.full
def test_a_given_history_is_fitted_before_the_first_step():
  draws = np.random.default_rng(1).normal(3.0, 2.0, size=(50, _SIZE))
  kernel = learning.kernel(0, history=draws)
  results = kernel.bootstrap_results(learning.start())
  params = learning.params_of(results)
  np.testing.assert_allclose(params.mean, draws.mean(axis=0), rtol=1e-10)
  np.testing.assert_allclose(
    np.linalg.inv(params.precision), np.cov(draws.T, bias=True), rtol=1e-3
  )
  assert int(results.num_fits) >= 1
  # C C^T = (Cov^-1 + E[score score^T])^-1 * 2: the covariance, of a Gaussian.
  factor = learning.factor_of(results).numpy()
  np.testing.assert_allclose(
    factor @ factor.T, np.cov(draws.T, bias=True), rtol=0.1, atol=0.1
  )
  _, after = learning.run(kernel, 3)
  for one, other in zip(
    tf.nest.flatten((params, learning.factor_of(results))),
    tf.nest.flatten(
      (learning.params_of(after[-1]), learning.factor_of(after[-1]))
    ),
  ):
    np.testing.assert_array_equal(one, other)


def test_fewer_draws_than_points_leave_rows_empty():
  draws = np.arange(12.0).reshape(6, 2) ** 2
  kernel = learning.kernel(
    20,
    surrogates.gaussian(num_points=10),
    history=draws,
    learn_momentum_scale=False,
  )
  _, results = learning.run(kernel, 1)
  held = results[-1].history
  assert int(held.num_seen) == 6 + _NUM_CHAINS
  np.testing.assert_array_equal(held.is_filled, [True] * 9 + [False])


def test_a_history_of_another_size_is_refused():
  kernel = learning.kernel(0, history=np.zeros([10, _SIZE + 1]))
  with pytest.raises(ValueError, match='draws of size 3, but the state has 2'):
    kernel.bootstrap_results(learning.start())
