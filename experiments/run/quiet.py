"""Imports TensorFlow without the lines that its libraries log.

TF_CPP_MIN_LOG_LEVEL silences only later lines. Here a second process drops
lines of information and warnings and passes on all others at once. The last
lines of an aborted import are therefore shown as well.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator

_LEVEL = 'TF_CPP_MIN_LOG_LEVEL'
_STDERR = 2
# I0000 00:00:1795413950.353040    3249 port.cc:153] oneDNN ...
_LOGGED = re.compile(
  rb'[IW]\d{4} \d\d:\d\d:[\d.]+ +\d+ [^ ]+\] '
  rb'|WARNING: All log messages before absl::InitializeLog\(\)'
)


@contextlib.contextmanager
def filtered() -> Iterator[None]:
  """Drops what TensorFlow logs while it is imported within this context.

  With TF_CPP_MIN_LOG_LEVEL=0 in the environment, everything is shown.
  """
  is_loaded = 'tensorflow' in sys.modules
  if is_loaded or os.environ.setdefault(_LEVEL, '3') == '0':
    yield
    return
  sys.stderr.flush()
  terminal = os.dup(_STDERR)
  reader = subprocess.Popen(
    [sys.executable, '-I', '-S', __file__],
    stdin=subprocess.PIPE,
    start_new_session=True,  # Ctrl-C ends only the import.
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
  """Writes the lines that are not information or warnings of a log."""
  for line in lines:
    if not _LOGGED.match(line):
      write(line)


if __name__ == '__main__':
  _pass_on(sys.stdin.buffer, lambda line: os.write(_STDERR, line))
