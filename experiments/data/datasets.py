"""Data sets by name: a local copy, or else a download from the publisher.

A local copy is `<name>.npz` with arrays `X` [rows, columns] and `y` [rows]. It
can also be `<name>.csv` with one header line and the label in the last column.
The copy lies in the data folder, where `python -m experiments data NAME` writes
it. This folder is given, or else TFP_ADAPTIVE_DATA_DIR, or else ./data. A run
downloads a missing data set into a cache.
"""

import contextlib
import io
import os
import pathlib
import re
import shlex
import tempfile
from collections.abc import Callable

import numpy as np
import pooch

from experiments.data import readers
from experiments.data.sources import checksum
from experiments.data.sources import MNIST
from experiments.data.sources import SOURCES
from experiments.run.errors import DataError
from experiments.run.errors import did_you_mean
from experiments.run.errors import shortened
from experiments.run.errors import StorageError

DATA_DIR_VARIABLE = 'TFP_ADAPTIVE_DATA_DIR'
_CACHE = '~/.cache/tfp_adaptive'
_MAX_REASON = 200
# Counts in a file: cells per side, and events of a cell.
_MOST_SIDE = 4096
_MOST_COUNT = 10**9

# `obtain` prints what pooch does.
pooch.get_logger().setLevel('WARNING')

PathLike = str | os.PathLike
Arrays = tuple[np.ndarray, np.ndarray | None]


def folder(data_dir: PathLike | None = None) -> pathlib.Path:
  """Returns the data folder that is given or, without one, the default."""
  chosen = data_dir or os.environ.get(DATA_DIR_VARIABLE) or 'data'
  return pathlib.Path(chosen).expanduser()


def find(name: str, place: pathlib.Path) -> pathlib.Path | None:
  """Returns the path of a set's copy in a folder, or `None`."""
  suffixes = ('.npz' if SOURCES[name].num_labels else '.npy', '.csv')
  paths = (place / f'{name}{suffix}' for suffix in suffixes)
  return next((path for path in paths if path.is_file()), None)


def load(name: str, data_dir: PathLike | None = None) -> Arrays:
  """Returns inputs [rows, columns] float64 and labels [rows] int64.

  Args:
    name: Key of `SOURCES`. Counts on a square have no labels.
    data_dir: Folder with local copies; `None` as in `folder`.

  Raises:
    DataError: If the set cannot be read or downloaded.
  """
  _check_name(name)
  place = folder(data_dir)
  if (data_dir or os.environ.get(DATA_DIR_VARIABLE)) and not place.is_dir():
    raise DataError(
      f'the data folder {shortened(place, 120)} does not exist. Name a folder '
      f'that holds {name}, or {_advice(name, data_dir)}, which makes the '
      'folder.'
    )
  path = find(name, place)
  if path is None:
    cache = pathlib.Path(_CACHE).expanduser()
    path = find(name, cache) or _download(name, cache, data_dir)
  return read(name, path)


def load_digits(
  name: str, num_rows: int, data_dir: PathLike | None = None
) -> Arrays:
  """Returns the first images [rows, pixels] in [0, 1] and digits [rows].

  Args:
    name: 'digits' for 1797 images of 8 x 8 pixels, or 'mnist' for 28 x 28.
  """
  if name == MNIST:
    images, digits = load(MNIST, data_dir)
    images = images / 255.0
  else:
    from sklearn import datasets

    images, digits = datasets.load_digits(return_X_y=True)
    images = images / 16.0
  if num_rows > len(images):
    raise DataError(
      f'target.num_rows: {num_rows} was given, but {name!r} has {len(images)}.'
    )
  return images[:num_rows], digits[:num_rows].astype(np.int64)


def standardized(inputs: np.ndarray) -> np.ndarray:
  """Returns the columns with mean 0 and variance 1; constant ones become 0."""
  scale = inputs.std(axis=0)
  return (inputs - inputs.mean(axis=0)) / np.where(scale > 0, scale, 1.0)


def whitened(inputs: np.ndarray) -> np.ndarray:
  """Returns L^-1 (x - mean) for rows x with the covariance L L^T."""
  factor = np.linalg.cholesky(np.cov(inputs, rowvar=False))
  return np.linalg.solve(factor, (inputs - inputs.mean(axis=0)).T).T


def design_matrix(inputs: np.ndarray, standardize: bool = True) -> np.ndarray:
  """Returns inputs with unit variance, and ones as the last column."""
  inputs = standardized(inputs) if standardize else inputs
  return np.concatenate([inputs, np.ones([len(inputs), 1])], axis=1)


def read(name: str, path: PathLike) -> Arrays:
  """Returns what `load` does, from the file of a local copy."""
  path = pathlib.Path(path)
  rows, columns = SOURCES[name].shape
  with _reading(path, _form(name)):
    if not SOURCES[name].num_labels:
      arrays = read_counts(path), None
    elif path.suffix == '.npz':
      arrays = readers.npz(path, rows * columns)
    else:
      table = readers.csv(path, rows, skiprows=1)
      arrays = table[:, :-1], table[:, -1]
    arrays = _checked(name, *arrays)
    _check_recorded(name, path.parent, *arrays)
  return arrays


def read_counts(path: PathLike) -> np.ndarray:
  """Returns counts [n, n] int64 of a .npy or comma-separated file."""
  path = pathlib.Path(path)
  form = f'n x n whole numbers from 0 to {_MOST_COUNT}, .npy or with commas'
  with _reading(path, form):
    is_array = path.suffix == '.npy'
    counts = readers.npy(path) if is_array else readers.csv(path, _MOST_SIDE)
    if counts.shape != 2 * (min(len(counts), _MOST_SIDE),) or not len(counts):
      raise ValueError(f'its shape is {counts.shape}')
    counts = readers.real('it', counts)
    is_count = (counts >= 0) & (counts <= _MOST_COUNT)
    if not np.all(is_count & (counts == np.rint(counts))):
      raise ValueError('some numbers are not counts')
  return counts.astype(np.int64)


@contextlib.contextmanager
def _reading(path, form):
  """Says in one sentence that a file cannot be read, and what is expected."""
  origin = shortened(path, 120)
  # Reading a pipe or a device may never end.
  if path.exists() and not path.is_file():
    raise DataError(f'{origin} is not a regular file; name a file with {form}.')
  try:
    yield
  except DataError:
    raise
  except Exception as error:  # Readers raise about 15 kinds of errors.
    raise DataError(
      f'{origin} cannot be read ({shortened(error, _MAX_REASON)}); expected is '
      f'{form}.'
    ) from error


def _form(name):
  """Returns what a local copy holds, as messages say it."""
  rows, columns = SOURCES[name].shape
  if not SOURCES[name].num_labels:
    return f'{name}.npy with counts [{rows}, {columns}]'
  return (
    f'{name}.npz with arrays X [{rows}, {columns}] and y [{rows}], labels 0 to '
    f'{len(SOURCES[name].num_labels) - 1}, or {name}.csv with one header line '
    'and the label last'
  )


def _checked(name, inputs, labels):
  """Returns inputs and labels as `load` does; refuses others by ValueError."""
  rows, columns = SOURCES[name].shape
  # Some configs use only the first rows of MNIST.
  is_part = name == MNIST and inputs.ndim == 2 and 0 < len(inputs) < rows
  rows = len(inputs) if is_part else rows
  if inputs.shape != (rows, columns):
    raise ValueError(f'X has shape {inputs.shape}, not {(rows, columns)}')
  inputs = readers.real('X', inputs)
  if not np.all(np.isfinite(inputs)):
    raise ValueError('X has numbers that are not finite')
  if name == MNIST and not np.all((inputs >= 0) & (inputs <= 255)):
    raise ValueError('pixels must be from 0 to 255')
  if labels is None:
    return inputs, None
  if labels.shape not in [(rows,), (rows, 1)]:
    raise ValueError(f'y has shape {labels.shape}, not {(rows,)}')
  labels = readers.real('y', labels, 'biufU').ravel()
  last = len(SOURCES[name].num_labels) - 1
  if not np.all(np.isin(labels, np.arange(last + 1))):
    raise ValueError(f'labels must be 0 to {last}')
  if len(np.unique(labels)) < 2:
    raise ValueError('all labels are the same')
  return inputs, labels.astype(np.int64)


def _verified(name, inputs, labels):
  """Returns the checksum; refuses numbers other than the published ones."""
  source = SOURCES[name]
  if labels is not None:
    counts = tuple(np.bincount(labels).tolist())
    if counts != source.num_labels:
      raise ValueError(
        f'there are {counts} rows of the labels 0, 1, ..., not '
        f'{source.num_labels}'
      )
  found = checksum(inputs, labels)
  if source.checksum not in (None, found):
    raise ValueError(f'the checksum is {found}, not {source.checksum}')
  return found


def _check_recorded(name, place, inputs, labels):
  """Raises ValueError if the numbers are not those of the first download."""
  path = place / f'{name}.checksum'
  if not path.exists():
    return
  expected = path.read_text().strip()
  if not re.fullmatch('[0-9a-f]{64}', expected):
    raise ValueError(f'{path.name} does not hold 64 hexadecimal digits')
  found = checksum(inputs, labels)
  if found != expected:
    raise ValueError(
      f'its checksum is {found[:8]}..., but {path.name} has '
      f'{expected[:8]}...: other numbers than those of the first download'
    )


def obtain(
  name: str, say: Callable[[str], None], data_dir: PathLike | None = None
) -> None:
  """Makes sure that the data folder has a data set with the right numbers.

  Args:
    say: Takes the lines that report what was done.
    data_dir: The folder, which is made if need be; `None` as in `folder`.

  Raises:
    DataError: If no file has the right numbers, or the local copy has others.
    StorageError: If the folder cannot be written.
  """
  _check_name(name)
  source, place = SOURCES[name], folder(data_dir)
  say(f'{name}: {source.size}. Terms: {source.terms}.')
  path = find(name, place)
  word = 'written' if path is None else 'kept'
  if path is None:
    path = _download(name, place, data_dir, say)
  try:
    found = _verified(name, *read(name, path))
  except (DataError, ValueError) as error:
    raise DataError(
      f'{shortened(path, 120)} does not hold the numbers of {name} '
      f'({shortened(error, 3 * _MAX_REASON)}). Move the file away, then '
      f'{_advice(name, data_dir)}.'
    ) from error
  judged = 'the checksum is the published one'
  if source.checksum is None:
    _write(place / f'{name}.checksum', f'{found}\n'.encode())
    judged = (
      f'no checksum of this set is published; compare {found} with what others '
      'find. The checksum is kept beside the file, and other numbers are '
      'refused from now on'
    )
  say(f'  {word}: {path} ({judged})')


def _download(name, place, data_dir, say=lambda text: None):
  """Writes a set from its first correct file; returns the path."""
  failures = []
  for file in SOURCES[name].files:
    try:
      with tempfile.TemporaryDirectory() as scratch:
        path = pooch.retrieve(file.url, file.sha256, path=scratch)
        arrays = _checked(name, *readers.published(path, file))
      _verified(name, *arrays)
      _check_recorded(name, place, *arrays)
    except Exception as error:  # Network, server and format errors alike.
      reason = f'{type(error).__name__}: {shortened(error, _MAX_REASON)}'
      failures.append(f'{file.url} ({reason})')
      say(f'  failed: {failures[-1]}')
    else:
      say(f'  read: {file.url}')
      return _save(name, place, *arrays)
  instead = SOURCES[name].instead and f', or {SOURCES[name].instead}'
  raise DataError(
    f'{name}: there is no copy in {shortened(folder(data_dir), 120)}, and no '
    f'source could be read: {"; ".join(failures)}. Try again later: '
    f'{_advice(name, data_dir)}. Or put {_form(name)} into a folder, and pass '
    f'the folder as --data-dir or in {DATA_DIR_VARIABLE}{instead}.'
  )


def _save(name, place, inputs, labels):
  """Writes the file of a local copy; returns its path."""
  path = place / f'{name}{".npy" if labels is None else ".npz"}'
  # Pixels are stored as single bytes, which are smaller and faster to read.
  small = np.clip(inputs, 0, 255).astype(np.uint8)
  kept = small if np.array_equal(small, inputs) else inputs
  content = io.BytesIO()
  if labels is None:
    np.save(content, kept)
  else:
    np.savez_compressed(content, X=kept, y=labels.astype(np.int8))
  _write(path, content.getvalue())
  return path


def _write(path, content):
  """Writes a file, whole or not at all."""
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix='.') as aside:
      file = pathlib.Path(aside) / path.name
      file.write_bytes(content)
      os.replace(file, path)
  except OSError as error:
    raise StorageError(
      f'{shortened(path, 120)} cannot be written ({error.strerror}). Make '
      'room, or pass another folder as --data-dir.'
    ) from error


def _check_name(name):
  if name not in SOURCES:
    raise DataError(
      f'unknown data set {shortened(name)}{did_you_mean(name, SOURCES)}; '
      f'allowed are {", ".join(SOURCES)}.'
    )


def _advice(name, data_dir=None):
  given = f' --data-dir {shlex.quote(str(data_dir))}' if data_dir else ''
  return f'run `python -m experiments data {name}{given}`'
