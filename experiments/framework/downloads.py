"""Puts a data set into the data folder: from the first source that is right.

What decides is the numbers: their shape, how many rows have which label, and
where it is known the checksum. A source that fails is said, the next is tried.
A file is written whole or not at all, and none is overwritten.
"""

import contextlib
import hashlib
import io
import os
import urllib.request
import warnings

import numpy as np
import rich.progress

from experiments.framework import array_files
from experiments.framework import data
from experiments.framework import data_readers
from experiments.framework import outputs
from experiments.framework.data_sources import BUNDLED
from experiments.framework.data_sources import checksum
from experiments.framework.data_sources import COUNTS
from experiments.framework.data_sources import DOWNLOADS
from experiments.framework.data_sources import MNIST
from experiments.framework.data_sources import selected
from experiments.framework.file_sets import FILE_SETS
from experiments.run.errors import DataError
from experiments.run.errors import did_you_mean
from experiments.run.errors import shortened
from experiments.run.errors import shown
from experiments.run.errors import StorageError

__all__ = ['local_copy', 'local_files', 'obtain']

_CHUNK_BYTES = 1 << 16
_MAX_BYTES = 200_000_000
_SECONDS = 60.0
_MAX_REASON = 200


def local_copy(name, data_dir=None):
  """Returns the path of a data set in the data folder, or None.

  Args:
    name: a key of `data_sources.DOWNLOADS`.
    data_dir: as in `data.load`, but the folder may be missing.
  """
  if not data.folder(data_dir).is_dir():
    return None
  suffixes = {COUNTS: ('.npy', '.csv'), MNIST: ('.npz',)}
  return data.local_path(name, data_dir, suffixes.get(name, ('.npz', '.csv')))


def local_files(name, data_dir=None):
  """Returns the files of a set that are in the data folder.

  Args:
    name: a key of `file_sets.FILE_SETS`.
    data_dir: as in `data.load`, but the folder may be missing.
  """
  folder = data.folder(data_dir) / name
  return [f for f in FILE_SETS[name].files if (folder / f.name).is_file()]


def obtain(name, console, data_dir=None, cache_dir=None):
  """Makes sure that a data set is in the data folder; says how it got there.

  Args:
    name: a key of `data_sources.DOWNLOADS`, of `BUNDLED`, or of
      `file_sets.FILE_SETS`.
    console: of rich.
    data_dir: the folder, which is made if need be; None as in `data.folder`.
    cache_dir: where OpenML downloads are kept; None: ~/.cache/tfp_adaptive.

  Raises:
    DataError: if no source gives the right numbers, or the file that is
      already there holds others.
    StorageError: if the folder cannot be written.
  """
  if name in BUNDLED:
    console.print(f'{name}: part of scikit-learn, nothing to download.')
    return
  if name in FILE_SETS:
    _obtain_files(name, console, data_dir)
    return
  allowed = [*DOWNLOADS, *FILE_SETS]
  if name not in allowed:
    raise DataError(
      f'unknown data set {shown(name)}{did_you_mean(name, allowed)}; allowed '
      f'are {", ".join(allowed)}.'
    )
  source = DOWNLOADS[name]
  rows, columns = source.shape
  title = f'{name}: {rows} x {columns}. Terms: {source.terms}.'
  console.print(title, soft_wrap=True, highlight=False)
  path = local_copy(name, data_dir)
  if path is not None:
    found = _check_stored(name, path, data_dir)
    _record(source, data.recorded_path(name, path), found)
    _say(console, f'kept: {path} ({_judged(source, found)})')
    return
  folder = _make_folder(data_dir)
  inputs, labels, found = _first_right(name, data_dir, console, cache_dir)
  path = folder / f'{name}{".npy" if labels is None else ".npz"}'
  data.check_recorded(name, path, inputs, labels)
  try:
    outputs.write_bytes(path, _as_file(inputs, labels))
    _record(source, data.recorded_path(name, path), found)
  except StorageError as error:
    raise StorageError(
      f'{shown(str(path), 120)} cannot be written '
      f'({shortened(error.__cause__)}): make room, or pass another folder as '
      '--data-dir.'
    ) from error
  _say(console, f'written: {path} ({_judged(source, found)})')


def _obtain_files(name, console, data_dir):
  """Downloads the files of a set that are missing, and checks the others."""
  listed = FILE_SETS[name]
  title = f'{name}: {len(listed.files)} files. Terms: {listed.terms}.'
  console.print(title, soft_wrap=True, highlight=False)
  folder = _make_folder(data_dir) / name
  num_kept = 0
  for file in listed.files:
    path = folder / file.name
    if path.is_file():
      _check_sha256(file, path.read_bytes(), path)
      num_kept += 1
      continue
    content = _downloaded(file, console)
    try:
      path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      raise StorageError(
        f'{shown(str(path.parent), 120)} cannot be made '
        f'({shortened(error.strerror)}); pass another folder as --data-dir.'
      ) from error
    outputs.write_bytes(path, content)
  _say(
    console,
    f'{num_kept} files kept, {len(listed.files) - num_kept} written: {folder}',
  )


def _downloaded(file, console):
  """Returns the bytes of a published file, once they are the right ones."""
  try:
    content = _download(file.address, console)
  except (OSError, ValueError) as error:
    raise DataError(
      f'{file.address} could not be read ({type(error).__name__}: '
      f'{shortened(error, _MAX_REASON)}). Files that came before it are kept: '
      'run the command again.'
    ) from error
  _check_sha256(file, content, file.address)
  return content


def _check_sha256(file, content, origin):
  """Refuses bytes that are not those of a published file."""
  found = hashlib.sha256(content).hexdigest()
  if file.sha256 not in (None, found):
    raise DataError(
      f'{shown(str(origin), 120)} has the SHA-256 {found}, not {file.sha256}: '
      'these are other numbers. Move the file away, then run the command again.'
    )


def _say(console, text):
  console.print(f'  {text}', soft_wrap=True, highlight=False)


def _make_folder(data_dir):
  folder = data.folder(data_dir)
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise StorageError(
      f'the data folder {shown(str(folder), 120)} cannot be made '
      f'({shortened(error.strerror)}); pass another as --data-dir.'
    ) from error
  return folder


def _judged(source, found):
  if source.checksum is not None:
    return 'checksum as it should be'
  return (
    f'no checksum of this set is known yet; compare {found} with what others '
    'find. It is recorded beside the file, and other numbers are refused from '
    'now on'
  )


def _record(source, path, found):
  """Writes the checksum of a first download, where none is published."""
  if source.checksum is None and not os.path.lexists(path):
    outputs.write_bytes(path, f'{found}\n'.encode())


def _check_stored(name, path, data_dir):
  """Returns the checksum of a file that is there; refuses one of others."""
  try:
    inputs, labels = _read_stored(name, path)
    data.check_recorded(name, path, inputs, labels)
    return _check(DOWNLOADS[name], inputs, labels)
  except (DataError, ValueError) as error:
    raise DataError(
      f'{shown(str(path), 120)} does not hold the numbers of {name} '
      f'({shortened(error, _MAX_REASON)}): move it away, then '
      f'{data.advice(name, data_dir)}.'
    ) from error


def _read_stored(name, path):
  rows, columns = DOWNLOADS[name].shape
  if name == MNIST:
    shapes = {'X': [(rows, columns)], 'y': [(rows,), (rows, 1)]}
    arrays = array_files.read_npz(path, shapes, rows * columns, text=['y'])
    return arrays['X'], arrays['y'].ravel().astype(np.int64)
  if name == COUNTS:
    # Imported here: it brings TensorFlow along.
    from experiments.targets.log_gaussian_cox import read_counts

    return read_counts(path), None
  return data.read_local(name, path)


def _check(source, inputs, labels):
  """Returns the checksum of arrays; refuses others than the source's.

  Raises:
    ValueError: with the reason.
  """
  if inputs.shape != source.shape or not np.all(np.isfinite(inputs)):
    raise ValueError(
      f'finite numbers {source.shape} are expected, there are {inputs.shape}'
    )
  if labels is not None:
    kinds = range(len(source.num_labels))
    counts = tuple(int(np.sum(labels == kind)) for kind in kinds)
    if len(labels) != len(inputs) or counts != source.num_labels:
      raise ValueError(
        f'{source.num_labels} rows of the labels 0, 1, ... are expected, '
        f'there are {counts} of {len(labels)}'
      )
  found = checksum(inputs, labels)
  if source.checksum not in (None, found):
    raise ValueError(
      f'the checksum is {found}, not {source.checksum}: other numbers'
    )
  return found


def _first_right(name, data_dir, console, cache_dir):
  """Returns inputs, labels and checksum of the first source that is right."""
  source = DOWNLOADS[name]
  failures = []
  for address, read in _attempts(source, console, cache_dir):
    try:
      inputs, labels = read()
      found = _check(source, inputs, labels)
    except Exception as error:  # Network, server and format errors alike.
      reason = f'{type(error).__name__}: {shortened(error, _MAX_REASON)}'
      failures.append(f'{address} ({reason})')
      _say(console, f'failed: {failures[-1]}')
    else:
      _say(console, f'read: {address}')
      return inputs, labels, found
  raise DataError(
    f'{name}: no source could be read: {"; ".join(failures)}. Try again later, '
    f'or put it into {shown(str(data.folder(data_dir)), 120)} by hand, as '
    f'{_by_hand(name)}; then {data.advice(name, data_dir)}, which checks it.'
  )


def _by_hand(name):
  rows, columns = DOWNLOADS[name].shape
  if name == COUNTS:
    return f'{name}.npy, {rows} x {columns} counts'
  labels = 'digits' if name == MNIST else 'labels 0 and 1'
  return (
    f'{name}.npz with arrays X [{rows}, {columns}] and y [{rows}], {labels}'
  )


def _attempts(source, console, cache_dir):
  """Yields (address, function that returns inputs and labels)."""

  def from_openml():
    cache = data.cache_folder(cache_dir)
    with console.status('OpenML'), warnings.catch_warnings():
      # Of each attempt that failed: the last one's error is told.
      warnings.simplefilter('ignore')
      found = data_readers.openml(source.openml_id, cache)
    return selected(source, *found)

  if source.openml_id is not None:
    yield f'https://www.openml.org/d/{source.openml_id}', from_openml
  for file in source.files:
    yield file.address, lambda file=file: _from_file(file, console)


def _from_file(file, console):
  content = _download(file.address, console)
  if file.sha256 is not None:
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
      raise ValueError(f"the file's SHA-256 is {found}, not {file.sha256}")
  return file.read(content)


def _download(address, console):
  """Returns the bytes at an address, all of them or none."""
  agent = {'User-Agent': 'tfp_adaptive'}
  request = urllib.request.Request(address, headers=agent)
  content = io.BytesIO()
  with contextlib.ExitStack() as held:
    reply = held.enter_context(
      urllib.request.urlopen(request, timeout=_SECONDS)
    )
    length = reply.headers.get('Content-Length')
    total = None if length is None else int(length)
    bar = held.enter_context(_progress(console))
    task = bar.add_task('download', total=total)
    while chunk := reply.read(_CHUNK_BYTES):
      content.write(chunk)
      bar.update(task, advance=len(chunk))
      if content.tell() > _MAX_BYTES:
        raise ValueError(f'more than {_MAX_BYTES} bytes came')
  if total not in (None, content.tell()):
    raise ValueError(f'{content.tell()} of {total} bytes came')
  return content.getvalue()


def _progress(console):
  return rich.progress.Progress(
    rich.progress.BarColumn(),
    rich.progress.DownloadColumn(),
    rich.progress.TimeRemainingColumn(),
    console=console,
    transient=True,
    disable=not console.is_terminal,
  )


def _as_file(inputs, labels):
  file = io.BytesIO()
  if labels is None:
    np.save(file, inputs.astype(np.int64))
    return file.getvalue()
  # Pixels are whole numbers of one byte; compressed alike, faster to read.
  is_byte = (inputs >= 0) & (inputs <= 255) & (inputs == np.rint(inputs))
  kept = inputs.astype(np.uint8) if np.all(is_byte) else inputs
  np.savez_compressed(file, X=kept, y=np.asarray(labels, np.int8))
  return file.getvalue()
