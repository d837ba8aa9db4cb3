"""Broken archives of data: labelled rows, and images of digits."""

import functools
import io
import zipfile

import numpy as np

from experiments.framework import data
from experiments.framework import digit_data
from experiments.fuzz import text_data
from experiments.fuzz.case import ACCEPT
from experiments.fuzz.case import Case
from experiments.fuzz.case import EITHER
from experiments.fuzz.case import pick
from experiments.fuzz.case import REFUSE
from experiments.fuzz.config_texts import flipped
from experiments.fuzz.config_texts import truncated

__all__ = ['make']

_NAMES = ('ripley', 'german')
_NUM_IMAGES = 30
_BOMB_COLUMNS = 250_000


@functools.cache
def _rows(name):
  rng = np.random.default_rng(0)
  num_rows, num_columns = data.SOURCES[name].shape
  inputs = rng.normal(size=(num_rows, num_columns)).astype(np.float32)
  return inputs.astype(np.float64), np.arange(num_rows) % 2


@functools.cache
def _images():
  rng = np.random.default_rng(1)
  images = rng.integers(0, 256, size=(_NUM_IMAGES, 784))
  return images.astype(np.float64), np.arange(_NUM_IMAGES) % 10


def make(rng, folder):
  """Returns a `Case`, its file written below an empty folder."""
  kind = pick(rng, ['rows npz', 'rows npz', 'rows csv', 'mnist', 'counts'])
  if kind == 'counts':
    return text_data.counts_case(rng, folder)
  if kind == 'rows csv':
    return text_data.csv_case(rng, folder)
  name = 'mnist' if kind == 'mnist' else pick(rng, _NAMES)
  inputs, labels = _images() if kind == 'mnist' else _rows(name)
  group = pick(rng, ['labels', 'inputs', 'neutral', 'file', 'file'])
  mutation, content, expected = _GROUPS[group](rng, inputs, labels)
  path = folder / f'{name}.npz'
  path.write_bytes(content)
  wanted = (inputs / 255.0, labels) if kind == 'mnist' else (inputs, labels)

  def load():
    if kind == 'mnist':
      found = digit_data.load_digits(name, _NUM_IMAGES, str(folder))
    else:
      found = data.load(name, str(folder))
    return _complaint(found, wanted, expected)

  return Case(f'{kind}: {mutation}', expected, f'{path.name}: {mutation}', load)


def _complaint(found, wanted, expected):
  if expected == REFUSE:
    return None
  is_same = all(
    f.dtype == w.dtype and np.array_equal(f, w) for f, w in zip(found, wanted)
  )
  return None if is_same else 'other numbers than the file was made of'


def _npz(inputs, labels, compressed=False, **more):
  file = io.BytesIO()
  save = np.savez_compressed if compressed else np.savez
  save(file, X=inputs, y=labels, **more)
  return file.getvalue()


def _some(rng, labels, value, dtype=np.float64):
  """Returns labels with one of them replaced."""
  labels = labels.astype(dtype)
  labels[int(rng.integers(len(labels)))] = value
  return labels


def _wrong_labels(rng, inputs, labels):
  wrong = {
    'label 0.7': _some(rng, labels, 0.7),
    'label 1e-9': _some(rng, labels, 1e-9),
    'label 11': _some(rng, labels, 11),
    'label -1': _some(rng, labels, -1),
    'label NaN': _some(rng, labels, np.nan),
    'label inf': _some(rng, labels, np.inf),
    'label 1e300': _some(rng, labels, 1e300),
    'label 2^64 - 1': _some(rng, labels, 2**64 - 1, np.uint64),
    'all labels in between': labels * 0.9 + 0.05,
    'complex labels': labels + 0j,
    'labels with an imaginary part': labels + 1j,
    'labels in words': np.where(labels == 1, 'yes', 'no'),
    'bytes labels': labels.astype('S3'),
    'object labels': labels.astype(object),
    'dates as labels': labels.astype('M8[D]'),
    'records as labels': labels.astype([('a', 'i4'), ('b', 'f8')]),
    'y shorter': labels[:-1],
    'y longer': np.append(labels, 1),
    'y empty': labels[:0],
    'y a number': np.asarray(1),
    'y in a row': labels[None],
    'y of two columns': np.stack([labels, labels], axis=1),
    'y folded': labels.reshape(-1, 2),
  }
  name = pick(rng, list(wrong))
  return name, _npz(inputs, wrong[name]), REFUSE


def _with(rng, inputs, value):
  inputs = inputs.copy()
  inputs[tuple(int(rng.integers(n)) for n in inputs.shape)] = value
  return inputs


def _wrong_inputs(rng, inputs, labels):
  wrong = {
    'NaN': _with(rng, inputs, np.nan),
    'inf': _with(rng, inputs, np.inf),
    'complex': inputs + 0j,
    'imaginary': inputs + 1j,
    'object': inputs.astype(object),
    'text': np.full(inputs.shape, 'x'),
    'numbers as text': inputs.astype(str),
    'records': np.zeros(inputs.shape, [('a', 'f8')]),
    'transposed': inputs.T,
    'flat': inputs.ravel(),
    'three axes': inputs[None],
    'a column less': inputs[:, 1:],
    'a column more': np.concatenate([inputs, inputs[:, :1]], axis=1),
    'no rows': inputs[:0],
    'no columns': inputs[:, :0],
    'a number': np.asarray(3.0),
    'longer than y': np.concatenate([inputs, inputs[:1]]),
    'void': np.zeros(inputs.shape, 'V8'),
    'times': inputs.astype('m8[s]'),
  }
  name = pick(rng, list(wrong))
  return f'X {name}', _npz(wrong[name], labels), REFUSE


def _neutral(rng, inputs, labels):
  same = {
    'compressed': _npz(inputs, labels, compressed=True),
    'float32': _npz(inputs.astype(np.float32), labels.astype(np.float32)),
    'small labels': _npz(inputs, labels.astype(np.int8)),
    'Fortran order': _npz(np.asfortranarray(inputs), labels),
    'big endian': _npz(inputs.astype('>f8'), labels.astype('>i4')),
    'y a column': _npz(inputs, labels[:, None]),
    'more arrays': _npz(inputs, labels, z=np.arange(3)),
  }
  name = pick(rng, list(same))
  return name, same[name], ACCEPT


def _broken_file(rng, inputs, labels):
  good = _npz(inputs, labels, compressed=rng.random() < 0.5)
  name = pick(rng, list(_FILES))
  content, expected = _FILES[name](rng, good, inputs, labels)
  return name, content, expected


def _archive(members, method=zipfile.ZIP_DEFLATED):
  file = io.BytesIO()
  with zipfile.ZipFile(file, 'w', method) as archive:
    for name, content in members.items():
      archive.writestr(name, content)
  return file.getvalue()


def _npy(array):
  file = io.BytesIO()
  np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
  return file.getvalue()


def _header(text):
  """Returns an .npy member with any header."""
  text = text.encode('latin1') + b'\n'
  return b'\x93NUMPY\x01\x00' + len(text).to_bytes(2, 'little') + text


_BAD_HEADERS = (
  "{'descr': '<f8', 'fortran_order': False, 'shape': (250, 2), }",
  "{'descr': '<f8', 'fortran_order': False, 'shape': (250, -2), }",
  "{'descr': '<f8', 'fortran_order': False, 'shape': (250, 10**9), }",
  "{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807,), }",
  "{'descr': '<f8', 'fortran_order': 3, 'shape': (250, 2), }",
  "{'descr': '|O', 'fortran_order': False, 'shape': (250, 2), }",
  "{'descr': 'nonsense', 'fortran_order': False, 'shape': (250, 2), }",
  "{'descr': [('a', '<f8')] * 3, 'fortran_order': False, 'shape': (), }",
  "{'descr': '<f8'}",
  '{' * 300,
  '(' * 5000,
  '',
  'None',
  "__import__('os').getcwd()",
)


@functools.cache
def _bomb():
  """An archive whose X unpacks to half a gigabyte of zeros."""
  num_rows = data.SOURCES['ripley'].shape[0]
  head = io.BytesIO()
  shape = {'descr': '<f8', 'fortran_order': False}
  shape['shape'] = (num_rows, _BOMB_COLUMNS)
  np.lib.format.write_array_header_1_0(head, shape)
  file = io.BytesIO()
  with zipfile.ZipFile(
    file, 'w', zipfile.ZIP_DEFLATED, compresslevel=1
  ) as archive:
    with archive.open('X.npy', 'w', force_zip64=True) as member:
      member.write(head.getvalue())
      for _ in range(num_rows):
        member.write(bytes(8 * _BOMB_COLUMNS))
    archive.writestr('y.npy', _npy(np.arange(num_rows) % 2))
  return file.getvalue()


_FILES = {
  'flipped': lambda rng, good, *_: (flipped(rng, good), EITHER),
  'truncated': lambda rng, good, *_: (truncated(rng, good), REFUSE),
  'empty': lambda *_: (b'', REFUSE),
  'text': lambda *_: (b'a,b,y\n1,2,0\n', REFUSE),
  'an .npy': lambda rng, good, x, y: (_npy(x), REFUSE),
  'a pickle': lambda *_: (b'\x80\x04K\x01.', REFUSE),
  'empty archive': lambda *_: (_archive({}), REFUSE),
  'no y': lambda rng, good, x, y: (_archive({'X.npy': _npy(x)}), REFUSE),
  'no X': lambda rng, good, x, y: (_archive({'y.npy': _npy(y)}), REFUSE),
  'members of text': lambda rng, good, x, y: (
    _archive({'X.npy': b'1,2\n', 'y.npy': b'0\n'}),
    REFUSE,
  ),
  'other names': lambda rng, good, x, y: (
    _archive({'x.npy': _npy(x), 'Y.npy': _npy(y)}),
    REFUSE,
  ),
  'bad header': lambda rng, good, x, y: (
    _archive({'X.npy': _header(pick(rng, _BAD_HEADERS)), 'y.npy': _npy(y)}),
    REFUSE,
  ),
  'bomb': lambda *_: (_bomb(), REFUSE),
  'two in one': lambda rng, good, *_: (good[: len(good) // 2] + good, EITHER),
}

_GROUPS = {
  'labels': _wrong_labels,
  'inputs': _wrong_inputs,
  'neutral': _neutral,
  'file': _broken_file,
}
