"""Checkpoints of a run: one file per block, one for the state, all atomic.

  block_000000.npz ...   draws and traces of finished blocks
  state.npz              state, kernel results, position, checksum of each block

Files are written beside their place and renamed into it, blocks before the
state that names them: a run killed at any moment, or a full disk, loses the
block it was in.
"""

import contextlib
import hashlib
import io
import json
import os
import pathlib

import numpy as np

from tfp_adaptive.driver import run_identity

__all__ = ['Checkpoint', 'CheckpointError']

_STATE = 'state.npz'


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
    self._run = json.loads(json.dumps(run))
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
    name = f'block_{len(self._checksums):06d}.npz'
    content = _pack({str(i): a for i, a in enumerate(block)})
    _write_atomically(self._folder / name, content)
    self._checksums.append(hashlib.sha256(content).hexdigest())
    header = dict(
      run=self._run,
      step=int(step),
      checksums=self._checksums,
      seconds=seconds,
    )
    arrays = {str(i): np.asarray(leaf) for i, leaf in enumerate(leaves)}
    digest = _digest(header, arrays)
    _write_atomically(
      self._folder / _STATE,
      _pack(dict(arrays, header=json.dumps(header), digest=digest)),
    )

  def load(self):
    """Returns (leaves, step, blocks, seconds), or None before the first save.

    Raises:
      CheckpointError: If a file is damaged or of another run.
    """
    path = self._folder / _STATE
    if not path.exists():
      return None
    stored = _unpack(path)
    try:
      header = json.loads(str(stored.pop('header')))
      digest = str(stored.pop('digest'))
    except (KeyError, ValueError) as error:
      raise _damaged(path, 'its header cannot be read') from error
    if digest != _digest(header, stored):
      raise _damaged(path, 'its checksum does not match')
    self._refuse_other_run(path, header['run'])
    blocks = []
    for index, checksum in enumerate(header['checksums']):
      block_path = self._folder / f'block_{index:06d}.npz'
      if not block_path.exists():
        raise _damaged(block_path, 'it is missing')
      content = block_path.read_bytes()
      if hashlib.sha256(content).hexdigest() != checksum:
        raise _damaged(block_path, 'its checksum does not match')
      block = _unpack(block_path)
      blocks.append([block[str(i)] for i in range(len(block))])
    self._checksums = header['checksums']
    leaves = [stored[str(i)] for i in range(len(stored))]
    return leaves, header['step'], blocks, header['seconds']

  def _refuse_other_run(self, path, saved):
    different = run_identity.differences(saved, self._run)
    if different:
      raise CheckpointError(
        f'{path} belongs to another run: it differs in '
        f'{"; ".join(different)}. Pass the arguments of that run to continue '
        'it; remove its folder, or pass another `checkpoint_dir`, to start a '
        'new one.'
      )


def _pack(arrays):
  buffer = io.BytesIO()
  np.savez(buffer, **arrays)
  return buffer.getvalue()


def _unpack(path):
  try:
    with np.load(path, allow_pickle=False) as stored:
      return {name: stored[name] for name in stored.files}
  except Exception as error:  # zipfile, zlib, numpy: whatever damage raises.
    raise _damaged(path, f'it cannot be read ({error})') from error


def _digest(header, arrays):
  digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
  for name in sorted(arrays):
    digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
  return digest.hexdigest()


def _write_atomically(path, content):
  temporary = path.with_suffix('.tmp')
  try:
    with open(temporary, 'wb') as file:
      file.write(content)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
    _sync_folder(path.parent)
  except OSError as error:
    with contextlib.suppress(OSError):
      temporary.unlink()
    raise CheckpointError(
      f'{path} cannot be written ({error.strerror or error}). The blocks '
      'before it are kept: make room for the next ones, and call again with '
      'the same arguments to continue.'
    ) from error


def _sync_folder(folder):
  """Makes a rename outlast a loss of power, where folders can be opened."""
  if hasattr(os, 'O_DIRECTORY'):
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
      os.fsync(descriptor)
    finally:
      os.close(descriptor)


def _damaged(path, reason):
  return CheckpointError(
    f'{path} is damaged: {reason}. Nothing was loaded; remove its folder or '
    'pass another `checkpoint_dir` to start again.'
  )
