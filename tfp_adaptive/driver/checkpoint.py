"""Checkpoints of a run: one file per block, one for the state, all atomic.

  block_000000.npz ...   draws and traces of finished blocks
  state.npz              state, kernel results, position, checksum of each block

A file is written under a temporary name and then renamed. Blocks are written
before the state that names them. If a run is killed, or fills the disk, only
the block that it was writing is lost.
"""

import contextlib
import hashlib
import json
import pathlib

import numpy as np

from tfp_adaptive.driver import archive
from tfp_adaptive.driver import run_identity

_STATE = 'state.npz'
_LAYOUT = 3  # Version of the files, part of the identity of a run.


class CheckpointError(ValueError):
  """The message says why a checkpoint cannot be resumed or written."""


class NotWritten(CheckpointError):
  """A file cannot be written, for example because the disk is full."""


class Checkpoint:
  """Reads and writes a checkpoint folder; `run` is the identity of its run."""

  def __init__(self, folder, run):
    self._folder = pathlib.Path(folder)
    self._state = State(folder, dict(run, layout=_LAYOUT), 'checkpoint_dir')
    self._checksums = []

  def save(self, leaves, step, block, seconds):
    """Writes a finished block, then the state after it.

    `leaves` are the state and the kernel results, and `block` is what the block
    recorded, both as flat lists. `seconds` are the wall times so far. If the
    files cannot be written, earlier files stay.
    """
    content = archive.pack({str(i): a for i, a in enumerate(block)})
    _write(self._block_path(len(self._checksums)), content)
    self._checksums.append(hashlib.sha256(content).hexdigest())
    self._state.save(
      leaves, step=int(step), checksums=self._checksums, seconds=seconds
    )

  def load(self):
    """Returns (leaves, step, blocks, seconds), or None before the first save.

    First it checks that all blocks exist and have the right checksums. `blocks`
    is an iterator that reads one block at a time.
    """
    found = self._state.load()
    if found is None:
      return None
    leaves, header = found
    for index, checksum in enumerate(header['checksums']):
      path = self._block_path(index)
      if not path.exists():
        raise damaged(path, 'it is missing')
      with _reading(path):
        content = archive.read_bytes(path)
      if hashlib.sha256(content).hexdigest() != checksum:
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
  """The position of a run, in the file `state.npz` with a checksum.

  `argument` is the argument of `tfpa.sample` that named the folder.
  """

  def __init__(self, folder, run, argument):
    self._path = pathlib.Path(folder) / _STATE
    self._run = json.loads(json.dumps(run))
    self._argument = argument

  def save(self, leaves, **header):
    """Writes `leaves`, the flat state and kernel results, and JSON values."""
    header.update(run=self._run, argument=self._argument)
    arrays = {str(i): np.asarray(leaf) for i, leaf in enumerate(leaves)}
    _write(self._path, archive.seal(header, arrays))

  def load(self):
    """Returns (leaves, header), or None before the first save."""
    if not self._path.exists():
      return None
    with _reading(self._path, self._argument):
      header, stored = archive.unseal(self._path)
    self._refuse_other_run(header)
    return [stored[str(i)] for i in range(len(stored))], header

  def _refuse_other_run(self, header):
    different = run_identity.differences(header['run'], self._run)
    argument = header['argument']
    if argument != self._argument:
      different = [f'its folder, which was given as `{argument}`']
    if different:
      raise CheckpointError(
        f'{self._path} belongs to another run: it differs in '
        f'{"; ".join(different)}. Pass the arguments of that run to resume it, '
        f'or another `{self._argument}` to start a new run.'
      )


@contextlib.contextmanager
def writing(path):
  """Turns an error of the disk into `NotWritten`."""
  try:
    yield
  except OSError as error:
    raise NotWritten(
      f'{path} cannot be written ({error.strerror or error}). Earlier blocks '
      'are kept. Make room for this one, and call again with the same '
      'arguments to continue.'
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
  """Returns the error for a file that is not what was written."""
  return CheckpointError(
    f'{path} is damaged: {reason}. Nothing was loaded. Pass another '
    f'`{argument}`, or remove this folder, to start again.'
  )
