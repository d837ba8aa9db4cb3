"""Progress of a run: a rich bar on a terminal, plain lines elsewhere."""

import sys
import time

__all__ = ['Progress']

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
  """Reports steps done, acceptance, step rate and time left.

  Use as a context manager; `update` after every block.
  """

  def __init__(self, num_steps, is_shown=True, stream=None):
    self._num_steps = num_steps
    self._is_shown = is_shown
    self._stream = stream or sys.stderr
    self._bar = None
    self._last_line = 0.0

  def __enter__(self):
    self._start = time.monotonic()
    self._first_step = None
    if self._is_shown and self._stream.isatty():
      self._bar = _rich_bar(self._num_steps)
    if self._bar:
      self._bar.start()
    return self

  def __exit__(self, *exc):
    if self._bar:
      self._bar.stop()

  def update(self, step, phase, accept_rate):
    """Shows that `step` steps are done; `accept_rate` is None if unknown."""
    if not self._is_shown:
      return
    if self._first_step is None:
      self._first_step, self._start = step, time.monotonic()
    now = time.monotonic()
    rate = (step - self._first_step) / max(now - self._start, 1e-9)
    accept = '' if accept_rate is None else f'accept {accept_rate:.2f}'
    if self._bar:
      self._bar.update(
        self._bar.task_ids[0],
        completed=step,
        description=phase,
        accept=accept,
        speed=f'{rate:,.0f} steps/s',
      )
      return
    if (
      step < self._num_steps and now - self._last_line < _SECONDS_BETWEEN_LINES
    ):
      return
    self._last_line = now
    line = f'{phase} {step}/{self._num_steps} {accept}'
    if rate:
      left = (self._num_steps - step) / rate
      line += f' {rate:,.0f} steps/s, {left:.0f} s left'
    self._stream.write(f'{line}\n')
    self._stream.flush()


def _rich_bar(num_steps):
  """Returns a started-less rich progress bar, or None without rich."""
  try:
    from rich import progress  # Optional: the library depends on TFP and numpy.
  except ImportError:
    return None
  bar = progress.Progress(
    progress.TextColumn('{task.description:>8}'),
    progress.BarColumn(),
    progress.MofNCompleteColumn(),
    progress.TextColumn('{task.fields[accept]}'),
    progress.TextColumn('{task.fields[speed]}'),
    progress.TimeRemainingColumn(),
  )
  bar.add_task('adapt', total=num_steps, accept='', speed='')
  return bar
