"""What was learned, taken out of a run: frozen, or refused."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.adaptation import learning


def test_frozen_is_the_kernel_at_its_end():
  kernel = learning.kernel(60)
  states, results = learning.run(kernel, 70)
  assert int(results[-1].num_fits) > 0
  fixed = tfpa.frozen(kernel, results[-1])
  assert isinstance(fixed, tfpa.MetropolisHastings)
  state = states[-1]
  expected, _ = kernel.one_step(state, results[-1], seed=(5, 6))
  moved, _ = fixed.one_step(state, fixed.bootstrap_results(state), seed=(5, 6))
  np.testing.assert_allclose(moved, expected, rtol=1e-12)
  assert np.any(moved != state)


def test_frozen_keeps_tensors_that_are_not_of_the_dtype_of_the_state():
  kernel = learning.kernel(12)
  _, results = learning.run(kernel, 12, learning.start(dtype=np.float32))
  fixed = tfpa.frozen(kernel, results[-1])
  params = learning.params_of(
    fixed.bootstrap_results(learning.start(dtype=np.float32))
  )
  assert params.num_fits.dtype == tf.int32 and params.mean.dtype == tf.float32
  assert int(params.num_fits) == int(results[-1].num_fits) > 0


def test_a_surrogate_kernel_is_no_kernel_of_tfp():
  kernel = learning.kernel(0)
  results = kernel.bootstrap_results(learning.start())
  with pytest.raises(ValueError, match='score of a surrogate'):
    tfpa.as_tfp_kernel(kernel, results)
  np.testing.assert_allclose(
    tfpa.learned_factor(kernel, results), 0.5 * np.eye(learning.SIZE)
  )
