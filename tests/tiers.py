"""Tiers of tests: their limits, and the record of how long each item took.

An item is quick unless it is marked `full` or `nightly`. A run of a tier is one
with `-m`; it fails for each of its items that is above the limit of its tier
by the record and has not been made smaller since. A time of the present run
alone fails nothing: the machine may be loaded. `--durations-file` writes the
record: the items of at least `_SHORTEST` seconds, the others as a sum.
"""

import json
import pathlib

import pytest

__all__ = ['Tiers', 'judge', 'merge', 'read', 'render', 'tier']

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = pathlib.Path(__file__).with_name('durations.json')
LIMITS = dict(quick=8.0, full=40.0)  # Seconds of an item; nightly has none.
OTHERS = 'all others'
_ADVICE = dict(quick='mark it `full`', full='mark it `nightly`')
_SHORTEST = 0.3


def tier(keywords):
  """Returns the tier of an item from the names of its marks."""
  return next((t for t in ('nightly', 'full') if t in keywords), 'quick')


def judge(record, seconds, tiers):
  """Returns one line for each item that does not belong into its tier.

  Args:
    record: Dict from item to seconds, of an earlier run. What it lacks is not
      judged.
    seconds: Dict from item to seconds, of the present run. An item within the
      limit now has been made smaller.
    tiers: Dict from item to tier, of the present run.
  """
  lines = []
  for item in sorted(seconds.keys() & record.keys()):
    limit = LIMITS.get(tiers[item], float('inf'))
    if min(record[item], seconds[item]) > limit:
      lines.append(
        f'{item}: {record[item]:.1f} s in {RECORD.name}, above the '
        f'{limit:.0f} s of the {tiers[item]} tier: '
        f'{_ADVICE[tiers[item]]}, or make it smaller.'
      )
  return lines


def merge(record, seconds, has_file):
  """Returns the record after a run.

  Args:
    record: Dict from item to seconds, and the sum of the others, before.
    seconds: Dict from item to seconds, of the present run.
    has_file: Function of a file's name, whether it exists.

  Returns:
    A dict like `record`. From a file with items in the present run those stay
    alone; from another one all do, as does the sum of the others.
  """
  ran = {_file(item) for item in seconds}
  kept = {
    item: value
    for item, value in record.items()
    if item != OTHERS and _file(item) not in ran and has_file(_file(item))
  }
  others = sum(value for value in seconds.values() if value < _SHORTEST)
  if kept:
    others = record.get(OTHERS, 0.0)
  long = {i: round(v, 2) for i, v in seconds.items() if v >= _SHORTEST}
  return {**kept, **long, OTHERS: round(others, 2)}


def render(record):
  """Returns the text of a record, sorted, one item per line."""
  return json.dumps(record, indent=1, sort_keys=True) + '\n'


def read(path=RECORD):
  """Returns the record of a file, empty where there is none."""
  return json.loads(path.read_text()) if path.exists() else {}


class Tiers:
  """Collects the times of a run; under xdist in the process that reports."""

  def __init__(self, config):
    self._judges = bool(config.option.markexpr)
    self._output = config.option.durations_file
    self._record = read()
    self._seconds, self._tiers, self._lines = {}, {}, []

  def pytest_runtest_logreport(self, report):
    item = report.nodeid
    self._seconds[item] = self._seconds.get(item, 0.0) + report.duration
    self._tiers[item] = tier(report.keywords)

  def pytest_sessionfinish(self, session, exitstatus):
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
      return
    if self._output:
      path = pathlib.Path(self._output)
      seconds = {
        item: value
        for item, value in self._seconds.items()
        if self._tiers[item] in LIMITS
      }
      merged = merge(read(path), seconds, lambda name: (ROOT / name).exists())
      path.write_text(render(merged))
    if self._judges:
      self._lines = judge(self._record, self._seconds, self._tiers)
    if self._lines:
      session.exitstatus = pytest.ExitCode.TESTS_FAILED

  def pytest_terminal_summary(self, terminalreporter):
    for line in self._lines:
      terminalreporter.write_line(line, red=True)


def pytest_addoption(parser):
  parser.addoption(
    '--durations-file', help='where to write how long each item took'
  )


def pytest_configure(config):
  if not hasattr(config, 'workerinput'):
    config.pluginmanager.register(Tiers(config), 'tiers_of_tests')


def _file(item):
  return item.partition('::')[0]
