"""Sets of files are downloaded whole, checked, and kept."""

import hashlib
import io
import re

import pytest
import rich.console
import typer.testing

from experiments.__main__ import app
from experiments.framework import data
from experiments.framework import downloads
from experiments.framework.file_sets import FILE_SETS
from experiments.framework.file_sets import FileSet
from experiments.framework.file_sets import PublishedFile
from experiments.run.errors import DataError


@pytest.fixture
def published(monkeypatch, tmp_path):
  """Publishes two files as posteriordb, one of them with a checksum."""
  web = tmp_path / 'web'
  web.mkdir()
  monkeypatch.delenv(data.DATA_DIR_VARIABLE, raising=False)
  monkeypatch.chdir(tmp_path)
  files = []
  for name, content in (('first.zip', b'1'), ('stan/second.stan', b'22')):
    path = web / name.replace('/', '-')
    path.write_bytes(content)
    sha256 = (
      hashlib.sha256(content).hexdigest() if '1' in str(content) else None
    )
    files.append(PublishedFile(name, path.as_uri(), sha256))
  monkeypatch.setitem(FILE_SETS, 'posteriordb', FileSet(tuple(files), 'none'))
  return web


def _obtain():
  text = io.StringIO()
  downloads.obtain('posteriordb', rich.console.Console(file=text))
  return text.getvalue()


def test_files_are_written_once_and_then_kept(published, tmp_path):
  assert '0 files kept, 2 written' in _obtain()
  folder = tmp_path / 'data' / 'posteriordb'
  assert (folder / 'first.zip').read_bytes() == b'1'
  assert (folder / 'stan' / 'second.stan').read_bytes() == b'22'
  for path in published.iterdir():
    path.unlink()
  assert '2 files kept, 0 written' in _obtain()


def test_what_came_before_a_failure_is_kept(published, tmp_path):
  second = published / 'stan-second.stan'
  second.rename(published / 'aside')
  with pytest.raises(DataError, match='could not be read.*run the command aga'):
    _obtain()
  (published / 'aside').rename(second)
  assert '1 files kept, 1 written' in _obtain()


def test_other_bytes_are_refused_from_the_web_and_from_the_folder(
  published, tmp_path
):
  (published / 'first.zip').write_bytes(b'other')
  with pytest.raises(DataError, match='SHA-256.*other numbers'):
    _obtain()
  assert not (tmp_path / 'data' / 'posteriordb' / 'first.zip').exists()
  (published / 'first.zip').write_bytes(b'1')
  _obtain()
  (tmp_path / 'data' / 'posteriordb' / 'first.zip').write_bytes(b'other')
  with pytest.raises(DataError, match='SHA-256.*Move the file away'):
    _obtain()


def test_the_command_lists_and_fetches_a_set(published):
  runner = typer.testing.CliRunner()
  assert re.search(
    r'posteriordb.*2 files.*no', runner.invoke(app, ['data']).stdout
  )
  assert runner.invoke(app, ['data', 'posteriordb']).exit_code == 0
  assert re.search(
    r'posteriordb.*2 files.*2 files', runner.invoke(app, ['data']).stdout
  )


def test_every_file_of_posteriordb_is_at_a_commit():
  files = FILE_SETS['posteriordb'].files
  assert len(files) == 19 + 34 + 28
  for file in files:
    assert re.match(
      r'https://raw\.githubusercontent\.com/stan-dev/posteriordb/[0-9a-f]{40}/',
      file.address,
    )
    is_program = file.name.startswith('stan/')
    assert is_program or re.fullmatch('[0-9a-f]{64}', file.sha256)
