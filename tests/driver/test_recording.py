"""What a run keeps in memory stays whole when it is interrupted."""

import numpy as np
import pytest

from tfp_adaptive.driver import recording


class _Interrupting:
  """Rows that cannot be copied to the end."""

  shape, dtype = (3, 2), np.dtype(np.float64)

  def __len__(self):
    return 3

  def __array__(self, *args, **kwargs):
    raise KeyboardInterrupt


def _kept():
  return recording.InMemory(num_discarded=4, num_results=10, num_parts=1)


def test_rows_so_far_are_results_alone():
  kept = _kept()
  assert kept.rows_so_far() is None
  kept.append(
    [np.zeros([0, 2]), np.arange(4.0)]
  )  # Discarded steps have no states.
  assert kept.rows_so_far() is None
  states, trace = np.ones([3, 2]), 10.0 + np.arange(3.0)
  kept.append([states, trace])
  found = kept.rows_so_far()
  np.testing.assert_array_equal(found[0], states)
  np.testing.assert_array_equal(found[1], trace)


def test_an_interrupt_leaves_no_half_of_a_block():
  kept = _kept()
  kept.append([np.zeros([0, 2]), np.arange(4.0)])
  kept.append([np.ones([3, 2]), np.arange(3.0)])
  with pytest.raises(KeyboardInterrupt):
    kept.append([np.full([3, 2], 7.0), _Interrupting()])
  states, trace = kept.rows_so_far()
  assert states.shape == (3, 2) and trace.shape == (3,)
  np.testing.assert_array_equal(states, 1.0)
