"""Makes the slips of `mutants.txt` one by one and says which go unnoticed.

  python -m tests.mutants [words that the lines contain]

Every slip is made in a scratch copy of the working tree, where its test must
fail. All of these tests must pass there without a slip.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
_SECONDS = 900.0  # Time limit for one test.


class Mutant(NamedTuple):
  """A slip, and the test that should notice it."""

  what: str
  file: str  # Relative to the root.
  old: str  # Stands once in the file.
  new: str
  test: str


def read() -> list[Mutant]:
  """Returns the slips of the list."""
  lines = pathlib.Path(__file__).with_suffix('.txt').read_text().splitlines()
  rows = [line.split('||') for line in lines if line and line[0] != '#']
  return [
    Mutant(*(field.strip().replace('\\n', '\n') for field in row))
    for row in rows
  ]


def apply(mutant: Mutant, text: str) -> str:
  """Returns the text of a file with the slip.

  Args:
    mutant: What to replace.
    text: The file as it is.

  Raises:
    ValueError: If the text to replace is not there exactly once.
  """
  if text.count(mutant.old) != 1:
    raise ValueError(
      f'{mutant.what!r}: the text to replace is {text.count(mutant.old)} times '
      f'in {mutant.file}, not once: {mutant.old!r}.'
    )
  return text.replace(mutant.old, mutant.new)


def run(mutants: list[Mutant]) -> list[str]:
  """Makes each slip and prints its result; returns those that go unnoticed."""
  with tempfile.TemporaryDirectory() as folder:
    tree = pathlib.Path(folder)
    _copy_tree(tree)
    tests = sorted({mutant.test for mutant in mutants})
    if _pytest(tree, tests) != 0:
      raise ValueError('Without a slip some of these tests do not pass.')
    return [mutant.what for mutant in mutants if not _is_noticed(tree, mutant)]


def _copy_tree(tree):
  """Copies the working tree without what git ignores."""
  listed = subprocess.run(
    ['git', 'ls-files', '--cached', '--others', '--exclude-standard'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  for name in filter(lambda n: (ROOT / n).is_file(), listed.stdout.split('\n')):
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / name, tree / name)


def _is_noticed(tree, mutant):
  path = tree / mutant.file
  before, start = path.read_text(), time.monotonic()
  path.write_text(apply(mutant, before))
  code = _pytest(tree, [mutant.test])
  path.write_text(before)
  # 1: a test failed. Another code than 0 or 1 says that none was run.
  outcome = {0: 'survived', 1: 'noticed'}.get(code, 'broken')
  seconds = time.monotonic() - start
  print(f'{outcome:8} {seconds:4.0f} s  {mutant.what}', flush=True)
  return outcome == 'noticed'


def _pytest(tree, tests):
  """Returns the exit code of tests whose imports come from the copy."""
  # A slip may keep the size and the second of a file, so no bytecode is kept.
  done = subprocess.run(
    [sys.executable, '-B', '-m', 'pytest', '-x', '-p', 'no:cacheprovider']
    + tests,
    cwd=tree,
    env=dict(os.environ, PYTHONPATH=str(tree)),
    stdout=subprocess.DEVNULL,
    timeout=len(tests) * _SECONDS,
  )
  return done.returncode


def main():
  words = ' '.join(sys.argv[1:])
  chosen = [mutant for mutant in read() if words in ' || '.join(mutant)]
  unnoticed = run(chosen)
  print(f'{len(chosen) - len(unnoticed)} of {len(chosen)} noticed')
  sys.exit(f'Not noticed: {unnoticed}' if unnoticed or not chosen else 0)


if __name__ == '__main__':
  main()
