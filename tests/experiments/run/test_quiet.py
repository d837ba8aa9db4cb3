"""What the libraries of TensorFlow log does not reach the terminal."""

import os
import pathlib
import subprocess
import sys

import pytest

from experiments.run import quiet

_HEAD = '0000 00:00:1795413950.353040    3249 port.cc:153] '
_SAID = 'WARNING: All log messages before absl::InitializeLog() is called are'
_LINES = {
  f'I{_HEAD}oneDNN custom operations are on.': False,
  f'W{_HEAD}computation placer already registered': False,
  f'{_SAID} written to STDERR': False,
  f'E{_HEAD}it is broken': True,
  f'F{_HEAD}Check failed': True,
  'WARNING: something else': True,
  'Traceback (most recent call last):': True,
  '': True,
}


def _python(*arguments):
  """Runs Python with nothing said about the level of the log."""
  environment = dict(os.environ)
  environment.pop('TF_CPP_MIN_LOG_LEVEL', None)
  return subprocess.run(
    [sys.executable, *arguments],
    cwd=pathlib.Path(__file__).resolve().parents[3],
    env=environment,
    capture_output=True,
    text=True,
    check=False,
  )


def test_errors_are_passed_on_and_information_is_not():
  told = []
  quiet._pass_on([f'{line}\n'.encode() for line in _LINES], told.append)
  expected = [line for line, is_told in _LINES.items() if is_told]
  assert b''.join(told).decode() == ''.join(f'{line}\n' for line in expected)


@pytest.mark.parametrize('end', ['os.abort()', '1 / 0', 'pass'])
def test_the_last_words_of_a_process_are_told(end):
  script = (
    'import os\n'
    'from experiments.run import quiet\n'
    'with quiet.filtered():\n'
    f'  os.write(2, {list(_LINES)[0]!r}.encode() + b"\\nlast words\\n")\n'
    f'  {end}\n'
    'os.write(2, b"afterwards")\n'
  )
  done = _python('-c', script)
  assert done.stderr.startswith('last words\n')
  assert 'oneDNN' not in done.stderr
  assert ('ZeroDivisionError' in done.stderr) == (end == '1 / 0')
  assert done.stderr.endswith('afterwards') == (end == 'pass')
