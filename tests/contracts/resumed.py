"""Runs that die while they adapt, and are continued from their checkpoints."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.driver import checkpoint


@contextlib.contextmanager
def interrupted(monkeypatch, num_saves):
  """Interrupts a run right after its `num_saves`-th checkpoint."""
  save, saved = checkpoint.Checkpoint.save, []

  def dying_save(self, *args):
    save(self, *args)
    saved.append(None)
    if len(saved) == num_saves:
      raise KeyboardInterrupt

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(checkpoint.Checkpoint, 'save', dying_save)
    yield


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

  with interrupted(monkeypatch, 5):
    run(9, folder)  # After 45 steps of 60 that adapt.
  continued, whole = run(11, folder), run(80)
  tf.nest.map_structure(
    np.testing.assert_array_equal,
    (continued.states, continued.final_kernel_results),
    (whole.states, whole.final_kernel_results),
  )
