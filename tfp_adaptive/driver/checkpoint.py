"""Checkpoints of a run: one file per block, one for the state, all atomic.

  block_000000.npz ...   draws and traces of finished blocks
  state.npz              state, kernel results, position, checksum of each block

Files are written beside their place and renamed into it, blocks before the
state that names them: a run killed at any moment, or a full disk, loses the
block it was in.
"""

import contextlib
import hashlib
import json
import pathlib

import numpy as np

from tfp_adaptive.driver import archive
from tfp_adaptive.driver import run_identity

__all__ = ['Checkpoint', 'CheckpointError', 'State', 'writing']

_STATE = 'state.npz'
_LAYOUT = 2  # Blocks of discarded steps have no states.


class CheckpointError(ValueError):
  """A checkpoint that cannot be continued from, and why."""


class Checkpoint:
  """Reads and writes one checkpoint folder.

  Args:
    folder: Where the files live.
    run: dict of `run_identity.describe`.
  """

  def __init__(self, folder, run):
    self._folder = pathlib.Path(folder)
    self._state = State(folder, dict(run, layout=_LAYOUT), 'checkpoint_dir')
    self._checksums = []

  def save(self, leaves, step, block, seconds):
    """Writes a finished block, then the state after it.

    Args:
      leaves: State and kernel results, flat.
      step: Steps taken.
      block: What the block recorded, flat.
      seconds: dict of the wall times so far.

    Raises:
      CheckpointError: If the files cannot be written; those of before stay.
    """
    content = archive.pack({str(i): a for i, a in enumerate(block)})
    _write(self._block_path(len(self._checksums)), content)
    self._checksums.append(hashlib.sha256(content).hexdigest())
    self._state.save(
      leaves, step=int(step), checksums=self._checksums, seconds=seconds
    )

  def load(self):
    """Returns (leaves, step, blocks, seconds), or None before the first save.

    Blocks are an iterator: all of them are checked, and read one by one.

    Raises:
      CheckpointError: If a file is damaged or of another run.
    """
    found = self._state.load()
    if found is None:
      return None
    leaves, header = found
    for index, checksum in enumerate(header['checksums']):
      path = self._block_path(index)
      if not path.exists():
        raise damaged(path, 'it is missing')
      if hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
        raise damaged(path, 'its checksum does not match')
    self._checksums = header['checksums']
    blocks = map(self._read_block, range(len(self._checksums)))
    return leaves, header['step'], blocks, header['seconds']

  def _block_path(self, index):
    return self._folder / f'block_{index:06d}.npz'

  def _read_block(self, index):
    path = self._block_path(index)
    with _reading(path):
      block = archive.unpack(path)
    return [block[str(i)] for i in range(len(block))]


class State:
  """Where a run is, in one sealed file, `state.npz`.

  Args:
    folder: Where it lives.
    run: dict of `run_identity.describe`.
    argument: Of `tfpa.sample`, that named the folder.
  """

  def __init__(self, folder, run, argument):
    self._path = pathlib.Path(folder) / _STATE
    self._run = json.loads(json.dumps(run))
    self._argument = argument

  def save(self, leaves, **header):
    """Writes state and kernel results, flat, and JSON values beside them."""
    header.update(run=self._run, argument=self._argument)
    arrays = {str(i): np.asarray(leaf) for i, leaf in enumerate(leaves)}
    _write(self._path, archive.seal(header, arrays))

  def load(self):
    """Returns (leaves, header), or None before the first save.

    Raises:
      CheckpointError: If the file is damaged or of another run.
    """
    if not self._path.exists():
      return None
    with _reading(self._path, self._argument):
      header, stored = archive.unseal(self._path)
    self._refuse_other_run(header)
    return [stored[str(i)] for i in range(len(stored))], header

  def _refuse_other_run(self, header):
    different = run_identity.differences(header['run'], self._run)
    argument = header.get('argument', 'checkpoint_dir')
    if argument != self._argument:
      different = [f'its folder, which was given as `{argument}`']
    if different:
      raise CheckpointError(
        f'{self._path} belongs to another run: it differs in '
        f'{"; ".join(different)}. Pass the arguments of that run to continue '
        f'it; remove its folder, or pass another `{self._argument}`, to start '
        'a new one.'
      )


@contextlib.contextmanager
def writing(path):
  """Says what a disk that is full or gone means for a run."""
  try:
    yield
  except OSError as error:
    raise CheckpointError(
      f'{path} cannot be written ({error.strerror or error}). The blocks '
      'before it are kept: make room for the next ones, and call again with '
      'the same arguments to continue.'
    ) from error


def _write(path, content):
  with writing(path):
    archive.write(path, content)


@contextlib.contextmanager
def _reading(path, argument='checkpoint_dir'):
  try:
    yield
  except archive.Damaged as error:
    raise damaged(path, error, argument) from error


def damaged(path, reason, argument='checkpoint_dir'):
  """Returns the error of a file that is not what was written."""
  return CheckpointError(
    f'{path} is damaged: {reason}. Nothing was loaded; remove its folder or '
    f'pass another `{argument}` to start again.'
  )
