"""Folders of runs: one writer, and nothing lost to a fault."""

import errno
import json
import os

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.framework import config as configs
from experiments.framework import runner
from experiments.framework import storage
from experiments.framework.errors import ConfigError
from experiments.framework.errors import StorageError
from tfp_adaptive.driver import checkpoint as checkpoint_lib

_VALUES = {
  'name': 'tiny',
  'target': {'name': 'spectrum_gaussian', 'variances': [1.0, 4.0]},
  'methods': [{'name': 'gadmala_fast'}],
  'num_chains': 3,
  'num_adaptation_steps': 100,
  'num_results': 100,
  'num_repeats': 1,
  'block_size': 50,
  'jit_compile': False,
}


@pytest.fixture
def tiny(tmp_path):
  path = tmp_path / 'tiny.yaml'
  path.write_text(yaml.safe_dump(_VALUES))
  return path


@pytest.fixture
def folder(tmp_path):
  config = configs.parse_config(_VALUES)
  return storage.RunFolder.create(tmp_path / 'run', config)


def _full(*_, **__):
  raise OSError(errno.ENOSPC, 'No space left on device')


def _invoke(*arguments):
  return CliRunner().invoke(app, ['run', *map(str, arguments)])


def _saved_blocks(folder):
  return sorted(path.name for path in folder.rglob('block_*.npz'))


@pytest.mark.parametrize('status', ['finished', 'failed'])
def test_checkpoints_go_with_a_finished_cell_only(folder, status):
  checkpoint = folder.checkpoint_path(0, 0)
  checkpoint.mkdir(parents=True)
  (checkpoint / 'block_000000.npz').write_bytes(b'draws')
  folder.write_cell(0, 'a', 0, {'status': status}, {})
  assert checkpoint.exists() == (status == 'failed')


def test_a_cell_that_cannot_be_written_keeps_the_one_before_and_checkpoints(
  folder, monkeypatch
):
  checkpoint = folder.checkpoint_path(0, 0)
  checkpoint.mkdir(parents=True)
  folder.write_cell(0, 'a', 0, {'status': 'failed', 'number': 1}, {})
  with monkeypatch.context() as patch:
    patch.setattr(storage.np, 'savez_compressed', _full)
    with pytest.raises(StorageError, match='No space left.*--resume'):
      folder.write_cell(0, 'a', 0, {'status': 'finished'}, {'x': np.zeros(2)})
  assert folder.read_cell(0, 'a', 0)['number'] == 1
  assert checkpoint.exists()
  assert not list(folder.path.rglob('.repeat*'))


@pytest.mark.full
def test_a_run_whose_disk_fills_up_ends_in_words_and_continues(
  tiny, tmp_path, monkeypatch
):
  whole = _invoke(tiny, '--output', tmp_path / 'whole')
  assert whole.exit_code == 0, whole.output
  write, calls = checkpoint_lib._write, []

  def filling(path, content):
    calls.append(path)
    if len(calls) > 6:
      _full()
    write(path, content)

  with monkeypatch.context() as patch:
    patch.setattr(checkpoint_lib, '_write', filling)
    broken = _invoke(tiny, '--output', tmp_path / 'run')
  assert broken.exit_code == 1
  assert 'No space left' in broken.output
  assert 'Traceback' not in broken.output
  assert len(_saved_blocks(tmp_path / 'run')) == 3
  again = _invoke(tiny, '--output', tmp_path / 'run', '--resume')
  assert again.exit_code == 0, again.output
  assert not _saved_blocks(tmp_path / 'run')
  one, two = (
    json.loads((tmp_path / name / 'results.json').read_text())[0]
    for name in ('whole', 'run')
  )
  assert two['is_continued'] and not one['is_continued']
  assert one['ess'] == two['ess'] and one['rhat_max'] == two['rhat_max']


def test_a_second_writer_of_a_run_is_told_who_is_first(tiny, tmp_path):
  output = tmp_path / 'run'
  config = configs.load_config(tiny)
  with storage.run_folder(output, config, resume=False):
    for options in ((), ('--resume',)):
      second = _invoke(tiny, '--output', output, *options)
      assert second.exit_code == 2
      words = ' '.join(second.output.split())
      assert f'in use by process {os.getpid()}' in words
  # What the first left is what the next continues.
  with storage.run_folder(output, config, resume=True) as folder:
    assert folder.config() == config


def test_refusing_a_folder_leaves_no_trace_in_it(tiny, tmp_path):
  config = configs.load_config(tiny)
  mine = tmp_path / 'mine'
  mine.mkdir()
  (mine / 'thesis.txt').write_text('')
  for name, resume in (('mine', False), ('mine', True), ('absent', True)):
    with pytest.raises(ConfigError):
      with storage.run_folder(tmp_path / name, config, resume):
        pytest.fail('opened')
  assert [path.name for path in mine.iterdir()] == ['thesis.txt']
  assert not (tmp_path / 'absent').exists()


def test_an_output_that_cannot_be_written_is_refused_before_computing(
  tiny, tmp_path, monkeypatch
):
  def computed(*_, **__):
    pytest.fail('computed')

  monkeypatch.setattr(runner, 'run_plan', computed)
  (tmp_path / 'file').write_text('')
  refused = _invoke(tiny, '--output', tmp_path / 'file' / 'run')
  assert refused.exit_code == 2
  assert 'cannot be written' in ' '.join(refused.output.split())
