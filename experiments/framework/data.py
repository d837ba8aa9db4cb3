"""Data sets of the papers by name: a local copy first, else the source.

A local copy is `<name>.npz` with arrays `X` [rows, columns] and `y` [rows], or
`<name>.csv` with a header line and the label in the last column. Other sources
are scikit-learn's bundled files and OpenML, which is asked only for the data
set that is named.
"""

import csv
import os
import pathlib
from collections.abc import Callable
from typing import NamedTuple
from typing import Optional

import numpy as np

from experiments.framework import array_files
from experiments.framework.errors import DataError
from experiments.framework.errors import did_you_mean
from experiments.framework.errors import listed
from experiments.framework.errors import shortened
from experiments.framework.errors import shown

__all__ = ['DATA_DIR_VARIABLE', 'SOURCES', 'Source', 'counts_path', 'load']

DATA_DIR_VARIABLE = 'TFP_ADAPTIVE_DATA_DIR'
_MAX_BYTES_PER_NUMBER = 40
_COUNTS = 'cox_counts_64'


class Source(NamedTuple):
  """Where a data set comes from, and what it must look like."""

  # Rows and columns of X, without the bias: checked after every load.
  shape: tuple[int, int]
  # OpenML's number of the data set; None where it holds no copy.
  openml_id: Optional[int]
  # The label that becomes 1.
  positive: str
  # (inputs, labels) -> the papers' rows and columns.
  select: Optional[Callable] = None
  note: str = ''
  # Loader of scikit-learn for a set that it holds itself: no download.
  bundled: Optional[str] = None


def _complete_pima(inputs, labels):
  """Drops insulin, then the rows with an impossible zero (Ripley's 532)."""
  inputs = np.delete(inputs, 4, axis=1)
  is_complete = np.all(inputs[:, 1:5] > 0, axis=1)
  return inputs[is_complete], labels[is_complete]


def _caravan_training(inputs, labels):
  return inputs[:5822], labels[:5822]


def _window_glass(inputs, labels):
  """Panes of buildings and vehicles, float processed or not, become 1."""
  is_window = ['wind' in label for label in labels]
  return inputs, np.where(is_window, 'window', 'other')


def _first_nine_columns(inputs, labels):
  return inputs[:, :9], labels


def _mnist_five_six(inputs, labels):
  """Keeps the training digits 5 and 6; a 6 is labelled 0."""
  inputs, labels = inputs[:60000] / 255.0, labels[:60000]
  is_kept = np.isin(labels, ['5', '6'])
  return inputs[is_kept], labels[is_kept]


SOURCES = {
  'australian': Source((690, 14), 40981, '1'),
  'caravan': Source((5822, 85), 298, '1', _caravan_training),
  'german': Source(
    (1000, 24),
    None,
    '1',
    note='OpenML holds only the 20 categorical columns; the papers use the '
    '24 numeric ones: save german.data-numeric of the UCI repository '
    '(Statlog German credit) as german.npz or german.csv, labels 1 and 2 '
    'as 0 and 1.',
  ),
  'glass': Source((214, 9), 41, 'window', _window_glass),
  'heart': Source((270, 13), 53, 'present'),
  'mnist_5v6': Source((11339, 784), 554, '5', _mnist_five_six),
  'pima': Source((532, 7), 37, 'tested_positive', _complete_pima),
  'ripley': Source((250, 2), 464, '1'),
  # The largest class against the other two, and the first nine of thirteen
  # measurements: as many columns as glass has, to stand in for it offline.
  'wine': Source((178, 9), None, '1', _first_nine_columns, bundled='load_wine'),
}


def load(name, data_dir=None, cache_dir=None):
  """Returns inputs [rows, columns] float64 and labels [rows] in {0, 1}.

  Args:
    name: a key of `SOURCES`.
    data_dir: folder with local copies; None takes the environment variable
      TFP_ADAPTIVE_DATA_DIR, and without it no local copy is looked for.
    cache_dir: where OpenML downloads are kept; None: ~/.cache/tfp_adaptive.

  Raises:
    DataError: if there is no copy to be had, or it has the wrong shape.
  """
  if name not in SOURCES:
    raise DataError(
      f'unknown data set {shown(name)}{did_you_mean(name, SOURCES)}; allowed '
      f'are {", ".join(SOURCES)}.'
    )
  data_dir = data_dir or os.environ.get(DATA_DIR_VARIABLE)
  local = _local_path(name, data_dir)
  if local is not None:
    inputs, labels = _read(local, *SOURCES[name].shape)
  else:
    inputs, labels = _fetch(name, data_dir, cache_dir)
  return _checked(name, inputs, labels, local or 'OpenML')


def counts_path(data_dir=None):
  """Returns the file of the Cox process's published counts, 64 x 64.

  Args:
    data_dir: as in `load`.

  Raises:
    DataError: if there is none.
  """
  data_dir = data_dir or os.environ.get(DATA_DIR_VARIABLE)
  path = _local_path(_COUNTS, data_dir, ('.npy', '.csv'))
  if path is None:
    looked = f'in {shown(str(data_dir))}' if data_dir else 'for no data folder'
    raise DataError(
      f'there is no {_COUNTS}.npy or {_COUNTS}.csv {looked}: save Y of '
      'data/TestData64.mat of https://github.com/mtitsias/aGrad as 64 x 64 '
      f'counts in a folder, passed as --data-dir or in {DATA_DIR_VARIABLE}, '
      'or write target.counts: simulated.'
    )
  return path


def _local_path(name, data_dir, suffixes=('.npz', '.csv')):
  if data_dir is None:
    return None
  folder = pathlib.Path(os.path.expanduser(data_dir))
  if not os.path.isdir(folder):
    raise DataError(
      f'the data folder {shown(str(folder), 120)} does not exist; write one '
      f'that holds {name}{suffixes[0]} or {name}{suffixes[1]}.'
    )
  for suffix in suffixes:
    if (folder / f'{name}{suffix}').is_file():
      return folder / f'{name}{suffix}'
  return None


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
  looked = (
    f'no {name}.npz or {name}.csv in {shown(str(data_dir))}'
    if data_dir
    else ('no data folder was given')
  )
  advice = (
    f'Put {name}.npz (arrays X {list(source.shape)} and y) or {name}.csv in a '
    f'folder and pass it as --data-dir or in {DATA_DIR_VARIABLE}.'
  )
  if source.bundled is not None:
    return _selected(source, *_bundled(source.bundled))
  if source.openml_id is None:
    raise DataError(f'{name}: {looked}. {source.note} {advice}')
  # Imported here: scikit-learn is needed for downloads only.
  from sklearn import datasets

  cache = cache_dir or pathlib.Path('~/.cache/tfp_adaptive').expanduser()
  try:
    bunch = datasets.fetch_openml(
      data_id=source.openml_id, as_frame=True, data_home=str(cache)
    )
    inputs = bunch.data.astype(np.float64).to_numpy()
    labels = bunch.target.astype(str).to_numpy()
  except Exception as error:  # Network, server and format errors alike.
    raise DataError(
      f'{name}: {looked}, and OpenML data set {source.openml_id} could not be '
      f'fetched ({type(error).__name__}: {shortened(error)}). {advice}'
    ) from error
  return _selected(source, inputs, labels)


def _bundled(loader):
  from sklearn import datasets

  inputs, labels = getattr(datasets, loader)(return_X_y=True)
  return inputs, labels.astype(str)


def _selected(source, inputs, labels):
  if source.select is not None:
    inputs, labels = source.select(inputs, labels)
  return inputs, np.asarray([_is_positive(y, source.positive) for y in labels])


def _is_positive(label, positive):
  try:
    return float(label) == float(positive)
  except ValueError:
    return label.strip() == positive


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
