"""Imports TensorFlow without what its libraries log while they are loaded.

TF_CPP_MIN_LOG_LEVEL silences only what is logged later. Lines of information
and warnings are dropped, each other line is passed on at once, by a process of
its own: it tells the last words, too, of an import that is aborted.
"""

import contextlib
import os
import re
import subprocess
import sys

__all__ = ['quietly']

_LEVEL = 'TF_CPP_MIN_LOG_LEVEL'
_STDERR = 2
# I0000 00:00:1795413950.353040    3249 port.cc:153] oneDNN ...
_LOGGED = re.compile(
  rb'[IW]\d{4} \d\d:\d\d:[\d.]+ +\d+ [^ ]+\] '
  rb'|WARNING: All log messages before absl::InitializeLog\(\)'
)


def quietly():
  """Imports TensorFlow; of what it logs, errors alone reach the terminal.

  With TF_CPP_MIN_LOG_LEVEL=0 in the environment all is shown.
  """
  if 'tensorflow' in sys.modules:
    return
  if os.environ.setdefault(_LEVEL, '3') == '0':
    return
  with _filtered():
    import tensorflow  # noqa: F401


@contextlib.contextmanager
def _filtered():
  """Leads what this process writes to stderr through `_pass_on`."""
  sys.stderr.flush()
  terminal = os.dup(_STDERR)
  reader = subprocess.Popen(
    [sys.executable, '-I', '-S', __file__],
    stdin=subprocess.PIPE,
    start_new_session=True,  # Ctrl-C is for the import.
  )
  os.dup2(reader.stdin.fileno(), _STDERR)
  reader.stdin.close()
  try:
    yield
  finally:
    sys.stderr.flush()
    os.dup2(terminal, _STDERR)
    os.close(terminal)
    reader.wait()


def _pass_on(lines, write):
  """Writes the lines that are no information or warning of a log."""
  for line in lines:
    if not _LOGGED.match(line):
      write(line)


if __name__ == '__main__':
  _pass_on(sys.stdin.buffer, lambda line: os.write(_STDERR, line))
