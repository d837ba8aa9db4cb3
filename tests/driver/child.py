"""Python in a process of its own."""

import os
import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).parents[2]


def run(*arguments, **variables):
  """Returns what `python *arguments` prints, and asserts that it ends well."""
  done = subprocess.run(
    [sys.executable, *map(str, arguments)],
    env=dict(os.environ, PYTHONPATH=str(_ROOT), **variables),
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr[-2000:]
  return done.stdout
