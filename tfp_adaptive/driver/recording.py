"""Keeps the records of a run in memory, with or without a checkpoint.

`draws_on_disk.DrawsOnDisk` has the same methods, except `rows_so_far`.
"""

import numpy as np


class InMemory:
  """The records of a run, one array per leaf, filled block by block.

  The arrays have their full length from the start, because joining blocks at
  the end would need twice the memory and more time.

  The first `num_discarded` rows have a trace, but no state; `num_results` rows
  follow. The first `num_parts` leaves of a block are the state. If there is a
  `checkpoint`, every block is saved to it.
  """

  def __init__(self, num_discarded, num_results, num_parts, checkpoint=None):
    self._num_discarded = num_discarded
    self._num_results = num_results
    self._num_parts = num_parts
    self._checkpoint = checkpoint
    self._arrays, self._num_filled = None, None

  def load(self):
    """Returns (leaves, step, seconds) at which a run was cut off, or None."""
    loaded = self._checkpoint and self._checkpoint.load()
    if not loaded:
      return None
    leaves, step, blocks, seconds = loaded
    for block in blocks:
      self.append(block)
    return leaves, step, seconds

  def append(self, block):
    """Copies a block of rows; returns views of the copy."""
    if self._arrays is None:
      self._arrays = [
        np.empty([self._length(i), *rows.shape[1:]], rows.dtype)
        for i, rows in enumerate(block)
      ]
      self._num_filled = [0] * len(block)
    starts, placed = self._num_filled, []
    for array, rows, start in zip(self._arrays, block, starts, strict=True):
      placed.append(array[start : start + len(rows)])
      placed[-1][...] = rows
    # One statement changes all counts, so that an interrupt leaves no block
    # that is counted in part.
    self._num_filled = [s + len(rows) for s, rows in zip(starts, block)]
    return placed

  def _length(self, leaf):
    is_state = leaf < self._num_parts
    return self._num_results + (0 if is_state else self._num_discarded)

  def save(self, leaves, step, block, seconds):
    """Writes the position of the run after a block; see `Checkpoint.save`."""
    if self._checkpoint:
      self._checkpoint.save(leaves, step, block, seconds)

  def summary(self, make):
    """Returns (worst coordinates, thinning of their draws) from `make()`."""
    return make()

  def rows_so_far(self, num_results):
    """Returns the first results as a flat list."""
    return [
      array[self._length(i) - self._num_results :][:num_results]
      for i, array in enumerate(self._arrays)
    ]

  def columns(self):
    """Returns (records of discarded steps, records of results), flat lists."""
    num_results, num_parts = self._num_results, self._num_parts
    return (
      [None] * num_parts
      + [array[:-num_results] for array in self._arrays[num_parts:]],
      [array[-num_results:] for array in self._arrays],
    )
