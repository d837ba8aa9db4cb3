"""Where the papers' data sets come from: addresses, checksums and terms.

Addresses and checksums alone: no file of a data set is part of this project.
A checksum is of the numbers, not of a file, since several sources give the
same numbers in different files:

  SHA-256 of the sorted SHA-256s of the rows (inputs, label),

each number as a whole multiple of 1e-8, a signed integer of 64 bits, the
smallest byte first. Rows are sorted since sources order them differently and
no posterior depends on it; columns are not. No set has more than eight
decimals, so that readers which differ in the last bit of a float agree.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple
from typing import Optional

import numpy as np

from experiments.framework import data_readers as readers

__all__ = [
  'BUNDLED',
  'COUNTS',
  'DOWNLOADS',
  'File',
  'MNIST',
  'SOURCES',
  'Source',
  'checksum',
  'selected',
]

COUNTS = 'cox_counts_64'
MNIST = 'mnist'
# Scikit-learn brings these along.
BUNDLED = ('breast_cancer', 'digits', 'wine')


class File(NamedTuple):
  """A file at a fixed address.

  Attributes:
    address: with the id or the commit that fixes what is there.
    read: bytes -> inputs [rows, columns] and labels [rows], as they are used.
    sha256: of the file, where its publisher gives one.
  """

  address: str
  read: Callable
  sha256: Optional[str] = None


class Source(NamedTuple):
  """Where a data set comes from, and what it must look like."""

  # Rows and columns of X, without the bias: checked after every load.
  shape: tuple[int, int]
  # OpenML's number of the data set; None where it holds no copy.
  openml_id: Optional[int]
  # OpenML's label that becomes 1; None: labels are digits.
  positive: Optional[str]
  # License or terms, as far as they are known.
  terms: str
  # (inputs, labels) of OpenML -> the papers' rows and columns.
  select: Optional[Callable] = None
  # Loader of scikit-learn for a set that it holds itself: no download.
  bundled: Optional[str] = None
  # Tried in this order where OpenML fails.
  files: tuple[File, ...] = ()
  # Rows with the label 0, 1, ...
  num_labels: tuple[int, ...] = ()
  # Of the numbers, as `checksum` says; None: nobody has compared any yet.
  checksum: Optional[str] = None


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


def _keras_five_six(content):
  inputs, digits = readers.keras_digits(content)
  inputs, digits = _mnist_five_six(inputs, digits.astype(str))
  return inputs, digits == '5'


_UCI = 'https://archive.ics.uci.edu/static/public'
_GADMCMC = (
  'https://raw.githubusercontent.com/mtitsias/gadMCMC/'
  'e38af2dd3053075274788627a521d494ec587bb6/src/data'
)
_AGRAD = (
  'https://raw.githubusercontent.com/mtitsias/aGrad/'
  '00c03a10ece03b58c6fba24041badda23dbb3545/data'
)
_RDATASETS = (
  'https://raw.githubusercontent.com/vincentarelbundock/Rdatasets/'
  'cc03c29690889dbe83089f5206e2422db8c3f71f/csv/MASS'
)
# Address and checksum are in Keras' own loader.
_KERAS = 'https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz'
_KERAS_SHA256 = (
  '731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1'
)
_CC_BY = 'CC BY 4.0, says UCI'
_MNIST_TERMS = 'CC BY-SA 3.0, says Keras'


def _uci(path, member, positive, first_column=0):
  read = readers.text(positive, member, first_column)
  return File(f'{_UCI}/{path}.zip', read)


def _authors(name, positive):
  return File(f'{_GADMCMC}/{name}.mat', readers.matlab(positive))


SOURCES = {
  'australian': Source(
    (690, 14),
    40981,
    '1',
    f'{_CC_BY} (doi 10.24432/C59012)',
    files=(
      _uci('143/statlog+australian+credit+approval', 'australian.dat', [1]),
      _authors('australian', [1]),
    ),
    num_labels=(383, 307),
    checksum='e51f411f2b570c80acd42d0f4b16fe6a7ff7f253da89a557367f0466e4afa8df',
  ),
  'caravan': Source(
    (5822, 85),
    298,
    '1',
    f'{_CC_BY} (doi 10.24432/C5630S); its owner, Sentient Machine Research, '
    'allows research and education that are not commercial',
    _caravan_training,
    files=(
      _uci('125/insurance+company+benchmark+coil+2000', 'ticdata2000.txt', [1]),
      _authors('caravan', [1]),
    ),
    num_labels=(5474, 348),
  ),
  # OpenML holds only the 20 categorical columns; the papers use 24 numbers.
  'german': Source(
    (1000, 24),
    None,
    '2',
    f'{_CC_BY} (doi 10.24432/C5NC77)',
    files=(
      _uci('144/statlog+german+credit+data', 'german.data-numeric', [2]),
      _authors('german', [2]),
    ),
    num_labels=(700, 300),
    checksum='177eafc71852aace62febe3a4d889bf7d2983e3626d72638a50048f363329851',
  ),
  'glass': Source(
    (214, 9),
    41,
    'window',
    f'{_CC_BY} (doi 10.24432/C5WW2P)',
    _window_glass,
    # Classes 1 to 4 are windows; the first column counts the rows.
    files=(_uci('42/glass+identification', 'glass.data', [1, 2, 3, 4], 1),),
    num_labels=(51, 163),
  ),
  'heart': Source(
    (270, 13),
    53,
    'present',
    f'{_CC_BY} (doi 10.24432/C57303)',
    files=(
      _uci('145/statlog+heart', 'heart.dat', [2]),
      _authors('heart', [2]),
    ),
    num_labels=(150, 120),
    checksum='0fe2416fb234b7413a3d874def5c94c66bfa2774c6aee2017e6598354e641816',
  ),
  'mnist_5v6': Source(
    (11339, 784),
    554,
    '5',
    _MNIST_TERMS,
    _mnist_five_six,
    files=(File(_KERAS, _keras_five_six, _KERAS_SHA256),),
    num_labels=(5918, 5421),
  ),
  'pima': Source(
    (532, 7),
    37,
    'tested_positive',
    'of the US National Institute of Diabetes; no license is known',
    _complete_pima,
    files=(_authors('pima', [1]),),
    num_labels=(355, 177),
    checksum='111ebf357a593eafef95556ded94e3c527a39e7cb460fc73b3898fb04a8c1d41',
  ),
  'ripley': Source(
    (250, 2),
    464,
    '1',
    'simulated by Ripley (1996), in R package MASS; no license is known',
    files=(
      _authors('ripley', [1]),
      File(
        f'{_RDATASETS}/synth.tr.csv',
        readers.text([1], first_column=1, num_header_lines=1),
      ),
    ),
    num_labels=(125, 125),
    checksum='941a0b4e7224304c22602e8b3ba13f31a74accb6fb757bae3dccd5a8440f1c5b',
  ),
  # The largest class against the other two, and the first nine of thirteen
  # measurements: as many columns as glass has, to stand in for it offline.
  'wine': Source(
    (178, 9),
    None,
    '1',
    'part of scikit-learn',
    _first_nine_columns,
    bundled='load_wine',
  ),
}

_OTHERS = {
  MNIST: Source(
    (70000, 784),
    554,
    None,
    _MNIST_TERMS,
    files=(File(_KERAS, readers.keras_digits, _KERAS_SHA256),),
    num_labels=(6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958),
  ),
  COUNTS: Source(
    (64, 64),
    None,
    None,
    'of Girolami and Calderhead (2011); no license is known',
    files=(File(f'{_AGRAD}/TestData64.mat', readers.counts),),
    checksum='cfb8d50d4d727cf5577d0cd04ca34e17cba2f970ff8b8f67c2170e263d20f262',
  ),
}

DOWNLOADS = {
  name: source
  for name, source in {**SOURCES, **_OTHERS}.items()
  if source.bundled is None
}


def selected(source, inputs, labels):
  """Returns OpenML's or scikit-learn's arrays as the papers use them.

  Args:
    source: the `Source`.
    inputs: [rows, columns] float64.
    labels: [rows], texts.
  """
  if source.select is not None:
    inputs, labels = source.select(inputs, labels)
  if source.positive is None:
    return inputs, labels.astype(np.int64)
  return inputs, np.asarray([_is_positive(y, source.positive) for y in labels])


def _is_positive(label, positive):
  try:
    return float(label) == float(positive)
  except ValueError:
    return label.strip() == positive


def checksum(inputs, labels=None):
  """Returns the checksum of a set's numbers, 64 hexadecimal digits.

  Args:
    inputs: [rows, columns], finite real numbers.
    labels: [rows], whole numbers; None: `inputs` are counts on a square, whose
      rows keep their order. Of them and their transpose, which are one target
      to a prior of distances, the smaller checksum is taken.
  """
  if labels is None:
    return min(_of_rows(inputs), _of_rows(np.transpose(inputs)))
  rows = (np.append(x, y) for x, y in zip(inputs, labels))
  digests = sorted(hashlib.sha256(_fixed_point(row)).digest() for row in rows)
  return hashlib.sha256(b''.join(digests)).hexdigest()


def _of_rows(inputs):
  digests = [hashlib.sha256(_fixed_point(row)).digest() for row in inputs]
  return hashlib.sha256(b''.join(digests)).hexdigest()


def _fixed_point(row):
  # Beyond them no set has numbers, and the integers of 64 bits end.
  numbers = np.clip(np.asarray(row, np.float64), -1e10, 1e10)
  return np.rint(numbers * 1e8).astype('<i8').tobytes()
