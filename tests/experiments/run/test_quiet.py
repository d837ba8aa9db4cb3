"""What the libraries of TensorFlow log does not reach the terminal."""

import os
import pathlib
import subprocess
import sys

import pytest

from experiments.run import quiet

_HEAD = '0000 00:00:1795413950.353040    3249 port.cc:153] '
_SAID = 'WARNING: All log messages before absl::InitializeLog() is called are'
_SHOWN = [
  f'E{_HEAD}it is broken',
  f'F{_HEAD}Check failed',
  'WARNING: something else',
  'Traceback (most recent call last):',
  '',
]
_DROPPED = [
  f'I{_HEAD}oneDNN custom operations are on.',
  f'W{_HEAD}computation placer already registered',
  f'{_SAID} written to STDERR',
]


def test_errors_are_passed_on_and_information_is_not():
  told = []
  lines = [f'{line}\n'.encode() for line in _SHOWN]
  dropped = [f'{line}\n'.encode() for line in _DROPPED]
  quiet._pass_on([*dropped, *lines, *dropped], told.append)
  assert told == lines


@pytest.mark.parametrize('end', ['os.abort()', '1 / 0', 'pass'])
def test_the_last_words_of_a_process_are_told(end):
  script = (
    'import os\n'
    'from experiments.run import quiet\n'
    'with quiet.filtered():\n'
    f'  os.write(2, {_DROPPED[0]!r}.encode() + b"\\nlast words\\n")\n'
    f'  {end}\n'
    'os.write(2, b"afterwards")\n'
  )
  variables = {k: v for k, v in os.environ.items() if k != quiet._LEVEL}
  done = subprocess.run(
    [sys.executable, '-c', script],
    cwd=pathlib.Path(__file__).resolve().parents[3],
    env=variables,
    capture_output=True,
    text=True,
  )
  assert done.stderr.startswith('last words\n')
  assert 'oneDNN' not in done.stderr
  assert ('ZeroDivisionError' in done.stderr) == (end == '1 / 0')
  assert done.stderr.endswith('afterwards') == (end == 'pass')
