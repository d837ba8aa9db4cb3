"""How far step sizes may go."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.core import step_sizes


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_step_sizes_have_squares_and_inverses_of_both_sides(dtype):
  limit = float(np.finfo(dtype).max) ** 0.25
  sizes = tf.constant([0.0, 0.1, 3.0, np.inf], dtype)
  found = step_sizes.bounded(sizes).numpy()
  np.testing.assert_allclose(found, [1.0 / limit, 0.1, 3.0, limit], rtol=1e-6)
  squares = found**2
  assert np.all(np.isfinite(squares)) and np.all(np.isfinite(1.0 / squares))
  assert np.all(squares >= np.finfo(dtype).tiny)
