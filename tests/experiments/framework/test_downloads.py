"""Data sets are fetched from the first source whose numbers are right."""

import functools
import hashlib
import http.server
import io
import os
import pathlib
import re
import socket
import threading
import zipfile

import numpy as np
import pytest
import rich.console
import scipy.io
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.framework import data
from experiments.framework import data_readers
from experiments.framework import data_sources
from experiments.framework import digit_data
from experiments.framework import downloads
from experiments.framework.data_sources import checksum
from experiments.framework.data_sources import COUNTS
from experiments.framework.data_sources import DOWNLOADS
from experiments.framework.data_sources import File
from experiments.framework.data_sources import SOURCES
from experiments.run.errors import DataError
from experiments.run.errors import StorageError

INPUTS = np.array([[70.0, 1.5], [67.0, -0.25], [57.0, 0.1], [64.0, 0.1]])
LABELS = np.array([1, 0, 1, 0])
TEXT = '70.0 1.5 2\n67.0 -0.25 1\n57.0 0.1 2\n64.0 0.1 1\n'
READ = data_readers.text([2], 'heart.dat')
CHECKSUM = checksum(INPUTS, LABELS)


@pytest.fixture
def published(monkeypatch, tmp_path):
  """Sets what is published as heart: files, checksum."""
  monkeypatch.delenv(data.DATA_DIR_VARIABLE, raising=False)
  monkeypatch.chdir(tmp_path)

  def publish(*files, total=CHECKSUM, read=READ, **changes):
    source = SOURCES['heart']._replace(
      shape=(4, 2),
      openml_id=None,
      num_labels=(2, 2),
      checksum=total,
      files=tuple(File(file, read) for file in files),
      **changes,
    )
    for table in (SOURCES, DOWNLOADS):
      monkeypatch.setitem(table, 'heart', source)

  return publish


def _zip(folder, text=TEXT):
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / 'heart.zip'
  with zipfile.ZipFile(path, 'w') as archive:
    archive.writestr('heart.dat', text)
  return path.as_uri()


def _obtain(name='heart', data_dir=None):
  """Returns what is said."""
  text = io.StringIO()
  downloads.obtain(name, rich.console.Console(file=text), data_dir)
  return text.getvalue()


def _command(*arguments):
  return CliRunner().invoke(app, ['data', *map(str, arguments)])


def test_the_checksum_knows_no_order_of_rows_and_no_last_bit():
  order = [2, 0, 3, 1]
  assert checksum(INPUTS[order], LABELS[order]) == CHECKSUM
  assert checksum(np.nextafter(INPUTS, np.inf), LABELS) == CHECKSUM
  assert checksum(INPUTS + [[0.0, -0.0]], LABELS.astype(np.uint8)) == CHECKSUM


@pytest.mark.parametrize(
  'inputs, labels',
  [
    (INPUTS[:, ::-1], LABELS),
    (INPUTS, 1 - LABELS),
    (INPUTS[[1, 0, 2, 3]], LABELS),
    (INPUTS + 1e-7, LABELS),
    (INPUTS[:3], LABELS[:3]),
    (INPUTS * 1e300, LABELS),
  ],
)
def test_the_checksum_tells_other_numbers(inputs, labels):
  assert checksum(inputs, labels) != CHECKSUM


def test_counts_and_their_transpose_are_one_and_other_orders_are_not():
  counts = np.arange(9).reshape(3, 3) ** 2
  assert checksum(counts) == checksum(counts.T)
  assert checksum(counts) != checksum(counts[::-1])


def test_every_address_is_pinned_and_every_set_has_terms():
  assert set(DOWNLOADS) >= {'heart', 'german', 'mnist', COUNTS}
  for name, source in DOWNLOADS.items():
    assert source.terms, name
    assert source.files or source.openml_id, name
    if name != COUNTS:
      assert sum(source.num_labels) == source.shape[0], name
    if source.checksum is not None:
      assert re.fullmatch('[0-9a-f]{64}', source.checksum), name
    for file in source.files:
      pinned = file.sha256 or re.match(
        r'https://(archive\.ics\.uci\.edu/static/public/\d+/'
        r'|raw\.githubusercontent\.com/[^/]+/[^/]+/[0-9a-f]{40}/)',
        file.address,
      )
      assert pinned, file.address


def test_text_is_read_with_commas_or_blanks_and_its_labels_chosen():
  read = data_readers.text([1, 3], first_column=1, num_header_lines=1)
  inputs, labels = read(b'id,a,b,y\n1,0.5,2,3\n2, 4 ,5,7\n\n3,1,1,1\n')
  np.testing.assert_array_equal(inputs, [[0.5, 2], [4, 5], [1, 1]])
  np.testing.assert_array_equal(labels, [1, 0, 1])


def test_matlab_files_are_read_as_their_authors_read_them():
  file = io.BytesIO()
  table = np.column_stack([INPUTS, LABELS + 1])
  counts = np.arange(64.0 * 64).reshape(64, 64)
  scipy.io.savemat(file, {'X': table, 'Y': counts.ravel(order='F')})
  inputs, labels = data_readers.matlab([2])(file.getvalue())
  np.testing.assert_array_equal(inputs, INPUTS)
  np.testing.assert_array_equal(labels, LABELS)
  np.testing.assert_array_equal(data_readers.counts(file.getvalue())[0], counts)


def test_digits_of_keras_are_the_training_images_then_the_others():
  file = io.BytesIO()
  pixels = np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2)
  np.savez(
    file, x_train=pixels[:2], y_train=[5, 0], x_test=pixels[2:], y_test=[4]
  )
  inputs, digits = data_readers.keras_digits(file.getvalue())
  np.testing.assert_array_equal(inputs, pixels.reshape(3, 4))
  np.testing.assert_array_equal(digits, [5, 0, 4])


def test_a_set_is_written_where_it_is_looked_for(tmp_path, published):
  published(_zip(tmp_path / 'web'))
  said = _obtain()
  assert 'CC BY 4.0' in said
  assert 'written: data/heart.npz (checksum as it should be)' in said
  assert os.listdir(tmp_path / 'data') == ['heart.npz']
  inputs, labels = data.load('heart')
  np.testing.assert_array_equal(inputs, INPUTS)
  np.testing.assert_array_equal(labels, LABELS)


def test_a_good_file_is_kept_and_a_bad_one_is_refused(tmp_path, published):
  published(_zip(tmp_path / 'web'))
  _obtain()
  path = tmp_path / 'data' / 'heart.npz'
  before = path.stat().st_mtime_ns
  assert 'kept' in _obtain()
  assert path.stat().st_mtime_ns == before
  np.savez(path, X=INPUTS + 1, y=LABELS)
  content = path.read_bytes()
  with pytest.raises(DataError, match='move it away, then run `python'):
    _obtain()
  path.write_bytes(b'no archive')
  with pytest.raises(DataError, match='cannot be read.*move it away'):
    _obtain()
  path.write_bytes(content)
  assert path.read_bytes() == content


def test_a_copy_as_csv_is_kept_too(tmp_path, published):
  published()
  table = np.column_stack([INPUTS, LABELS])
  np.savetxt(tmp_path / 'heart.csv', table, delimiter=',', header='a,b,y')
  assert 'kept' in _obtain(data_dir=tmp_path)


@pytest.mark.parametrize(
  'text, reason',
  [
    (TEXT.replace('0.1', '0.2'), 'checksum is'),
    (TEXT.replace(' 1\n', ' 2\n'), r'\(0, 4\)'),
    (TEXT[: len(TEXT) // 2], r'\(2, 2\)'),
    (TEXT.replace('0.1', 'nan'), 'finite'),
    ('<html>no such page</html>', 'html'),
  ],
)
def test_a_source_of_other_numbers_is_said_and_the_next_tried(
  text, reason, tmp_path, published
):
  bad, good = _zip(tmp_path / 'bad', text), _zip(tmp_path / 'good')
  published((tmp_path / 'none.zip').as_uri(), bad, good)
  said = _obtain()
  assert re.search(f'failed: {bad} .*{reason}', said)
  assert 'none.zip (URLError' in said
  assert f'read: {good}' in said
  assert data.load('heart')[1].sum() == 2


def test_openml_is_asked_first(tmp_path, published, monkeypatch):
  published(_zip(tmp_path / 'web'))
  source = DOWNLOADS['heart']._replace(openml_id=53)
  monkeypatch.setitem(DOWNLOADS, 'heart', source)
  table = INPUTS[::-1], np.where(LABELS, 'present', 'absent')[::-1]
  monkeypatch.setattr(data_readers, 'openml', lambda *_: table)
  assert 'read: https://www.openml.org/d/53' in _obtain()


def test_all_sources_failing_is_one_error_that_names_each(tmp_path, published):
  missing = [(tmp_path / f'{k}.zip').as_uri() for k in range(2)]
  published(*missing)
  with pytest.raises(DataError) as error:
    _obtain()
  for word in (*missing, 'URLError', "'data' by hand", 'X [4, 2]', 'y [4]'):
    assert word in str(error.value)
  assert not os.listdir(tmp_path / 'data')


def test_an_unknown_checksum_is_shown_to_be_compared(tmp_path, published):
  published(_zip(tmp_path / 'web'), total=None)
  assert f'no checksum of this set is known yet; compare {CHECKSUM}' in (
    _obtain()
  )


def test_numbers_without_a_published_checksum_may_not_change_later(
  tmp_path, published
):
  published(_zip(tmp_path / 'web'), total=None)
  assert 'other numbers are refused from now on' in _obtain()
  path, recorded = (
    tmp_path / 'data' / f'heart.{kind}' for kind in ('npz', 'checksum')
  )
  assert recorded.read_text().strip() == CHECKSUM
  assert 'kept' in _obtain() and len(data.load('heart')[0]) == 4
  # Rows in another order are the same set.
  np.savez(path, X=INPUTS[::-1], y=LABELS[::-1])
  assert 'kept' in _obtain() and len(data.load('heart')[0]) == 4
  np.savez(path, X=INPUTS + np.eye(4, 2) * 1e-6, y=LABELS)
  for read in (_obtain, lambda: data.load('heart')):
    with pytest.raises(DataError, match='other numbers than the first down'):
      read()
  # A source that changed is refused, too.
  path.unlink()
  published(_zip(tmp_path / 'web', TEXT.replace('0.1', '0.2')), total=None)
  with pytest.raises(DataError, match='other numbers than the first download'):
    _obtain()
  assert not path.exists()
  recorded.write_text('half')
  published(_zip(tmp_path / 'web'), total=None)
  with pytest.raises(DataError, match='not 64 hexadecimal digits'):
    _obtain()


def test_digits_may_not_change_after_the_first_download(tmp_path):
  images = np.arange(3 * 784).reshape(3, 784) % 256
  path, digits = tmp_path / 'mnist.npz', np.array([5, 0, 4])
  np.savez(path, X=images, y=digits)
  data.recorded_path('mnist', path).write_text(checksum(images, digits))
  np.testing.assert_array_equal(
    digit_data.load_digits('mnist', 3, str(tmp_path))[1], digits
  )
  np.savez(path, X=images, y=digits[::-1])
  with pytest.raises(DataError, match='other numbers than the first download'):
    digit_data.load_digits('mnist', 3, str(tmp_path))


def test_a_file_of_another_sha256_than_its_publishers_is_refused(
  tmp_path, published
):
  published(_zip(tmp_path / 'web'))
  file = DOWNLOADS['heart'].files[0]
  path = tmp_path / 'web' / 'heart.zip'
  found = hashlib.sha256(path.read_bytes()).hexdigest()
  console = rich.console.Console(file=io.StringIO())
  good = downloads._from_file(file._replace(sha256=found), console)
  np.testing.assert_array_equal(good[0], INPUTS)
  with pytest.raises(ValueError, match='SHA-256'):
    downloads._from_file(file._replace(sha256='0' * 64), console)


def test_a_full_disk_leaves_nothing_behind(tmp_path, published, monkeypatch):
  published(_zip(tmp_path / 'web'))

  def full(*_):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(os, 'replace', full)
  with pytest.raises(StorageError, match='No space left.*--data-dir'):
    _obtain()
  assert not os.listdir(tmp_path / 'data')


class _Quiet(http.server.SimpleHTTPRequestHandler):
  """Serves files; claims ten bytes more of what is called cut."""

  def log_message(self, *_):
    pass

  def send_header(self, key, value):
    if key == 'Content-Length' and 'cut' in self.path:
      value = str(int(value) + 10)
    super().send_header(key, value)


@pytest.fixture
def server(tmp_path):
  """Address of a server of tmp_path/web."""
  _zip(tmp_path / 'web')
  _zip(tmp_path / 'web' / 'cut')
  handler = functools.partial(_Quiet, directory=str(tmp_path / 'web'))
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as serving:
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield f'http://127.0.0.1:{serving.server_address[1]}'
    serving.shutdown()
    thread.join()


def test_a_download_that_is_cut_off_is_no_download(server, published):
  cut, whole = f'{server}/cut/heart.zip', f'{server}/heart.zip'
  published(f'{server}/none.zip', cut, whole)
  said = _obtain()
  assert 'none.zip (HTTPError: HTTP Error 404' in said
  size = pathlib.Path('web/heart.zip').stat().st_size
  assert f'{cut} (ValueError: {size} of {size + 10} bytes came)' in said
  assert f'read: {whole}' in said


def test_the_folder_is_the_one_given_or_the_variables_or_data(
  tmp_path, published, monkeypatch
):
  published(_zip(tmp_path / 'web'))
  assert 'Data folder: data' in _command('heart').stdout
  monkeypatch.setenv(data.DATA_DIR_VARIABLE, str(tmp_path / 'variable'))
  assert f'{tmp_path / "variable"}' in _command('heart').stdout
  result = _command('heart', '--data-dir', tmp_path / 'given' / 'deep')
  assert result.exit_code == 0
  for folder in ('data', 'variable', 'given/deep'):
    assert (tmp_path / folder / 'heart.npz').is_file()


def test_a_list_says_what_is_here_and_under_which_terms(published, tmp_path):
  published(_zip(tmp_path / 'web'))
  _command('heart')
  result = _command()
  assert result.exit_code == 0
  assert 'heart.npz' in result.stdout
  for name in DOWNLOADS:
    assert name in result.stdout


def test_what_needs_no_download_is_said_without_a_network(monkeypatch):
  monkeypatch.setattr(socket.socket, 'connect', lambda *_: pytest.fail())
  for name in data_sources.BUNDLED:
    result = _command(name)
    assert result.exit_code == 0
    assert 'nothing to download' in result.stdout


def test_wrong_commands_are_refused():
  for arguments, word in (
    (['haert'], "did you mean 'heart'"),
    (['heart', '--all'], 'write either'),
  ):
    result = _command(*arguments)
    assert result.exit_code == 2
    assert word in result.stderr


def test_one_set_that_is_not_to_be_had_keeps_no_other_away(tmp_path, published):
  published(_zip(tmp_path / 'web'))
  gone = DOWNLOADS['heart']._replace(
    files=(File((tmp_path / 'gone.zip').as_uri(), READ),)
  )
  with pytest.MonkeyPatch.context() as patch:
    for name in set(DOWNLOADS) - {'heart'}:
      patch.setitem(DOWNLOADS, name, gone)
    result = _command('--all')
  assert result.exit_code == 2
  others = len(DOWNLOADS) - 1
  assert f'{others} of {others + 1} data sets are missing' in result.stderr
  assert (tmp_path / 'data' / 'heart.npz').is_file()


@pytest.mark.parametrize('name', DOWNLOADS)
def test_a_config_without_its_data_names_the_command(
  name, tmp_path, monkeypatch
):
  def refuse(*_):
    raise OSError('no network')

  monkeypatch.delenv(data.DATA_DIR_VARIABLE, raising=False)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(data_readers, 'openml', refuse)
  load = {
    COUNTS: lambda folder: data.counts_path(folder),
    'mnist': lambda folder: digit_data.load_digits('mnist', 3, folder),
  }.get(name, lambda folder: data.load(name, folder))
  with pytest.raises(DataError, match=f'`python -m experiments data {name}`'):
    load(None)
  given = f'`python -m experiments data {name} --data-dir {tmp_path}`'
  with pytest.raises(DataError, match=re.escape(given)):
    load(str(tmp_path))
