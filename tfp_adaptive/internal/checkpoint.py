"""Checkpoints of a run: one file per block, one for the state, all atomic.

  block_000000.npz ...   draws and traces of finished blocks
  state.npz              state, kernel results, position, checksum of each block

Files are written beside their place and renamed into it, blocks before the
state that names them: a run killed at any moment loses the block it was in.
"""

import hashlib
import io
import json
import os
import pathlib

import numpy as np

__all__ = ['Checkpoint', 'CheckpointError']

_STATE = 'state.npz'


class CheckpointError(ValueError):
  """A checkpoint that cannot be continued from, and why."""


class Checkpoint:
  """Reads and writes one checkpoint folder.

  Args:
    folder: Where the files live; made if it is not there.
    run: dict of JSON values that must agree for a run to be continued.
    start_values: Numbers of the start; they tell another target apart.
  """

  def __init__(self, folder, run, start_values):
    self._folder = pathlib.Path(folder)
    self._folder.mkdir(parents=True, exist_ok=True)
    self._run = run
    self._start_values = np.asarray(start_values)
    self._checksums = []

  def save(self, leaves, step, block, seconds):
    """Writes a finished block, then the state after it.

    Args:
      leaves: State and kernel results, flat.
      step: Steps taken.
      block: What the block recorded, flat.
      seconds: dict of the wall times so far.
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
      _pack(
        dict(
          arrays,
          header=json.dumps(header),
          digest=digest,
          start_values=self._start_values,
        )
      ),
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
      start_values = stored.pop('start_values')
    except (KeyError, ValueError) as error:
      raise _damaged(path, 'its header cannot be read') from error
    if digest != _digest(header, stored):
      raise _damaged(path, 'its checksum does not match')
    self._refuse_other_run(path, header, start_values)
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

  def _refuse_other_run(self, path, header, start_values):
    saved, wanted = header['run'], json.loads(json.dumps(self._run))
    different = [
      f'{key} (saved {saved.get(key)!r}, asked for {wanted.get(key)!r})'
      for key in sorted(set(saved) | set(wanted))
      if saved.get(key) != wanted.get(key)
    ]
    if not different and not (
      start_values.shape == self._start_values.shape
      and np.allclose(start_values, self._start_values, rtol=1e-3, atol=1e-3)
    ):
      different = ['the start, or the target or its gradient there']
    if different:
      raise CheckpointError(
        f'{path} belongs to another run: it differs in '
        f'{"; ".join(different)}. Pass the arguments of that run to continue '
        'it, or another `checkpoint_dir` to start a new one.'
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
  with open(temporary, 'wb') as file:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())
  os.replace(temporary, path)


def _damaged(path, reason):
  return CheckpointError(
    f'{path} is damaged: {reason}. Nothing was loaded; remove its folder or '
    'pass another `checkpoint_dir` to start again.'
  )
