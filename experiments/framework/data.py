"""Data sets of the papers by name: a local copy first, else the source.

A local copy is `<name>.npz` with arrays `X` [rows, columns] and `y` [rows], or
`<name>.csv` with a header line and the label in the last column, in the data
folder: the one that is given, else that of TFP_ADAPTIVE_DATA_DIR, else ./data.
`python -m experiments data NAME` writes it there. Without one, scikit-learn's
bundled files and OpenML are asked, for the data set that is named alone.
"""

import csv
import os
import pathlib
import re
import shlex

import numpy as np

from experiments.framework import array_files
from experiments.framework import data_readers
from experiments.framework.data_sources import checksum
from experiments.framework.data_sources import COUNTS
from experiments.framework.data_sources import selected
from experiments.framework.data_sources import SOURCES
from experiments.run.errors import DataError
from experiments.run.errors import did_you_mean
from experiments.run.errors import listed
from experiments.run.errors import shortened
from experiments.run.errors import shown

__all__ = [
  'DATA_DIR_VARIABLE',
  'SOURCES',
  'advice',
  'cache_folder',
  'check_recorded',
  'counts_path',
  'folder',
  'load',
  'local_path',
  'looked',
  'read_local',
  'recorded_path',
]

DATA_DIR_VARIABLE = 'TFP_ADAPTIVE_DATA_DIR'
_DEFAULT_DIR = 'data'
_MAX_BYTES_PER_NUMBER = 40


def folder(data_dir=None):
  """Returns the path of the data folder, whether or not it is there.

  Args:
    data_dir: the folder; None takes the environment variable
      TFP_ADAPTIVE_DATA_DIR, and without it ./data.
  """
  chosen = data_dir or os.environ.get(DATA_DIR_VARIABLE) or _DEFAULT_DIR
  return pathlib.Path(os.path.expanduser(chosen))


def cache_folder(cache_dir=None):
  """Returns where OpenML's downloads are kept: ~/.cache/tfp_adaptive.

  Args:
    cache_dir: another folder, or None.
  """
  return cache_dir or pathlib.Path('~/.cache/tfp_adaptive').expanduser()


def advice(name, data_dir=None):
  """Returns what to do for a data set that is not here, as a message ends.

  Args:
    name: of the data set.
    data_dir: as in `load`.
  """
  given = f' --data-dir {shlex.quote(str(data_dir))}' if data_dir else ''
  return f'run `python -m experiments data {name}{given}`'


def load(name, data_dir=None, cache_dir=None):
  """Returns inputs [rows, columns] float64 and labels [rows] in {0, 1}.

  Args:
    name: a key of `SOURCES`.
    data_dir: folder with local copies; None takes the environment variable
      TFP_ADAPTIVE_DATA_DIR, and without it ./data.
    cache_dir: where OpenML downloads are kept; None: ~/.cache/tfp_adaptive.

  Raises:
    DataError: if there is no copy to be had, or it has the wrong shape.
  """
  if name not in SOURCES:
    raise DataError(
      f'unknown data set {shown(name)}{did_you_mean(name, SOURCES)}; allowed '
      f'are {", ".join(SOURCES)}.'
    )
  local = local_path(name, data_dir)
  if local is not None:
    return read_local(name, local)
  return _checked(name, *_fetch(name, data_dir, cache_dir), 'OpenML')


def read_local(name, path):
  """Returns inputs and labels of a local copy, as `load` does.

  Args:
    name: a key of `SOURCES`.
    path: of the .npz or .csv file.

  Raises:
    DataError: if it cannot be read, has the wrong shape, or holds other numbers
      than the first download.
  """
  path = pathlib.Path(path)
  inputs, labels = _checked(name, *_read(path, *SOURCES[name].shape), path)
  check_recorded(name, path, inputs, labels)
  return inputs, labels


def recorded_path(name, path):
  """Returns the file that keeps the checksum of a set's first download.

  It exists for the sets whose checksum nobody has published.

  Args:
    name: of the data set.
    path: of its local copy, in whose folder the file is.
  """
  return pathlib.Path(path).with_name(f'{name}.checksum')


def check_recorded(name, path, inputs, labels):
  """Refuses other numbers than those of the first download.

  Args:
    name: of the data set.
    path: of its local copy.
    inputs: [rows, columns], as they were read.
    labels: [rows].

  Raises:
    DataError: if the recorded checksum is another one, or cannot be read.
  """
  recorded = recorded_path(name, path)
  if not os.path.lexists(recorded):
    return
  origin = shortened(recorded, 120)
  array_files.check_is_file(recorded, origin)
  with array_files.unreadable_as_data_error(origin, 'a checksum'):
    with open(recorded, encoding='ascii') as file:
      expected = file.read(100).strip()
    if not re.fullmatch('[0-9a-f]{64}', expected):
      raise ValueError('not 64 hexadecimal digits')
  found = checksum(inputs, labels)
  if found != expected:
    raise DataError(
      f'{shortened(path, 120)} holds other numbers than the first download of '
      f'{name}: their checksum is {found}, and {origin} has {expected}. Move '
      f'the changed file away, then {advice(name)}.'
    )


def counts_path(data_dir=None):
  """Returns the file of the Cox process's published counts, 64 x 64.

  Args:
    data_dir: as in `load`.

  Raises:
    DataError: if there is none.
  """
  path = local_path(COUNTS, data_dir, ('.npy', '.csv'))
  if path is None:
    raise DataError(
      f'{looked(COUNTS, data_dir, ".npy")}: {advice(COUNTS, data_dir)}, which '
      'takes Y of data/TestData64.mat of https://github.com/mtitsias/aGrad, or '
      f'pass the folder that has it as --data-dir or in {DATA_DIR_VARIABLE}, '
      'or write target.counts: simulated.'
    )
  return path


def local_path(name, data_dir=None, suffixes=('.npz', '.csv')):
  """Returns the path of a local copy, or None where there is none.

  Args:
    name: of the data set.
    data_dir: as in `load`.
    suffixes: of the file's name, the first found counts.

  Raises:
    DataError: if a folder was named that does not exist.
  """
  path = folder(data_dir)
  if not os.path.isdir(path):
    if data_dir or os.environ.get(DATA_DIR_VARIABLE):
      raise DataError(
        f'the data folder {shown(str(path), 120)} does not exist; write one '
        f'that holds {" or ".join(name + suffix for suffix in suffixes)}, or '
        f'{advice(name, data_dir)}, which makes it.'
      )
    return None
  found = (path / f'{name}{suffix}' for suffix in suffixes)
  return next((file for file in found if file.is_file()), None)


def looked(name, data_dir=None, suffix='.npz'):
  """Returns what was looked for where, as a message begins.

  Args:
    name: of the data set.
    data_dir: as in `load`.
    suffix: of the file's name, besides .csv.
  """
  where = shown(str(folder(data_dir)), 120)
  return f'{name}: no {name}{suffix} or {name}.csv in {where}'


def _read(path, num_rows, num_columns):
  """Returns inputs and labels of a local copy, as they are there."""
  if path.suffix == '.npz':
    shapes = {
      'X': [(num_rows, num_columns)],
      'y': [(num_rows,), (num_rows, 1)],
    }
    arrays = array_files.read_npz(path, shapes, num_rows * num_columns)
    return arrays['X'].astype(np.float64), arrays['y'].ravel()
  origin = shortened(path, 120)
  array_files.check_is_file(path, origin)
  with array_files.unreadable_as_data_error(origin, _CSV_FORM):
    table = np.asarray(list(_csv_rows(path, num_rows, num_columns + 1)))
  return table[:, :-1], table[:, -1]


_CSV_FORM = 'a .csv with one header line and the label in the last column'


def _csv_rows(path, num_rows, num_columns):
  """Yields lists of numbers; no more than there should be."""
  # Beyond this many bytes a row no text of its numbers is.
  if path.stat().st_size > _MAX_BYTES_PER_NUMBER * (num_rows + 1) * num_columns:
    raise ValueError(f'it is too long for {num_rows} rows of {num_columns}')
  with open(path, newline='', encoding='utf-8-sig') as file:
    lines = ((k, row) for k, row in enumerate(csv.reader(file)) if row)
    next(lines, None)
    count = 0
    for number, row in lines:
      count += 1
      if len(row) != num_columns or count > num_rows:
        raise ValueError(
          f'row {number} has {len(row)} columns, and {num_rows} rows of '
          f'{num_columns} are needed'
        )
      yield [_number(entry) for entry in row]
    if count < num_rows:
      raise ValueError(f'{count} rows of numbers, and {num_rows} are needed')


def _number(text):
  # Python also takes 1_000 and the digits of other scripts.
  if not text.isascii() or '_' in text:
    raise ValueError(f'{shown(text)} is not a number')
  return float(text)


def _fetch(name, data_dir, cache_dir):
  source = SOURCES[name]
  if source.bundled is not None:
    return selected(source, *_bundled(source.bundled))
  what_to_do = (
    f'{advice(name, data_dir)}, or put {name}.npz (arrays X '
    f'{list(source.shape)} and y) or {name}.csv in a folder and pass it as '
    f'--data-dir or in {DATA_DIR_VARIABLE}.'
  )
  if source.openml_id is None:
    raise DataError(f'{looked(name, data_dir)}: {what_to_do}')
  try:
    found = data_readers.openml(source.openml_id, cache_folder(cache_dir))
  except Exception as error:  # Network, server and format errors alike.
    raise DataError(
      f'{looked(name, data_dir)}, and OpenML data set {source.openml_id} '
      f'could not be fetched ({type(error).__name__}: {shortened(error)}): '
      f'{what_to_do}'
    ) from error
  return selected(source, *found)


def _bundled(loader):
  from sklearn import datasets

  inputs, labels = getattr(datasets, loader)(return_X_y=True)
  return inputs, labels.astype(str)


def _checked(name, inputs, labels, origin):
  expected = SOURCES[name].shape
  labels = np.ravel(labels)
  origin = shortened(origin, 120)
  if inputs.shape != expected or len(labels) != expected[0]:
    raise DataError(
      f'{name} from {origin}: X has shape {inputs.shape} and y {labels.shape}; '
      f'expected are {expected} and {expected[:1]}.'
    )
  found = np.unique(labels)
  if not np.array_equal(found, [0, 1]) or not np.all(np.isfinite(inputs)):
    raise DataError(
      f'{name} from {origin}: labels must be 0 and 1, both of them, and inputs '
      f'finite; found labels {listed(found[:5])}.'
    )
  return inputs, labels.astype(np.int64)
