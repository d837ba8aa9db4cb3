"""The folder of a run: what is written, when, and how it is found again.

  <folder>/config.yaml            the resolved config
           run.json               versions, device and command of each session
           cells/<nn_label>/repeat_<nn>/   cell.json, arrays.npz, draws.zarr
           checkpoints/           of the cell in progress
           results.json, report.md, figures/

A cell appears whole or not at all: it is written aside, then renamed. One
process at a time writes to a run; the checkpoints of a cell go when it has
finished and is written, not before.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import warnings

import arviz_base
import numpy as np
import yaml

from experiments.config import parse_config
from experiments.errors import ConfigError
from experiments.errors import StorageError
from tfp_adaptive.internal import folder_lock

__all__ = [
  'RunFolder',
  'join_runs',
  'run_folder',
  'storing',
  'write_json',
  'write_text',
  'writing',
]


@contextlib.contextmanager
def storing(path):
  """Says in one sentence that `path` cannot be written, and what to do."""
  try:
    yield
  except OSError as error:
    raise StorageError(
      f'{str(path)!r} cannot be written ({error.strerror or error}). What was '
      'finished before is kept: make room, then continue with --resume '
      '--output FOLDER.'
    ) from error


@contextlib.contextmanager
def writing(path):
  """Keeps other processes from writing to a folder meanwhile."""
  with contextlib.ExitStack() as held:
    try:
      held.enter_context(folder_lock.held(path))
    except folder_lock.FolderError as error:
      raise StorageError(str(error)) from error
    yield


@contextlib.contextmanager
def run_folder(path, config, resume):
  """Creates or opens the `RunFolder` at `path` and keeps others out of it."""
  if resume:
    RunFolder.open(path, config)
  elif not (pathlib.Path(path) / folder_lock.NAME).exists():
    RunFolder(path).refuse_used()
  with writing(path):
    open_folder = RunFolder.open if resume else RunFolder.create
    yield open_folder(path, config)


def write_text(path, text):
  """Writes a file, whole or not at all."""
  path = pathlib.Path(path)
  aside = path.with_name(f'.{path.name}.{os.getpid()}')
  with storing(path):
    try:
      aside.write_text(text, encoding='utf-8')
      os.replace(aside, path)
    finally:
      aside.unlink(missing_ok=True)


def write_json(path, value):
  """Writes JSON, whole or not at all."""
  write_text(path, json.dumps(value, indent=2) + '\n')


class RunFolder:
  """Paths of one run; holds no state but its path."""

  def __init__(self, path):
    self.path = pathlib.Path(path)

  @classmethod
  def create(cls, path, config):
    """Makes the folder and writes the resolved config into it."""
    folder = cls(path)
    folder.refuse_used()
    with storing(folder.path):
      folder.path.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(config.model_dump(mode='json'), sort_keys=False)
    write_text(folder.path / 'config.yaml', text)
    return folder

  @classmethod
  def open(cls, path, config=None):
    """Opens a run; refuses one that was made by another config."""
    folder = cls(path)
    file = folder.path / 'config.yaml'
    if not file.is_file():
      raise ConfigError(f'{str(path)!r} is not the folder of a run.')
    if config is None:
      return folder
    stored = yaml.safe_load(file.read_text(encoding='utf-8'))
    given = config.model_dump(mode='json')
    changed = [k for k in given if stored.get(k) != given[k]]
    if changed or set(stored) - set(given):
      raise ConfigError(
        f'--resume: {str(path)!r} was made by another config: '
        f'{", ".join(changed) or "unknown keys"} differ; start a new run.'
      )
    return folder

  def refuse_used(self):
    """Refuses a folder that has files in it."""
    if not self.path.exists():
      return
    if any(file.name != folder_lock.NAME for file in self.path.iterdir()):
      raise ConfigError(
        f'the output folder {str(self.path)!r} is not empty; name another, or '
        'continue its run with --resume.'
      )

  def config(self):
    text = (self.path / 'config.yaml').read_text(encoding='utf-8')
    return parse_config(yaml.safe_load(text))

  def sessions(self):
    """Returns versions, device and command of each session so far."""
    file = self.path / 'run.json'
    if not file.is_file():
      return []
    return json.loads(file.read_text(encoding='utf-8'))

  def cell_path(self, index, label, repeat):
    slug = re.sub(r'[^A-Za-z0-9.-]+', '_', label).strip('_')
    return self.path / 'cells' / f'{index:02d}_{slug}' / f'repeat_{repeat:02d}'

  def checkpoint_path(self, index, repeat):
    return self.path / 'checkpoints' / f'{index:02d}_{repeat:02d}'

  def read_cell(self, index, label, repeat):
    """Returns the record of a cell, or None if it was not reached."""
    file = self.cell_path(index, label, repeat) / 'cell.json'
    if not file.is_file():
      return None
    return json.loads(file.read_text(encoding='utf-8'))

  def read_arrays(self, index, label, repeat):
    """Returns the small arrays of a cell, {} if there are none."""
    file = self.cell_path(index, label, repeat) / 'arrays.npz'
    if not file.is_file():
      return {}
    with np.load(file) as arrays:
      return dict(arrays)

  def records(self, config=None):
    """Returns the records of all cells reached, in the config's order."""
    config = config or self.config()
    cells = [
      self.read_cell(index, label, repeat)
      for index, label in enumerate(config.labels())
      for repeat in range(config.num_repeats)
    ]
    return [cell for cell in cells if cell is not None]

  def write_cell(self, index, label, repeat, record, arrays, draws=None):
    """Writes a cell aside and renames it into place.

    Its checkpoints go with that if it has finished: a failed one goes on from
    them when the run is resumed.
    """
    path = self.cell_path(index, label, repeat)
    aside = path.with_name(f'.{path.name}.{os.getpid()}')
    with storing(path):
      try:
        for stale in path.parent.glob(f'.{path.name}.*'):  # Of a killed run.
          shutil.rmtree(stale, ignore_errors=True)
        aside.mkdir(parents=True)
        write_json(aside / 'cell.json', record)
        if arrays:
          np.savez_compressed(aside / 'arrays.npz', **arrays)
        if draws is not None:
          _write_draws(aside / 'draws.zarr', *draws)
        shutil.rmtree(path, ignore_errors=True)
        os.rename(aside, path)
      finally:
        shutil.rmtree(aside, ignore_errors=True)
    if record['status'] == 'finished':
      shutil.rmtree(self.checkpoint_path(index, repeat), ignore_errors=True)


def join_runs(paths):
  """Returns {config name: records} of several runs, repeats joined.

  Args:
    paths: of run folders. Runs of one name count as further repeats; rows of
      the same label are averaged.
  """
  joined = {}
  for path in paths:
    folder = RunFolder.open(path)
    config = folder.config()
    joined.setdefault(config.name, []).extend(folder.records(config))
  return joined


def _write_draws(path, posterior, sample_stats):
  """Writes an ArviZ DataTree; arrays come as [num_draws, num_chains, ...]."""
  groups = {
    name: {key: np.swapaxes(value, 0, 1) for key, value in group.items()}
    for name, group in (
      ('posterior', posterior),
      ('sample_stats', sample_stats),
    )
    if group
  }
  tree = arviz_base.from_dict(groups)
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    tree.to_zarr(str(path))
