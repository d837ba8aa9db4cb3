"""Applies the slips of `mutants.txt` one by one and says which test saw each.

  python -m tests.mutants --output docs/results/mutants.json

Every slip is made in a scratch copy of the working tree, where its tests run,
up to the first that fails. All of those run once more as they are: a test that
is red without a slip catches nothing. A slip that no test sees is a survivor.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

__all__ = ['Mutant', 'apply', 'read', 'run']

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = pathlib.Path(__file__).with_suffix('.txt')
_COMMAND = 'make mutants'
_TIME_LIMIT = 900.0  # Seconds for the tests of one slip.
_FAILED = re.compile(r'^(?:FAILED|ERROR) (.+?)(?: - .*)?$', re.MULTILINE)


class Mutant(NamedTuple):
  """A slip, and the tests of which one should see it."""

  family: str
  what: str
  file: str  # Relative to the root.
  old: str  # Once in the file.
  new: str
  tests: tuple


def read(text=None):
  """Returns the mutants of the list."""
  text = LIST.read_text() if text is None else text
  mutants, family = [], ''
  for number, line in enumerate(text.splitlines(), start=1):
    if line.startswith('## '):
      family = line[3:]
    elif line.strip() and not line.startswith('#'):
      fields = [field.strip() for field in line.split('||')]
      if len(fields) != 5:
        raise ValueError(
          f'Line {number} of {LIST.name} has {len(fields)} fields between '
          '`||`, not 5: what, file, old text, new text, tests.'
        )
      what, file, old, new, tests = fields
      old, new = (t.replace('\\n', '\n') for t in (old, new))
      mutants.append(Mutant(family, what, file, old, new, tuple(tests.split())))
  return mutants


def apply(mutant, text):
  """Returns the text of the file with the slip.

  Raises:
    ValueError: If the text that is replaced is not there exactly once.
  """
  count = text.count(mutant.old)
  if count != 1:
    raise ValueError(
      f'{mutant.what!r}: the text to replace is {count} times in '
      f'{mutant.file}, not once: {mutant.old!r}. Write it anew in {LIST.name}.'
    )
  return text.replace(mutant.old, mutant.new)


def run(mutants, all_tests=False, report=print):
  """Returns a record for each of the mutants.

  Args:
    mutants: List of `Mutant`.
    all_tests: Whether a slip that its own tests do not see is shown to all.
    report: Called with a line for each.

  Raises:
    ValueError: If a text is not once in its file, or a test that saw a slip is
      red without one.
  """
  for mutant in mutants:
    apply(mutant, (ROOT / mutant.file).read_text())
  with tempfile.TemporaryDirectory() as folder:
    tree = pathlib.Path(folder) / 'tree'
    _copy_tree(tree)
    records = []
    for mutant in mutants:
      records.append(_try(tree, mutant, all_tests))
      report(
        '{outcome:8s} {seconds:5.0f} s  {what}  {by}'.format(**records[-1])
      )
    seen_by = sorted({record['by'] for record in records if record['by']})
    code, output, _ = _pytest(tree, seen_by, len(seen_by) * _TIME_LIMIT)
    if seen_by and code:
      raise ValueError(
        'Without any slip these tests do not pass: '
        f'{_FAILED.findall(output) or output[-2000:]}.'
      )
  return records


def _copy_tree(tree):
  """Copies what git knows, as it is in the working tree."""
  listed = subprocess.run(
    ['git', 'ls-files', '--cached', '--others', '--exclude-standard'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  for name in listed.stdout.splitlines():
    if (ROOT / name).is_file():
      (tree / name).parent.mkdir(parents=True, exist_ok=True)
      shutil.copyfile(ROOT / name, tree / name)


def _try(tree, mutant, all_tests):
  """Returns the record of one mutant."""
  path = tree / mutant.file
  before = path.read_text()
  path.write_text(apply(mutant, before))
  try:
    code, output, seconds = _pytest(tree, mutant.tests, _TIME_LIMIT)
    if code == 0 and all_tests:
      code, output, more = _pytest(tree, ['tests'], 20 * _TIME_LIMIT)
      seconds += more
  finally:
    path.write_text(before)
  failed = _FAILED.findall(output)
  # Neither 0, all passed, nor 1, some failed: the slip did not even run.
  outcome = {0: 'survived', 1: 'caught'}.get(code, 'broken')
  return dict(
    outcome=outcome,
    by=failed[0] if failed and code == 1 else '',
    seconds=round(seconds, 1),
    **mutant._asdict(),
  )


def _pytest(tree, tests, time_limit):
  """Returns exit code, output and seconds of tests in a process of their own.

  It is forked from one that has TensorFlow imported, and nothing else.
  """
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload(_PRELOADED)
  start = time.monotonic()
  with tempfile.NamedTemporaryFile('r') as written:
    process = context.Process(
      target=_child, args=(str(tree), list(tests), written.name)
    )
    process.start()
    process.join(time_limit)
    if process.is_alive():
      process.kill()
    process.join()
    output = written.read()
  return process.exitcode, output, time.monotonic() - start


def _child(tree, tests, output):
  """Runs pytest where the imports come from `tree`."""
  descriptor = os.open(output, os.O_WRONLY)
  os.dup2(descriptor, 1)
  os.dup2(descriptor, 2)
  os.chdir(tree)
  os.environ.update(PYTHONPATH=tree, TF_CPP_MIN_LOG_LEVEL='3')
  sys.path.insert(0, tree)
  sys.dont_write_bytecode = True  # A slip may keep size and second of a file.
  for name in [n for n in sys.modules if n.split('.')[0] in _OURS]:
    del sys.modules[name]
  import pytest

  import tfp_adaptive

  assert tfp_adaptive.__file__.startswith(tree), tfp_adaptive.__file__
  options = ['-x', '-rfE', '--tb=no', '-p', 'no:cacheprovider']
  sys.exit(int(pytest.main([*options, *tests])))


# TFP itself imports nothing until it is asked.
_PRELOADED = [
  'tensorflow',
  'tensorflow_probability.python.experimental.mcmc',
  'scipy.stats',
]
_OURS = ('tests', 'tfp_adaptive', 'experiments')


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--only', help='words that the slips to try contain')
  parser.add_argument('--output', type=pathlib.Path, help='JSON; the page too')
  parser.add_argument('--all-tests', action='store_true')
  arguments = parser.parse_args()
  words = arguments.only or ''
  chosen = [m for m in read() if words in ' || '.join(map(str, m))]
  records = run(chosen, arguments.all_tests, lambda s: print(s, flush=True))
  missed = [r['what'] for r in records if r['outcome'] != 'caught']
  print(f'{len(records) - len(missed)} of {len(records)} caught')
  if arguments.output:
    arguments.output.write_text(json.dumps(records, indent=1) + '\n')
    arguments.output.with_suffix('.md').write_text(_page(records))
  sys.exit(f'Not caught: {missed}' if missed else 0)


def _page(records):
  """Returns the records as a page."""
  lines = [
    '# Slips that the tests notice',
    '',
    f'`{_COMMAND}`: each text of `tests/mutants.txt` replaced in a scratch '
    'copy, and the first test that fails then.',
    '',
  ]
  caught = sum(r['outcome'] == 'caught' for r in records)
  lines.append(f'{caught} of {len(records)} caught.')
  family = None
  for record in records:
    if record['family'] != family:
      family = record['family']
      lines += ['', f'## {family}', '', '| slip | file | seen by |']
      lines.append('|---|---|---|')
    file = pathlib.Path(record['file']).name
    by = record['by'].removeprefix('tests/') or record['outcome']
    lines.append(f'| {record["what"]} | `{file}` | `{by}` |')
  return '\n'.join(lines) + '\n'


if __name__ == '__main__':
  main()
