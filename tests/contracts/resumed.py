"""Runs that die while they adapt, and are continued from their checkpoints."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.driver import checkpoint

__all__ = ['check_same_bits']


def check_same_bits(kernel, start, folder, monkeypatch):
  """Checks that a run continued in other blocks is the run in one.

  Args:
    kernel: One that adapts for 60 steps.
    start: Its first state.
    folder: Of the checkpoints, empty.
    monkeypatch: pytest's.
  """

  def run(block_size, folder=None):
    return tfpa.sample(
      kernel, start, 20, progress=False, seed=(0, 3), jit_compile=False,
      block_size=block_size, checkpoint_dir=folder,
    )  # fmt: skip

  save, num_saved = checkpoint.Checkpoint.save, []

  def dying_save(self, *args):
    save(self, *args)
    num_saved.append(None)
    if len(num_saved) == 5:
      raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(checkpoint.Checkpoint, 'save', dying_save)
    with pytest.raises(KeyboardInterrupt):
      run(9, folder)  # After 45 steps of 60 that adapt.
  continued, whole = run(11, folder), run(80)
  np.testing.assert_array_equal(continued.states, whole.states)
  for one, two in zip(
    tf.nest.flatten(continued.final_kernel_results),
    tf.nest.flatten(whole.final_kernel_results),
    strict=True,
  ):
    np.testing.assert_array_equal(one, two)
