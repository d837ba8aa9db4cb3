"""Control flow: what is computed in a stage of its own is computed always."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import control_flow


@pytest.mark.parametrize('mode', ['eager', 'graph', 'xla'])
@pytest.mark.parametrize('first', [1.0, -2.0, 0.0, np.inf, -np.inf, np.nan])
def test_a_stage_is_never_left_out(first, mode):
  def double(x):
    return control_flow.in_stage(lambda x: 2.0 * x, x)

  if mode != 'eager':
    double = tf.function(double, autograph=False, jit_compile=mode == 'xla')
  values = np.array([first, 3.0])
  np.testing.assert_array_equal(double(tf.constant(values)), 2.0 * values)


def test_counts_do_not_overflow():
  count = tf.constant(0)
  for _ in range(5):
    count = adaptation_base.counted(count, tf.constant(2**30 - 1))
  assert 2**30 <= count
