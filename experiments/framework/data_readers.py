"""What the sources of data sets give, bytes or OpenML's table, as arrays.

A reader takes the bytes of a file and returns inputs [rows, columns] float64
and labels [rows]; what it raises for other bytes is its caller's to tell.
"""

import io
import zipfile

import numpy as np

__all__ = ['counts', 'keras_digits', 'matlab', 'openml', 'text']

_MAX_MEMBER_BYTES = 50_000_000


def text(positive, member=None, first_column=0, num_header_lines=0):
  """Returns a reader of numbers between commas or blanks, the label last.

  Args:
    positive: the labels that become 1; all others become 0.
    member: name of the file in a zip archive; None: the bytes are the text.
    first_column: of the inputs.
    num_header_lines: lines before the numbers.
  """

  def read(content):
    if member is not None:
      content = _member(content, member)
    lines = content.decode('ascii').splitlines()[num_header_lines:]
    rows = [line.replace(',', ' ').split() for line in lines if line.strip()]
    return _split(np.asarray(rows).astype(np.float64), positive, first_column)

  return read


def matlab(positive):
  """Returns a reader of a .mat file whose X has the labels as last column.

  Args:
    positive: the labels that become 1; all others become 0.
  """

  def read(content):
    return _split(_matlab_array(content, 'X'), positive)

  return read


def counts(content):
  """Returns (counts [64, 64], None) of the file of the published Cox process.

  Args:
    content: bytes of the .mat file, which has them as Y, by columns.
  """
  return np.reshape(_matlab_array(content, 'Y'), [64, 64], order='F'), None


def keras_digits(content):
  """Returns (pixels [70000, 784], digits [70000]) of Keras' mnist.npz.

  Args:
    content: bytes of the file.
  """
  with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
    parts = [(arrays[f'x_{k}'], arrays[f'y_{k}']) for k in ('train', 'test')]
  pixels, digits = map(np.concatenate, zip(*parts))
  return pixels.reshape(len(pixels), -1).astype(np.float64), digits


def openml(number, cache_dir):
  """Returns (inputs, labels as texts) of a data set of OpenML.

  Args:
    number: OpenML's number of it.
    cache_dir: folder where scikit-learn keeps what it has downloaded.
  """
  # Imported here: scikit-learn is needed for downloads only.
  from sklearn import datasets

  bunch = datasets.fetch_openml(
    data_id=number, as_frame=True, data_home=str(cache_dir)
  )
  inputs = bunch.data.astype(np.float64).to_numpy()
  return inputs, bunch.target.astype(str).to_numpy()


def _split(table, positive, first_column=0):
  return table[:, first_column:-1], np.isin(table[:, -1], positive)


def _member(content, name):
  with zipfile.ZipFile(io.BytesIO(content)) as archive:
    size = archive.getinfo(name).file_size
    if size > _MAX_MEMBER_BYTES:
      raise ValueError(f'{name} unpacks to {size} bytes')
    return archive.read(name)


def _matlab_array(content, name):
  import scipy.io

  # No other variable is unpacked.
  arrays = scipy.io.loadmat(io.BytesIO(content), variable_names=[name])
  return np.asarray(arrays[name], np.float64)
