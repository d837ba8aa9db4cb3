"""Readers of files: what sources publish, and what lies in the data folder.

They raise whatever NumPy or the zip module raises for other files; `datasets`
turns such an error into one sentence.
"""

import pathlib
import warnings
import zipfile

import numpy as np

from experiments.data.sources import File

# Most bytes of one number, and of an array's header.
_MAX_ITEM = 16
_MAX_HEADER = 10_000


def published(path: str, file: File) -> tuple[np.ndarray, np.ndarray | None]:
  """Returns inputs [rows, columns] and labels [rows] as the papers use them.

  Args:
    file: Where it was published. The suffix decides the format: .npz for MNIST
      by Keras, .mat for files of the papers' authors, others for text.
  """
  if file.url.endswith('.npz'):
    return _mnist(path, file)
  if not file.url.endswith('.mat'):
    table = _text(path, file)
  elif file.positive:
    table = _matlab(path, 'X')
  else:
    # The file has the counts of the Cox process by columns.
    return np.reshape(_matlab(path, 'Y'), [64, 64], order='F'), None
  return table[:, file.first_column : -1], np.isin(table[:, -1], file.positive)


def _text(path, file):
  """Returns the numbers between commas or blanks."""
  if file.member is None:
    content = pathlib.Path(path).read_bytes()
  else:
    with zipfile.ZipFile(path) as archive:
      content = archive.read(file.member)
  lines = content.decode('ascii').replace(',', ' ').splitlines()
  return np.loadtxt(lines[file.header_lines :], ndmin=2)


def _matlab(path, name):
  import scipy.io

  arrays = scipy.io.loadmat(path, variable_names=[name])
  return np.asarray(arrays[name], np.float64)


def _mnist(path, file):
  """Returns all images and digits, or training images of some digits."""
  with np.load(path, allow_pickle=False) as arrays:
    pixels, digits = arrays['x_train'], arrays['y_train']
    if not file.digits:
      pixels = np.concatenate([pixels, arrays['x_test']])
      digits = np.concatenate([digits, arrays['y_test']])
  pixels = pixels.reshape(len(pixels), -1).astype(np.float64)
  if not file.digits:
    return pixels, digits
  is_kept = np.isin(digits, file.digits)
  return pixels[is_kept] / 255.0, np.isin(digits[is_kept], file.positive)


def npz(path: pathlib.Path, most: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns arrays X and y of an archive.

  Args:
    most: Most numbers in an array. A small archive may unpack to far more,
      which is refused before it is unpacked.
  """
  with zipfile.ZipFile(path) as archive:
    for name in ('X', 'y'):
      size = archive.getinfo(f'{name}.npy').file_size
      if size > most * _MAX_ITEM + _MAX_HEADER:
        raise ValueError(f'{name} unpacks to {size} bytes')
  with np.load(path, allow_pickle=False) as arrays:
    return arrays['X'], arrays['y']


def npy(path: pathlib.Path) -> np.ndarray:
  """Returns the array of an .npy file.

  The file is mapped, because its header may claim more than it holds.
  """
  return np.lib.format.open_memmap(path, mode='r')


def csv(path: pathlib.Path, most_rows: int, skiprows: int = 0) -> np.ndarray:
  """Returns the numbers between commas, at most one row more than allowed."""
  with warnings.catch_warnings():
    # An empty file is a warning here; its shape is refused later.
    warnings.simplefilter('ignore')
    return np.loadtxt(
      path,
      delimiter=',',
      skiprows=skiprows,
      max_rows=most_rows + 1,
      encoding='utf-8-sig',
      quotechar='"',
      ndmin=2,
    )


def real(name: str, array: np.ndarray, kinds: str = 'biuf') -> np.ndarray:
  """Returns an array as float64; refuses complex numbers, objects and text."""
  if array.dtype.kind not in kinds:
    raise ValueError(f'{name} is of type {array.dtype}')
  return array.astype(np.float64)
