"""Data sets are read from a local copy or fetched, and checked by numbers."""

import functools
import hashlib
import http.server
import os
import pathlib
import re
import shutil
import threading
import zipfile

import numpy as np
import pytest
import scipy.io
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.data import datasets
from experiments.data import posteriordb
from experiments.data import readers
from experiments.data.sources import checksum
from experiments.data.sources import COUNTS
from experiments.data.sources import File
from experiments.data.sources import MNIST
from experiments.data.sources import Source
from experiments.data.sources import SOURCES
from experiments.run.errors import DataError
from experiments.run.errors import StorageError

INPUTS = np.array([[70.0, 1.5], [67.0, -0.25], [57.0, 0.1], [64.0, 0.1]])
LABELS = np.array([1, 0, 1, 0])
TEXT = '70.0 1.5 2\n67.0 -0.25 1\n57.0 0.1 2\n64.0 0.1 1\n'
CHECKSUM = checksum(INPUTS, LABELS)


class _Handler(http.server.SimpleHTTPRequestHandler):
  """Serves files; claims ten bytes more for a path with `cut`."""

  def log_message(self, *_):
    pass

  def send_header(self, key, value):
    if key == 'Content-Length' and 'cut' in self.path:
      value = str(int(value) + 10)
    super().send_header(key, value)


@pytest.fixture(scope='module')
def web(tmp_path_factory):
  """Yields a folder and the address at which it is served."""
  folder = tmp_path_factory.mktemp('web')
  handler = functools.partial(_Handler, directory=str(folder))
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f'http://127.0.0.1:{server.server_address[1]}'
    server.shutdown()
    thread.join()


@pytest.fixture
def publish(web, monkeypatch, tmp_path):
  """Returns a function that publishes texts as heart, {path: text}."""
  folder, address = web
  monkeypatch.delenv(datasets.DATA_DIR_VARIABLE, raising=False)
  monkeypatch.setattr(datasets, '_CACHE', str(tmp_path / 'cache'))
  monkeypatch.setitem(SOURCES, 'heart', SOURCES['heart'])
  monkeypatch.chdir(tmp_path)
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir()

  def write(texts, checksum=CHECKSUM):
    files = []
    for path, text in texts.items():
      file = File(url=f'{address}/{path}', positive=[2], member='heart.dat')
      files.append(file)
      if text is not None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / path, 'w') as archive:
          archive.writestr('heart.dat', text)
    SOURCES['heart'] = Source(
      shape=(4, 2),
      num_labels=(2, 2),
      terms='CC BY 4.0',
      files=files,
      checksum=checksum,
    )
    return [file.url for file in files]

  return write


def _obtain(data_dir=None):
  lines = []
  datasets.obtain('heart', lines.append, data_dir)
  return '\n'.join(lines)


def _command(*arguments):
  return CliRunner().invoke(app, ['data', *map(str, arguments)])


def test_the_checksum_ignores_the_order_of_rows_and_the_last_bit():
  order = [2, 0, 3, 1]
  assert checksum(INPUTS[order], LABELS[order]) == CHECKSUM
  assert checksum(np.nextafter(INPUTS, np.inf), LABELS) == CHECKSUM
  assert checksum(INPUTS + [[0.0, -0.0]], LABELS.astype(np.uint8)) == CHECKSUM


def test_the_checksum_tells_other_numbers():
  for inputs, labels in (
    (INPUTS[:, ::-1], LABELS),
    (INPUTS, 1 - LABELS),
    (INPUTS[[1, 0, 2, 3]], LABELS),
    (INPUTS + 1e-7, LABELS),
    (INPUTS[:3], LABELS[:3]),
  ):
    assert checksum(inputs, labels) != CHECKSUM


def test_text_is_read_with_commas_or_blanks_and_its_labels_chosen(tmp_path):
  path = tmp_path / 'text.csv'
  path.write_text('id,a,b,y\n1,0.5,2,3\n2, 4 ,5,7\n\n3,1,1,1\n')
  file = File(url='x.csv', positive=[1, 3], first_column=1, header_lines=1)
  inputs, labels = readers.published(path, file)
  np.testing.assert_array_equal(inputs, [[0.5, 2], [4, 5], [1, 1]])
  np.testing.assert_array_equal(labels, [1, 0, 1])


def test_matlab_files_are_read_as_their_authors_read_them(tmp_path):
  path = tmp_path / 'file.mat'
  table = np.column_stack([INPUTS, LABELS + 1])
  counts = np.arange(64.0 * 64).reshape(64, 64)
  scipy.io.savemat(path, {'X': table, 'Y': counts.ravel(order='F')})
  inputs, labels = readers.published(path, File(url='x.mat', positive=[2]))
  np.testing.assert_array_equal(inputs, INPUTS)
  np.testing.assert_array_equal(labels, LABELS)
  found, _ = readers.published(path, File(url='x.mat'))
  np.testing.assert_array_equal(found, counts)


def test_mnist_is_all_digits_or_the_training_fives_and_sixes(tmp_path):
  path = tmp_path / 'mnist.npz'
  pixels = 51 * np.arange(4 * 4, dtype=np.uint8).reshape(4, 2, 2)
  np.savez(
    path, x_train=pixels[:3], y_train=[5, 0, 6], x_test=pixels[3:], y_test=[5]
  )
  inputs, digits = readers.published(path, File(url='x.npz'))
  np.testing.assert_array_equal(inputs, pixels.reshape(4, 4))
  np.testing.assert_array_equal(digits, [5, 0, 6, 5])
  file = File(url='x.npz', digits=[5, 6], positive=[5])
  inputs, labels = readers.published(path, file)
  np.testing.assert_array_equal(inputs, pixels[[0, 2]].reshape(2, 4) / 255.0)
  np.testing.assert_array_equal(labels, [True, False])


def test_a_set_is_written_once_and_then_kept(publish, tmp_path):
  publish({'heart.zip': TEXT})
  said = _obtain()
  assert 'CC BY 4.0' in said
  assert 'written: data/heart.npz (the checksum is the published one)' in said
  assert os.listdir('data') == ['heart.npz']
  inputs, labels = datasets.load('heart')
  np.testing.assert_array_equal(inputs, INPUTS)
  np.testing.assert_array_equal(labels, LABELS)
  before = os.stat('data/heart.npz').st_mtime_ns
  assert 'kept' in _obtain()
  assert os.stat('data/heart.npz').st_mtime_ns == before


def test_a_copy_by_hand_is_kept_if_right_and_refused_if_not(publish, tmp_path):
  publish({})
  table = np.column_stack([INPUTS, LABELS])
  path = tmp_path / 'heart.csv'
  np.savetxt(path, table, delimiter=',', header='a,b,y')
  assert 'kept' in _obtain(tmp_path)
  table[0, 0] += 1
  np.savetxt(path, table, delimiter=',', header='a,b,y')
  with pytest.raises(DataError, match='checksum is.*Move the file away, then'):
    _obtain(tmp_path)
  path.write_text('no numbers')
  with pytest.raises(DataError, match='cannot be read.*Move the file away'):
    _obtain(tmp_path)
  assert path.read_text() == 'no numbers'


@pytest.mark.parametrize(
  'path, text, reason',
  [
    ('x.zip', TEXT.replace('0.1', '0.2'), 'checksum is'),
    ('x.zip', TEXT.replace('0.25 1', '0.25 2'), r'\(1, 3\) rows'),
    ('x.zip', '<html>no such page</html>', 'html'),
    ('none.zip', None, '404'),
    ('cut/x.zip', TEXT, 'IncompleteRead'),
  ],
)
def test_a_source_that_fails_is_reported_and_the_next_one_tried(
  path, text, reason, publish
):
  bad, good = publish({path: text, 'good.zip': TEXT})
  said = _obtain()
  assert re.search(f'failed: {bad} .*{reason}', said)
  assert f'read: {good}' in said
  assert datasets.load('heart')[1].sum() == 2


def test_a_run_without_a_copy_downloads_it_into_the_cache(publish):
  publish({'heart.zip': TEXT})
  np.testing.assert_array_equal(datasets.load('heart')[0], INPUTS)
  assert not os.path.exists('data') and os.listdir('cache') == ['heart.npz']
  publish({})
  np.testing.assert_array_equal(datasets.load('heart')[0], INPUTS)


def test_without_any_source_one_message_says_what_to_do(publish, tmp_path):
  urls = publish({'a.zip': None, 'b.zip': None})
  with pytest.raises(DataError) as error:
    datasets.load('heart', tmp_path)
  command = f'`python -m experiments data heart --data-dir {tmp_path}`'
  for word in (*urls, command, datasets.DATA_DIR_VARIABLE):
    assert word in str(error.value)
  for name, word in ((MNIST, 'dataset: digits'), (COUNTS, 'simulated')):
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(datasets.pooch, 'retrieve', _no_network)
      with pytest.raises(DataError, match=word):
        datasets.load(name)


def _no_network(*_, **__):
  raise OSError('no network')


def test_numbers_without_a_published_checksum_may_not_change_later(publish):
  publish({'heart.zip': TEXT}, None)
  assert f'compare {CHECKSUM}' in _obtain()
  path, recorded = map(pathlib.Path, ('data/heart.npz', 'data/heart.checksum'))
  assert recorded.read_text().strip() == CHECKSUM
  # Rows in another order are the same set.
  np.savez(path, X=INPUTS[::-1], y=LABELS[::-1])
  assert 'kept' in _obtain() and len(datasets.load('heart')[0]) == 4
  np.savez(path, X=INPUTS + np.eye(4, 2) * 1e-6, y=LABELS)
  for read in (_obtain, lambda: datasets.load('heart')):
    with pytest.raises(DataError, match='other numbers than those of the firs'):
      read()
  # A source that changed is refused, too.
  path.unlink()
  publish({'heart.zip': TEXT.replace('0.1', '0.2')}, None)
  with pytest.raises(DataError, match='other numbers than those of the first'):
    _obtain()
  assert not path.exists()
  recorded.write_text('half')
  publish({'heart.zip': TEXT}, None)
  with pytest.raises(DataError, match='not hold 64 hexadecimal digits'):
    _obtain()


def test_a_full_disk_leaves_nothing_behind(publish, monkeypatch):
  publish({'heart.zip': TEXT})

  def full(*_):
    raise OSError(28, 'No space left on device')

  with monkeypatch.context() as patch:
    patch.setattr(datasets.os, 'replace', full)
    with pytest.raises(StorageError, match='No space left.*--data-dir'):
      _obtain()
  assert not os.listdir('data')


@pytest.fixture
def pair(publish, web, monkeypatch):
  """Publishes two files as posteriordb, one of them with a checksum."""
  folder, address = web
  contents = {'first.zip': b'1', 'second.stan': b'22'}
  for name, content in contents.items():
    (folder / name).write_bytes(content)
  registry = {
    'first.zip': hashlib.sha256(b'1').hexdigest(),
    'stan/second.stan': None,
  }
  urls = {name: f'{address}/{name.split("/")[-1]}' for name in registry}

  def files(place):
    return posteriordb.pooch.create(
      place / posteriordb.NAME, address, registry=registry, urls=urls
    )

  monkeypatch.setattr(posteriordb, 'files', files)
  return folder


def test_posteriordb_comes_file_by_file_and_what_came_is_kept(pair):
  assert re.search('posteriordb .*2 files .*not here', _command().stdout)
  (pair / 'second.stan').rename(pair / 'aside')
  result = _command('posteriordb')
  assert result.exit_code == 2
  assert 'Earlier files are kept' in result.stderr
  (pair / 'aside').rename(pair / 'second.stan')
  assert '1 files kept, 1 written' in _command('posteriordb').stdout
  folder = pathlib.Path('data/posteriordb')
  assert (folder / 'first.zip').read_bytes() == b'1'
  assert (folder / 'stan' / 'second.stan').read_bytes() == b'22'
  shutil.rmtree(pair)
  assert '2 files kept, 0 written' in _command('posteriordb').stdout
  assert 'here: 2 files' in _command().stdout


def test_other_bytes_of_posteriordb_are_refused_and_kept(pair):
  (pair / 'first.zip').write_bytes(b'other')
  path = pathlib.Path('data/posteriordb/first.zip')
  assert 'does not match the known hash' in _command('posteriordb').stderr
  assert not path.exists()
  path.write_bytes(b'mine')
  assert 'Move the file away' in _command('posteriordb').stderr
  assert path.read_bytes() == b'mine'
