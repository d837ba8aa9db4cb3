"""What each data set must look like, and the checksum of its numbers.

Addresses and checksums are in sources.yaml; no file of a data set is part of
this project. A checksum covers the numbers and not a file, because several
sources give the same numbers in different files:

  SHA-256 of the sorted SHA-256s of the rows (inputs, label)

Each number is a whole multiple of 1e-8 in a signed integer of 64 bits, smallest
byte first. Rows are sorted, because sources order rows differently and no
posterior depends on the order. Columns are not sorted. No set has more than
eight decimals, so readers that differ in the last bit of a float agree.
"""

import hashlib
import pathlib

import numpy as np
import pydantic
import yaml


class File(pydantic.BaseModel, frozen=True, extra='forbid'):
  """A published file.

  Attributes:
    url: Address with the id or the commit that fixes what is there.
    positive: Labels that become 1, all others become 0; empty: labels stay.
    member: Name of the text in a .zip archive.
    first_column: First column of the inputs; the label is the last column.
    header_lines: Lines of a text before its numbers.
    digits: Training digits that are kept, with pixels from 0 to 1; empty: all.
    sha256: SHA-256 of the file, if its publisher gives one.
  """

  url: str
  positive: tuple[int, ...] = ()
  member: str | None = None
  first_column: int = 0
  header_lines: int = 0
  digits: tuple[int, ...] = ()
  sha256: str | None = None


class Source(pydantic.BaseModel, frozen=True, extra='forbid'):
  """A data set.

  Attributes:
    shape: Rows and columns of the inputs.
    num_labels: Rows with the label 0, 1, ...; empty for counts on a square.
    terms: License or terms, as far as they are known.
    files: Files, tried in this order.
    checksum: Checksum of the numbers. `None`: no checksum is published, so the
      checksum of the first download is kept.
    instead: What a config may say instead if the set cannot be downloaded.
  """

  shape: tuple[int, int]
  num_labels: tuple[int, ...]
  terms: str
  files: tuple[File, ...] = ()
  checksum: str | None = None
  instead: str = ''

  @property
  def size(self) -> str:
    return f'{self.shape[0]} x {self.shape[1]}'


_TABLE = pathlib.Path(__file__).with_name('sources.yaml')
SOURCES = {
  name: Source.model_validate(values)
  for name, values in yaml.safe_load(_TABLE.read_text()).items()
}
COUNTS = 'cox_counts_64'
MNIST = 'mnist'
# Names of the sets with two labels.
BINARY = tuple(
  n for n, source in SOURCES.items() if len(source.num_labels) == 2
)
# Sets that are a part of scikit-learn.
BUNDLED = ('breast_cancer', 'digits')


def checksum(inputs: np.ndarray, labels: np.ndarray | None = None) -> str:
  """Returns the checksum of a set's numbers, 64 hexadecimal digits.

  Args:
    inputs: Finite real numbers, [rows, columns].
    labels: Whole numbers, [rows]. `None`: `inputs` are counts on a square,
      whose rows keep their order. A prior of distances is the same for the
      transposed counts, so the smaller checksum of both is taken.
  """
  if labels is None:
    return min(_hash(_digests(x)) for x in (inputs, np.transpose(inputs)))
  rows = (np.append(x, y) for x, y in zip(inputs, labels))
  return _hash(sorted(_digests(rows)))


def _digests(rows):
  return [hashlib.sha256(_fixed_point(row)).digest() for row in rows]


def _hash(digests):
  return hashlib.sha256(b''.join(digests)).hexdigest()


def _fixed_point(row):
  # No set has larger numbers, and larger ones soon overflow 64 bits.
  numbers = np.clip(np.asarray(row, np.float64), -1e10, 1e10)
  return np.rint(numbers * 1e8).astype('<i8').tobytes()
