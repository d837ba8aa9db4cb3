"""The command line: what it lists, refuses and reports."""

import pathlib
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.run import store

ROOT = pathlib.Path(__file__).resolve().parents[3]
TINY = str(pathlib.Path(__file__).with_name('tiny.py'))


def _invoke(*arguments):
  done = CliRunner().invoke(app, list(map(str, arguments)))
  return done.exit_code, done.output


def _run(folder, *options):
  return _invoke('run', TINY, '--output', folder, *options)


@pytest.mark.parametrize(
  'options, words',
  [
    (['nothing'], "there is no study 'nothing'"),
    (['nothing.yaml'], 'there is no config file'),
    ([TINY, '--executor', 'slurm'], 'allowed are local, ray'),
    ([TINY, '--shard', '0/2', '--executor', 'ray'], 'Leave one of them out'),
    ([TINY, '--set', 'sale=1'], "did you mean 'scale'"),
    ([TINY, '--output', '/proc/x'], 'cannot be written'),
  ],
)
def test_mistakes_are_refused_before_a_folder_is_made(
  options, words, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  code, output = _invoke('run', *options)
  assert code == 2
  assert words in ' '.join(output.split())
  assert not list(tmp_path.iterdir())


def test_a_run_a_second_run_and_the_report(tmp_path):
  code, output = _run(tmp_path, '--only', 'case 1*', '--seeds', '4:6')
  assert code == 0
  assert '2 finished' in output
  code, output = _run(tmp_path, '--seeds', '4', '--set', 'num_cases=2')
  assert code == 0 and '2 finished' in output
  assert len(store.read(tmp_path)) == 4
  code, output = _invoke('report', tmp_path)
  assert code == 0
  # Cases of the settings of the last run only.
  rows = [line.split(' | ')[:3] for line in output.splitlines()[4:] if line]
  assert [[cell.strip() for cell in row] for row in rows] == [
    [r'| case 0 \| a/b', '4', 'finished'],
    [r'| case 1 \| a/b', '4', 'finished'],
  ]


def test_what_failed_or_is_missing_makes_the_exit_code_one(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('TINY_FAULTS', '{"0 1": "fails"}')
  code, output = _run(tmp_path, '--only', 'case 0*')
  assert code == 1
  assert '1 finished, 1 failed' in output
  assert 'To run these again, add --redo failed.' in output
  assert _run(tmp_path, '--only', 'case 0*')[0] == 1
  assert _run(tmp_path, '--only', 'case 0*', '--seeds', '0')[0] == 0
  # A smoke run has few cases and one seed, but what `--set` says counts.
  assert _invoke('run', TINY, '--smoke')[0] == 0
  assert len(store.read('results/tiny-smoke')) == 1
  assert _invoke('run', TINY, '--smoke', '--set', 'num_cases=2')[0] == 0
  assert len(store.read('results/tiny-smoke')) == 3
  _, output = _invoke('report', 'tiny')
  assert "'results/tiny' is not the folder" in output
  assert 'results/NAME-smoke' in ' '.join(output.split())


@pytest.mark.parametrize(
  'arguments', [['list'], ['run', 'nothing'], ['run', TINY, '--shard', '3/2']]
)
def test_lists_and_mistakes_import_no_tensorflow(arguments):
  script = (
    'import sys; from typer.testing import CliRunner;'
    'from experiments.__main__ import app;'
    f'CliRunner().invoke(app, {arguments!r});'
    'print("tensorflow" in sys.modules)'
  )
  done = subprocess.run(
    [sys.executable, '-c', script], cwd=ROOT, capture_output=True, text=True
  )
  assert done.stdout.strip().splitlines()[-1] == 'False', done.stderr
