"""What a run writes while it goes: a bar on a terminal, else lines."""

import io
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tfp_adaptive.driver import progress as progress_lib


class _Clock(NamedTuple):
  monotonic: Callable


class _Terminal(io.StringIO):
  def isatty(self):
    return True


class _Notebook(io.StringIO):
  __module__ = 'ipykernel.iostream'


@pytest.fixture(autouse=True)
def clock(monkeypatch):
  """Lets a second pass between two updates; terminals have 80 columns."""
  seconds = iter(range(10_000))
  monkeypatch.setattr(progress_lib, 'time', _Clock(lambda: next(seconds)))
  monkeypatch.setenv('COLUMNS', '80')


def _shown(text):
  """Returns the lines that a reader of a terminal sees in the end."""
  lines = []
  for line in text.split('\n'):
    seen = ''
    for part in line.split('\r'):
      seen = part + seen[len(part) :]
    lines.append(seen.rstrip())
  return lines


def _written(stream, steps=range(0, 101, 10), **options):
  with progress_lib.Progress(
    100, stream=stream, num_discarded=50, **options
  ) as progress:
    for step in steps:
      progress.update(step, 'adapt' if step < 50 else 'sample', 0.5)
  return stream.getvalue() if stream else ''


@pytest.mark.parametrize('kind', [_Terminal, _Notebook])
def test_a_bar_is_one_line_written_anew(kind):
  text = _written(kind())
  assert text.count('\r') == 11 and text.count('\n') == 1
  bar = '#' * 24
  assert _shown(text) == [
    f'sampling 50/50 [{bar}] accept 0.50 10 steps/s, 0 s left',
    '',
  ]


def test_elsewhere_there_are_lines_now_and_then():
  text = _written(io.StringIO(), steps=range(101))
  assert '\r' not in text
  lines = text.splitlines()
  assert len(lines) == 11 and lines[0] == 'warm-up 0/50 accept 0.50'
  assert lines[5] == 'warm-up 50/50 accept 0.50 1 steps/s, 50 s left'
  assert lines[-1] == 'sampling 50/50 accept 0.50 1 steps/s, 0 s left'


@pytest.mark.parametrize('kind', [io.StringIO, _Terminal, _Notebook])
def test_nothing_is_written_where_nothing_is_wanted(kind):
  stream = kind()
  with progress_lib.Progress(
    2, reports=progress_lib.SILENT, stream=stream
  ) as progress:
    with progress.compiling():
      progress.update(1, 'adapt', 0.5)
    progress.update(2, 'sample', 0.5)
  assert stream.getvalue() == ''


def test_a_callback_is_told_and_can_end_the_run():
  told = []

  def callback(update):
    told.append(update)
    return update.step == 2

  reports = progress_lib.Reports(is_shown=False, callback=callback)
  with pytest.raises(progress_lib.Stopped):
    with progress_lib.Progress(9, reports, stream=io.StringIO()) as progress:
      for step in range(9):
        progress.update(step, 'adapt', 0.5)
  assert told == [('adapt', step, 9, 0.5) for step in range(3)]


def test_lines_go_to_stderr_unless_logging_is_set_up(monkeypatch):
  stream, records = io.StringIO(), []
  handler = logging.Handler()
  handler.emit = lambda record: records.append(record.getMessage())
  monkeypatch.setattr(sys, 'stderr', stream)
  root = logging.getLogger()
  monkeypatch.setattr(root, 'handlers', [])
  progress_lib.say('100 %s')
  monkeypatch.setattr(root, 'handlers', [handler])
  progress_lib.say('logged')
  monkeypatch.setattr(sys, 'stderr', None)
  progress_lib.say('and no stream')
  assert stream.getvalue() == '100 %s\n'
  assert records == ['logged', 'and no stream']


def test_the_time_of_a_compilation_is_told_while_it_lasts(monkeypatch):
  monkeypatch.setattr(progress_lib, '_SECONDS_BETWEEN_TICKS', 0.001)
  num_threads, stream = threading.active_count(), _Terminal()
  with progress_lib.Progress(100, stream=stream) as progress:
    with pytest.raises(ZeroDivisionError):
      with progress.compiling():
        while 'compiling 3 s' not in stream.getvalue():
          time.sleep(0.001)
        raise ZeroDivisionError
    assert threading.active_count() == num_threads
    progress.update(1, 'sample', None)
  assert 'compiling' not in ''.join(_shown(stream.getvalue()))


class _Closed(_Terminal):
  """A pipe whose reader has gone after some writes."""

  num_left = 2

  def write(self, text):
    self.num_left -= 1
    if self.num_left < 0:
      raise BrokenPipeError(32, 'Broken pipe')
    return super().write(text)


def test_a_pipe_that_is_closed_ends_the_report_and_no_run(monkeypatch):
  stream = _Closed()
  assert _written(stream).count('/50') == 2
  monkeypatch.setattr(progress_lib.sys, 'stderr', None)
  _written(None)
