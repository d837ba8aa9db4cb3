"""Images of ten digits: scikit-learn's bundled ones, or MNIST.

A local copy of MNIST is `mnist.npz` with arrays `X` [rows, 784] and `y` [rows]
in the data folder of `data.folder`, else OpenML is asked.
"""

import numpy as np

from experiments.framework import array_files
from experiments.framework import data
from experiments.framework import data_readers
from experiments.framework.data_sources import DOWNLOADS
from experiments.framework.data_sources import MNIST
from experiments.run.errors import DataError
from experiments.run.errors import shortened
from experiments.run.errors import shown

__all__ = ['NAMES', 'load_digits']

NAMES = ('digits', 'mnist')
_MNIST_COLUMNS = 784
_MOST_ROWS = 100_000
_SHAPES = {'X': [(None, _MNIST_COLUMNS)], 'y': [(None,), (None, 1)]}


def load_digits(name, num_rows, data_dir=None, cache_dir=None):
  """Returns (images [rows, pixels] in [0, 1] float64, digits [rows] int64).

  Args:
    name: 'digits', 1797 images of 8 x 8 pixels, or 'mnist', of 28 x 28.
    num_rows: the first so many.
    data_dir: folder with a local copy of MNIST; None takes the environment
      variable TFP_ADAPTIVE_DATA_DIR.
    cache_dir: where OpenML downloads are kept; None: ~/.cache/tfp_adaptive.

  Raises:
    DataError: if MNIST is not to be had, or there are too few rows.
  """
  if name == 'digits':
    from sklearn import datasets

    bunch = datasets.load_digits()
    images, digits = bunch.data / 16.0, bunch.target
  else:
    images, digits = _mnist(data_dir, cache_dir)
  if num_rows > len(images):
    raise DataError(
      f'target.num_rows: {num_rows} was given, but {name!r} has {len(images)}.'
    )
  return (
    np.asarray(images[:num_rows], np.float64),
    np.asarray(digits[:num_rows]).astype(np.int64),
  )


def _mnist(data_dir, cache_dir):
  file = data.local_path(MNIST, data_dir, ('.npz',))
  if file is not None:
    arrays = array_files.read_npz(
      file, _SHAPES, _MOST_ROWS * _MNIST_COLUMNS, text=['y']
    )
    images, digits = arrays['X'].astype(np.float64), arrays['y'].ravel()
  else:
    images, digits = _download(data_dir, cache_dir)
  _check(images, digits)
  digits = digits.astype(np.int64)
  if file is not None:
    data.check_recorded(MNIST, file, images, digits)
  return images / 255.0, digits


def _check(images, digits):
  """Refuses what is not images of one digit each."""
  if not array_files.fits(images.shape, _SHAPES['X'][0]) or not len(images):
    raise DataError(
      f'mnist: X has shape {images.shape}; expected are {_MNIST_COLUMNS} '
      'columns, one for each pixel, and at least one row.'
    )
  if digits.shape != images.shape[:1]:
    raise DataError(
      f'mnist: X has {len(images)} rows, y {len(digits)}; each image needs its '
      'digit.'
    )
  if not np.all((images >= 0) & (images <= 255)):
    raise DataError('mnist: pixels must be from 0 to 255 and finite.')
  allowed = np.arange(10)
  if digits.dtype.kind == 'U':
    allowed = allowed.astype(str)
  if not np.all(np.isin(digits, allowed)):
    raise DataError('mnist: each of y must be one of the digits 0 to 9.')


def _download(data_dir, cache_dir):
  source = DOWNLOADS[MNIST]
  try:
    return data_readers.openml(source.openml_id, data.cache_folder(cache_dir))
  except Exception as error:  # Network, server and format errors alike.
    raise DataError(
      f'mnist: no mnist.npz in {shown(str(data.folder(data_dir)), 120)}, and '
      f'OpenML data set {source.openml_id} could not be fetched '
      f'({type(error).__name__}: {shortened(error)}): '
      f'{data.advice(MNIST, data_dir)}, or put mnist.npz (arrays X [rows, 784] '
      'and y) in a folder and pass it as --data-dir or in '
      f'{data.DATA_DIR_VARIABLE}, or write dataset: digits, which needs no '
      'download.'
    ) from error
