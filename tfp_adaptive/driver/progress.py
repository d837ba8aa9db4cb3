"""Shows the progress of a run, and calls a callback.

On a terminal and in a notebook, progress is one line that is rewritten.
Elsewhere, a line is written every ten seconds. The logger `tfp_adaptive` logs
the stages of a run at the level INFO. Its messages go to stderr if your program
has not set up logging.
"""

import contextlib
import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_BARS = 0.1
_SECONDS_BETWEEN_TICKS = 1.0
_BAR_WIDTH = 24
_MOST_COLUMNS = 100


class Update(NamedTuple):
  """The argument of a callback: how far a run is.

  Attributes:
    phase: 'adapt' or 'sample'.
    step: Steps that each chain has taken in this run of its kernel, warm-up
      included.
    num_steps: All steps of this run of the kernel. The warm-up changes this
      number if the warm-up also learns how many steps make a draw.
    accept_rate: Share of accepted proposals in the last steps, or `None`.
  """

  phase: str
  step: int
  num_steps: int
  accept_rate: float | None


class Reports(NamedTuple):
  """Where progress is reported: on stderr if `is_shown`, and to a callback.

  If the callback returns true for an `Update`, the run ends as after Ctrl-C.
  """

  is_shown: bool = True
  callback: Callable[[Update], bool | None] | None = None


SHOWN, SILENT = Reports(), Reports(is_shown=False)


class Stopped(KeyboardInterrupt):
  """A callback ended the run."""


def say(line: str) -> None:
  """Logs a line."""
  _LOGGER.info('%s', line)


def log_failure(line):
  """Logs a line and the traceback of the present error at level DEBUG."""
  _LOGGER.debug('%s', line, exc_info=True)


class _OnStderr(logging.Handler):
  """Writes to stderr if the program has not set up logging."""

  def emit(self, record):
    if not logging.getLogger().handlers and sys.stderr is not None:
      print(self.format(record), file=sys.stderr, flush=True)


_LOGGER = logging.getLogger('tfp_adaptive')
_LOGGER.setLevel(logging.INFO)
_LOGGER.addHandler(_OnStderr())


class Progress:
  """Reports steps done, acceptance, step rate and time left.

  Use it as a context manager. Steps are counted separately in the warm-up and
  in sampling. The bar and the time left are those of the whole run.
  """

  def __init__(
    self, num_steps, reports=SHOWN, is_kept=True, stream=None, num_discarded=0
  ):
    """Makes a report that has not begun.

    `num_discarded` of the steps are the warm-up. If the bar is not kept, it
    vanishes when the steps end. The steps are then part of a larger run that
    reports itself, and lines are written only if the steps take long.
    """
    # The caller may change `num_steps` while the steps run.
    self.num_steps, self._num_discarded = num_steps, num_discarded
    self._stream = stream or sys.stderr
    # A service, or a program without a console, has no stderr.
    self._callback = reports.callback
    self._is_shown = reports.is_shown and self._stream is not None
    self._is_kept = is_kept
    self._is_bar = self._is_shown and _can_rewrite(self._stream)
    self._num_written = 0  # Characters of the line that is rewritten.
    self._first_step = None

  def __enter__(self):
    self._start = time.monotonic()
    self._last = self._start if not self._is_kept else -float('inf')
    return self

  def __exit__(self, *exc):
    if self._num_written and not self._is_kept:
      self._rewrite('')
      self._put('\r')
    elif self._num_written:
      self._put('\n')
    self._num_written = 0

  @contextlib.contextmanager
  def compiling(self):
    """Shows on a bar the seconds of a compilation that takes over a second."""
    if not self._is_bar:
      yield
      return
    is_done = threading.Event()
    start = time.monotonic()

    def tick():
      while not is_done.wait(_SECONDS_BETWEEN_TICKS):
        self._rewrite(f'compiling {time.monotonic() - start:.0f} s')

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
      yield
    finally:
      is_done.set()
      thread.join()

  def update(self, step, phase, accept_rate):
    """Shows that `step` steps are done; `accept_rate` is None if unknown."""
    if self._callback is not None:
      update = Update(phase, step, self.num_steps, accept_rate)
      if self._callback(update):
        raise Stopped
    if not self._is_shown:
      return
    now = time.monotonic()
    if self._first_step is None:
      self._first_step, self._start = step, now
    is_last = step >= self.num_steps and self._is_kept
    pause = _SECONDS_BETWEEN_BARS if self._is_bar else _SECONDS_BETWEEN_LINES
    if now - self._last < pause and not is_last:
      return
    self._last = now
    rate = (step - self._first_step) / max(now - self._start, 1e-9)
    line = self._count(step)
    if self._is_bar:
      filled = _BAR_WIDTH * step // max(1, self.num_steps)
      line += f' [{"#" * filled}{"." * (_BAR_WIDTH - filled)}]'
    if accept_rate is not None:
      line += f' accept {accept_rate:.2f}'
    if rate:
      left = (self.num_steps - step) / rate
      line += f' {rate:,.0f} steps/s, {left:.0f} s left'
    if self._is_bar:
      self._rewrite(line)
    else:
      self._put(f'{line}\n')

  def _count(self, step):
    first = self._num_discarded
    if first and step <= first:
      return f'warm-up {step}/{first}'
    return f'sampling {step - first}/{self.num_steps - first}'

  def _rewrite(self, line):
    """Writes a line over the previous line, cut to the terminal's width."""
    columns = shutil.get_terminal_size().columns
    line = line[: min(columns, _MOST_COLUMNS) - 1]
    self._put(f'\r{line:{self._num_written or 1}}')
    self._num_written = max(1, len(line))

  def _put(self, text):
    """Writes text. If the stream fails, writing stops, but not the run."""
    if not self._is_shown:
      return
    try:
      self._stream.write(text)
      self._stream.flush()
    except (OSError, ValueError):
      self._is_shown = self._is_bar = False


def _can_rewrite(stream):
  """Returns whether a stream rewrites lines, as terminals and notebooks do."""
  is_notebook = type(stream).__module__.startswith('ipykernel.')
  is_closed = getattr(stream, 'closed', False)
  return is_notebook or (not is_closed and stream.isatty())
