"""Broken data files of other forms: rows as .csv, counts as .npy or text."""

import functools
import io

import numpy as np

from experiments.framework import data
from experiments.fuzz.case import ACCEPT
from experiments.fuzz.case import Case
from experiments.fuzz.case import EITHER
from experiments.fuzz.case import pick
from experiments.fuzz.case import REFUSE
from experiments.fuzz.config_texts import flipped
from experiments.fuzz.config_texts import truncated
from experiments.targets.log_gaussian_cox import read_counts

__all__ = ['counts_case', 'csv_case']


@functools.cache
def _rows():
  rng = np.random.default_rng(0)
  inputs = rng.normal(size=data.SOURCES['ripley'].shape).round(3)
  return inputs, np.arange(len(inputs)) % 2


def _csv(inputs, labels, separator=',', end='\n', form='{!r}'):
  lines = ['a,b,y']
  for row, label in zip(inputs.tolist(), labels.tolist()):
    lines.append(separator.join(form.format(v) for v in [*row, label]))
  return end.join(lines) + end


def csv_case(rng, folder):
  """Returns a `Case` of a .csv file."""
  inputs, labels = _rows()
  name = pick(rng, list(_CSV))
  text, expected = _CSV[name](rng, inputs, labels)
  content = text if isinstance(text, bytes) else text.encode()
  (folder / 'ripley.csv').write_bytes(content)

  def load():
    found = data.load('ripley', str(folder))
    if expected != ACCEPT:
      return None
    is_same = all(map(np.array_equal, found, (inputs, labels)))
    return None if is_same else 'other numbers than the file holds'

  return Case(f'rows csv: {name}', expected, f'ripley.csv: {name}', load)


def _edited(rng, labels=None):
  """Returns the file with one entry of a row replaced, of the last: y."""
  text = _csv(*_rows()).splitlines()
  row = 1 + int(rng.integers(len(text) - 1))
  cells = text[row].split(',')
  column = 2 if labels else int(rng.integers(2))
  wrong = ['', 'x', 'nan', 'inf', '1e999', '1,5', '(1+0j)', '0x10', '1_0',
           'None', '"', '\0', '1;2', 'y' * 200_000, '\u0661']  # fmt: skip
  cells[column] = pick(rng, labels or wrong)
  text[row] = ','.join(cells)
  return '\n'.join(text) + '\n'


_LABELS = [
  '0.7',
  '0.5',
  '2',
  '-1',
  'nan',
  'inf',
  'yes',
  '1e-9',
  '1.0000001',
  '',
]


def _without_header(rng, inputs, labels):
  return _csv(inputs, labels).split('\n', 1)[1], REFUSE


def _same(rng, inputs, labels):
  texts = [
    _csv(inputs, labels, end='\r\n'),
    _csv(inputs, labels, separator=', '),
    _csv(inputs, labels, form='"{!r}"'),
    _csv(inputs, labels, form='{:.17e}'),
    '\ufeff' + _csv(inputs, labels),
    _csv(inputs, labels).replace('\n', '\n\n'),
    _csv(inputs, labels.astype(float)),
  ]
  return pick(rng, texts), ACCEPT


_CSV = {
  'same': _same,
  'wrong label': lambda rng, *_: (_edited(rng, _LABELS), REFUSE),
  'wrong entry': lambda rng, *_: (_edited(rng), REFUSE),
  'no header': _without_header,
  'header alone': lambda *_: ('a,b,y\n', REFUSE),
  'empty': lambda *_: ('', REFUSE),
  'other separator': lambda rng, x, y: (
    '\n'.join(line.replace(',', ';') for line in _csv(x, y).splitlines()),
    REFUSE,
  ),
  'short row': lambda rng, x, y: (_csv(x, y) + '1,2\n', REFUSE),
  'row more': lambda rng, x, y: (_csv(x, y) + '1,2,0\n', REFUSE),
  'row less': lambda rng, x, y: (_csv(x[1:], y[1:]), REFUSE),
  'one class': lambda rng, x, y: (_csv(x, 0 * y), REFUSE),
  'column more': lambda rng, x, y: (_csv(np.hstack([x, x]), y), REFUSE),
  'UTF-16': lambda rng, x, y: (_csv(x, y).encode('utf-16'), REFUSE),
  'many rows': lambda rng, x, y: (_csv(x, y) * 1000, REFUSE),
  'one long line': lambda *_: ('1,' * 10**6, REFUSE),
  'open quote': lambda rng, x, y: ('"' + _csv(x, y), REFUSE),
  'flipped': lambda rng, x, y: (flipped(rng, _csv(x, y).encode()), EITHER),
  'truncated': lambda rng, x, y: (truncated(rng, _csv(x, y)[:-1]), EITHER),
}


@functools.cache
def _counts():
  return np.random.default_rng(2).poisson(3.0, size=(6, 6))


def counts_case(rng, folder):
  """Returns a `Case` of a file of counts."""
  counts = _counts()
  is_binary = rng.random() < 0.6
  name = pick(rng, list(_COUNTS if is_binary else _COUNT_TEXTS))
  path = folder / ('counts.npy' if is_binary else 'counts.csv')
  if is_binary:
    content, expected = _COUNTS[name](rng, counts)
    content = content if isinstance(content, bytes) else _npy(content)
  else:
    content, expected = _COUNT_TEXTS[name](rng, counts)
    content = content if isinstance(content, bytes) else content.encode()
  path.write_bytes(content)

  def load():
    found = read_counts(str(path))
    if expected != ACCEPT:
      return None
    return None if np.array_equal(found, counts) else 'other counts'

  return Case(f'{path.name}: {name}', expected, f'{path.name}: {name}', load)


def _npy(array):
  file = io.BytesIO()
  np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
  return file.getvalue()


def _npz(array):
  file = io.BytesIO()
  np.savez(file, X=array)
  return file.getvalue()


def _with(rng, counts, value, dtype=np.float64):
  counts = counts.astype(dtype)
  counts[tuple(int(k) for k in rng.integers(6, size=2))] = value
  return counts, REFUSE


def _claims_more(rng, counts):
  """A header that tells of far more than the file holds."""
  side = pick(rng, [7, 10**5, 2**40])
  return _npy(counts).replace(b'(6, 6)', f'({side}, {side})'.encode()), REFUSE


_COUNTS = {
  'same': lambda rng, c: (
    pick(rng, [c, c.astype(np.float32), c.T.copy().T]),
    ACCEPT,
  ),
  'fraction': lambda rng, c: _with(rng, c, 0.5),
  'negative': lambda rng, c: _with(rng, c, -1),
  'NaN': lambda rng, c: _with(rng, c, np.nan),
  'inf': lambda rng, c: _with(rng, c, np.inf),
  'huge': lambda rng, c: _with(rng, c, 1e300),
  'complex': lambda rng, c: (c + 0j, REFUSE),
  'object': lambda rng, c: (c.astype(object), REFUSE),
  'text': lambda rng, c: (c.astype(str), REFUSE),
  'dates': lambda rng, c: (c.astype('M8[D]'), REFUSE),
  'records': lambda rng, c: (np.zeros([6, 6], [('a', 'f8')]), REFUSE),
  'not square': lambda rng, c: (c[1:], REFUSE),
  'flat': lambda rng, c: (c.ravel(), REFUSE),
  'three axes': lambda rng, c: (c[None], REFUSE),
  'nothing': lambda rng, c: (c[:0, :0], REFUSE),
  'an archive': lambda rng, c: (_npz(c), REFUSE),
  'a pickle': lambda *_: (b'\x80\x04K\x01.', REFUSE),
  'empty file': lambda *_: (b'', REFUSE),
  'truncated': lambda rng, c: (truncated(rng, _npy(c)), REFUSE),
  'flipped': lambda rng, c: (flipped(rng, _npy(c)), EITHER),
  'claims more': _claims_more,
}


def _text(counts, separator=','):
  return '\n'.join(separator.join(map(str, row)) for row in counts.tolist())


_COUNT_TEXTS = {
  'same': lambda rng, c: (
    pick(rng, [_text(c) + '\n', _text(c * 1.0), '# why\n' + _text(c)]),
    ACCEPT,
  ),
  'fraction': lambda rng, c: (_text(_with(rng, c, 0.5)[0]), REFUSE),
  'negative': lambda rng, c: (_text(_with(rng, c, -1)[0]), REFUSE),
  'NaN': lambda rng, c: (_text(_with(rng, c, np.nan)[0]), REFUSE),
  'empty file': lambda *_: ('', REFUSE),
  'words': lambda *_: ('a,b\nc,d\n', REFUSE),
  'ragged': lambda rng, c: (_text(c) + '\n1,2\n', REFUSE),
  'spaces': lambda rng, c: (_text(c, ' '), REFUSE),
  'complex': lambda rng, c: (_text(c + 1j), REFUSE),
  'UTF-16': lambda rng, c: (_text(c).encode('utf-16'), REFUSE),
  'NUL': lambda rng, c: (_text(c) + '\0', REFUSE),
  'large': lambda rng, c: ('1,' * 2_000_000, REFUSE),
  'flipped': lambda rng, c: (flipped(rng, _text(c).encode()), EITHER),
}
