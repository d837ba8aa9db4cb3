"""Where a run keeps what it records: in memory, with a checkpoint or without.

`draws_on_disk.DrawsOnDisk` has the same methods.
"""

import numpy as np

__all__ = ['InMemory']


class InMemory:
  """What a run records, one array per leaf, written as blocks arrive.

  The arrays are made once at their full length: joined from blocks at the end,
  a run would need twice the memory, and as long as some of its steps.

  Args:
    num_discarded: Rows of the steps that are discarded.
    num_results: Rows that follow them.
    checkpoint: `Checkpoint` that every block is saved to, or `None`.
  """

  def __init__(self, num_discarded, num_results, checkpoint=None):
    self._num_discarded = num_discarded
    self._num_rows = num_discarded + num_results
    self._checkpoint = checkpoint
    self._num_filled = 0
    self._arrays = None

  def load(self):
    """Returns (leaves, step, seconds) of where the run was cut off, or None."""
    loaded = self._checkpoint and self._checkpoint.load()
    if not loaded:
      return None
    leaves, step, blocks, seconds = loaded
    for block in blocks:
      self.append(block)
    return leaves, step, seconds

  def append(self, block):
    """Copies a block of rows; returns it where it lies now."""
    if self._arrays is None:
      self._arrays = [
        np.empty([self._num_rows, *rows.shape[1:]], rows.dtype)
        for rows in block
      ]
    end = self._num_filled + len(block[0])
    placed = [array[self._num_filled : end] for array in self._arrays]
    for place, rows in zip(placed, block, strict=True):
      place[...] = rows
    self._num_filled = end
    return placed

  def save(self, leaves, step, block, seconds):
    """Writes where the run is after a block; see `Checkpoint.save`."""
    if self._checkpoint:
      self._checkpoint.save(leaves, step, block, seconds)

  def summary(self, make):
    """Returns (worst coordinates, of every which draw) as `make` finds them."""
    return make()

  def columns(self):
    """Returns what was recorded, flat: of discarded steps, and of results."""
    discarded = self._num_discarded
    return (
      [array[:discarded] for array in self._arrays],
      [array[discarded:] for array in self._arrays],
    )
