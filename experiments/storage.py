"""The folder of a run: what is written, when, and how it is found again.

  <folder>/config.yaml            the resolved config
           run.json               versions, device and command of each session
           cells/<nn_label>/repeat_<nn>/   cell.json, arrays.npz, draws.zarr
           checkpoints/           of the cell in progress
           results.json, report.md, figures/

A cell appears whole or not at all: it is written aside, then renamed.
"""

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

__all__ = ['RunFolder', 'join_runs', 'write_json']


def write_json(path, value):
  """Writes JSON atomically."""
  path = pathlib.Path(path)
  aside = path.with_name(f'.{path.name}.{os.getpid()}')
  aside.write_text(json.dumps(value, indent=2) + '\n', encoding='utf-8')
  os.replace(aside, path)


class RunFolder:
  """Paths of one run; holds no state but its path."""

  def __init__(self, path):
    self.path = pathlib.Path(path)

  @classmethod
  def create(cls, path, config):
    """Makes the folder and writes the resolved config into it."""
    folder = cls(path)
    if folder.path.exists() and any(folder.path.iterdir()):
      raise ConfigError(
        f'the output folder {str(path)!r} is not empty; name another, or '
        'continue its run with --resume.'
      )
    folder.path.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(config.model_dump(mode='json'), sort_keys=False)
    aside = folder.path / '.config.yaml'
    aside.write_text(text, encoding='utf-8')
    os.replace(aside, folder.path / 'config.yaml')
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
    """Writes a cell aside and renames it into place."""
    path = self.cell_path(index, label, repeat)
    aside = path.with_name(f'.{path.name}.{os.getpid()}')
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    write_json(aside / 'cell.json', record)
    if arrays:
      np.savez_compressed(aside / 'arrays.npz', **arrays)
    if draws is not None:
      _write_draws(aside / 'draws.zarr', *draws)
    shutil.rmtree(path, ignore_errors=True)
    os.rename(aside, path)
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
