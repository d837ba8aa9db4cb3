"""The folder of a run: what is written, when, and how it is found again.

  <folder>/config.yaml            the resolved config
           run.json               versions, device and command of each session
           cells/<nn_label>/repeat_<nn>/   cell.json, arrays.npz, draws.zarr
           checkpoints/           of the cell in progress
           results.json, report.md, figures/
           shards/                what processes that share the run agree on

A cell appears whole or not at all: it is written aside, then renamed. Its
cell.json says which cell of which config it is, and a digest of its arrays:
what was edited, swapped or copied is refused. One process at a time writes to a
run, or several that share it, each its own cells (`shards`); the checkpoints of
a cell go when it has finished and is written.
"""

import contextlib
import functools
import os
import pathlib
import re
import shutil
import warnings

import arviz_base
import numpy as np

from experiments.framework import outputs
from experiments.framework import seals
from experiments.framework import shards
from experiments.framework import yaml_files
from experiments.framework.config import parse_config
from experiments.framework.errors import ConfigError
from experiments.framework.errors import listed
from experiments.framework.errors import shortened
from experiments.framework.errors import shown
from experiments.framework.json_files import read_json
from experiments.framework.outputs import storing
from experiments.framework.outputs import write_json
from experiments.framework.outputs import write_text
from experiments.framework.outputs import writing
from tfp_adaptive.driver import folder_lock

__all__ = [
  'RunFolder',
  'cell_names',
  'join_runs',
  'run_folder',
  'shared_folder',
  'told_missing',
]

# Cells that are named where many are missing.
_MOST_TOLD = 10


@contextlib.contextmanager
def run_folder(path, config, resume):
  """Creates or opens the `RunFolder` at `path` and keeps others out of it."""
  if resume:
    RunFolder.open(path, config)
  else:
    outputs.check_folder(path)
    if not (pathlib.Path(path) / folder_lock.NAME).exists():
      RunFolder(path).refuse_used()
  with writing(path):
    open_folder = RunFolder.open if resume else RunFolder.create
    yield open_folder(path, config)


@contextlib.contextmanager
def shared_folder(path, config, shard):
  """Yields the `RunFolder` at `path` and the `Division`, to one shard.

  Args:
    path: of the folder that all shards write to.
    config: the `Config`.
    shard: the `Shard`.
  """
  outputs.check_folder(path)
  folder = RunFolder(path)
  if (folder.path / 'config.yaml').exists():
    RunFolder.open(path, config)
  else:
    folder.refuse_used(shards.NAME, 'config.yaml')
  with shards.joined(path, shard, cell_names(config)) as division:
    if not (folder.path / 'config.yaml').exists():
      folder.write_config(config)
    yield RunFolder.open(path, config), division


def cell_names(config):
  """Returns the names of a config's cells for people, in their order."""
  return [
    f'{label}, repeat {repeat + 1} of {config.num_repeats}'
    for _, label, repeat in config.cells()
  ]


def told_missing(folder):
  """Returns a sentence with the cells that a run lacks; '' if it lacks none."""
  config = folder.config()
  missing = folder.missing(config)
  if not missing:
    return ''
  shown = '; '.join(map(shortened, missing[:_MOST_TOLD]))
  more = len(missing) - _MOST_TOLD
  return (
    f'{shortened(folder.path, 160)} lacks {len(missing)} of '
    f'{len(config.cells())} cells: {shown}'
    f'{f"; and {more} more" if more > 0 else ""}.'
  )


class RunFolder:
  """Paths of one run; holds no state but its path."""

  def __init__(self, path):
    self.path = pathlib.Path(path)

  @classmethod
  def create(cls, path, config):
    """Makes the folder and writes the resolved config into it."""
    folder = cls(path)
    outputs.check_folder(path)
    folder.refuse_used()
    folder.write_config(config)
    return folder

  def write_config(self, config):
    """Writes the resolved config."""
    text = yaml_files.dump(config.model_dump(mode='json'))
    write_text(self.path / 'config.yaml', text)

  @classmethod
  def open(cls, path, config=None):
    """Opens a run; refuses one that was made by another config."""
    folder = cls(path)
    file = folder.path / 'config.yaml'
    if not os.path.isfile(file):
      raise ConfigError(
        f'{shown(str(path), 120)} is not the folder of a run: it has no '
        'config.yaml; name one that `run` made.'
      )
    if config is None:
      return folder
    stored = yaml_files.load(file)
    given = config.model_dump(mode='json')
    changed = [k for k in given if stored.get(k) != given[k]]
    if changed or set(stored) - set(given):
      raise ConfigError(
        f'{shown(str(path), 120)} was made by another config: '
        f'{listed(changed) or "unknown keys"} differ; start a new run.'
      )
    return folder

  def refuse_used(self, *allowed):
    """Refuses a folder that has files in it, but for some names."""
    names = {file.name for file in self.path.iterdir()}
    names -= {folder_lock.NAME, *allowed}
    if allowed:  # Others begin, too: what they write aside just now.
      names = {name for name in names if not name.startswith('.')}
    if names:
      raise ConfigError(
        f'the output folder {shown(str(self.path), 120)} is not empty; name '
        'another, or continue its run with --resume.'
      )

  def config(self):
    return parse_config(yaml_files.load(self.path / 'config.yaml'))

  def cell_path(self, index, label, repeat):
    slug = re.sub(r'[^A-Za-z0-9.-]+', '_', label).strip('_')
    return self.path / 'cells' / f'{index:02d}_{slug}' / f'repeat_{repeat:02d}'

  def checkpoint_path(self, index, repeat):
    return self.path / 'checkpoints' / f'{index:02d}_{repeat:02d}'

  def read_cell(self, index, label, repeat):
    """Returns the record of a cell, or None if it was not reached."""
    cell = self._open_cell(index, label, repeat)
    return None if cell is None else cell[0]

  def _open_cell(self, index, label, repeat):
    """Returns (record, digest) of a cell that is what it says; or None."""
    path = self.cell_path(index, label, repeat)
    if not path.exists():
      return None
    values = read_json(path / 'cell.json')
    place = self._place(index, label, repeat, path / 'arrays.npz')
    return seals.opened(values, path / 'cell.json', **place)

  def _place(self, index, label, repeat, arrays):
    """Returns what the seal of a cell holds."""
    config = self.path / 'config.yaml'
    return {
      'index': index,
      'label': label,
      'repeat': repeat,
      'config': _config_digest(config, config.read_bytes()),
      'arrays': seals.file_digest(arrays),
    }

  def read_arrays(self, index, label, repeat):
    """Returns the small arrays of a cell, {} if there are none."""
    file = self.cell_path(index, label, repeat) / 'arrays.npz'
    if self._open_cell(index, label, repeat) is None or not file.exists():
      return {}
    with np.load(file) as arrays:
      return dict(arrays)

  def records(self, config=None):
    """Returns the records of all cells reached, in the config's order."""
    return [record for record, _ in self.cells(config)]

  def missing(self, config=None):
    """Returns the names of the cells that were not reached yet."""
    config = config or self.config()
    # Listed, not asked for one by one: of a folder that another machine writes
    # to, a client of NFS may remember for a while what was not there.
    found = set(self.path.glob('cells/[!.]*/[!.]*'))
    return [
      name
      for cell, name in zip(config.cells(), cell_names(config))
      if self.cell_path(*cell) not in found
    ]

  def cells(self, config=None, names=None):
    """Returns (record, digest) of cells reached, in the config's order.

    Args:
      config: the `Config`; None: that of the folder.
      names: (index, label, repeat) of those to read; None: all.
    """
    config = config or self.config()
    names = config.cells() if names is None else names
    known = {self.cell_path(*name) for name in config.cells()}
    strays = [
      path
      for path in sorted(self.path.glob('cells/[!.]*/[!.]*'))
      if path not in known
    ]
    if strays:
      raise ConfigError(
        f'{shortened(strays[0], 160)} is no cell of the config of that run; '
        'restore the names of its folders, or delete that one.'
      )
    cells = [self._open_cell(*name) for name in names]
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
        if arrays:
          np.savez_compressed(aside / 'arrays.npz', **arrays)
        place = self._place(index, label, repeat, aside / 'arrays.npz')
        write_json(aside / 'cell.json', seals.sealed(record, **place))
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

  Raises:
    ConfigError: if a cell is damaged, or there twice, or runs of one name are
      of different experiments.
  """
  joined, configs, seen = {}, {}, {}
  for path in paths:
    folder = RunFolder.open(path)
    shards.check(path)
    config = folder.config()
    _check_joinable(configs.setdefault(config.name, config), config, path)
    records = joined.setdefault(config.name, [])
    for record, digest in folder.cells(config):
      if record['status'] == 'finished':
        # Of one seed the draws are the same ones, whatever the times.
        cell = config.name, record['label'], str(record.get('seed', digest))
        if cell in seen:
          raise ConfigError(
            f'{shortened(path, 160)} holds the same cells as '
            f'{shortened(seen[cell], 160)}, draws of the same seeds; give each '
            'once, and run others with --set seed=...'
          )
        seen[cell] = path
      records.append(record)
  return joined


# In these the runs of one name may differ, and their methods.
_OWN_KEYS = (
  'block_size',
  'description',
  'diagonal_image_shape',
  'keep_states',
  'methods',
  'num_repeats',
  'save_draws',
  'seed',
  'trace_diagonal',
)


def _check_joinable(first, config, path):
  """Refuses runs of one name whose rows are not of one experiment."""
  one, other = (c.model_dump(mode='json') for c in (first, config))
  differ = [k for k in one if k not in _OWN_KEYS and one[k] != other[k]]
  methods = dict(zip(first.labels(), one['methods']))
  for label, method in zip(config.labels(), other['methods']):
    if methods.get(label, method) != method:
      differ.append(f'the method {shortened(label)}')
  if differ:
    raise ConfigError(
      f'{shortened(path, 160)} is a run of the name {first.name}, as the one '
      f'before, but differs in {listed(differ)}; report it apart.'
    )


@functools.lru_cache(maxsize=16)
def _config_digest(path, content):
  """Returns the digest of a config, whatever its form; kept by its bytes."""
  del content
  return seals.digest(yaml_files.load(path))


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
