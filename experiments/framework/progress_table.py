"""Progress of many tasks at once, in one table: a row for each group."""

import collections
import statistics
import time

import rich.box
import rich.live
import rich.table
import rich.text

__all__ = ['ProgressTable']

# Seconds between two tables where there is no terminal to draw over.
_PAUSE = 60.0
_COUNTED = ('finished', 'failed', 'lost')
_HEADER = ('', 'Waiting', 'Finished', 'Failed', 'Lost', 'Again', 'Seconds')


class ProgressTable:
  """Counts what becomes of tasks and shows it while it is entered."""

  def __init__(self, console):
    self._console = console
    self._live = None
    self._shown_at = time.monotonic()
    self._counts = collections.defaultdict(collections.Counter)
    self._seconds = collections.defaultdict(list)

  def __enter__(self):
    if self._console.is_terminal:
      self._live = rich.live.Live(console=self._console, auto_refresh=False)
      self._live.start()
    return self

  def __exit__(self, *_):
    self._show(is_last=True)
    if self._live is not None:
      self._live.stop()

  def add(self, group):
    """Counts a task that waits for its turn, or has begun."""
    self._counts[group]['waiting'] += 1

  def ended(self, group, status, seconds=None, num_tries=1):
    """Counts a task that has come to its end.

    Args:
      group: as it was added.
      status: 'finished', 'lost', or whatever counts as failed.
      seconds: of its last try, None if it is lost.
      num_tries: how often it was begun.
    """
    counts = self._counts[group]
    counts['waiting'] -= 1
    counts[status if status in _COUNTED else 'failed'] += 1
    counts['again'] += num_tries - 1
    if seconds is not None:
      self._seconds[group].append(seconds)
    self._show()

  def table(self):
    """Returns the rich table."""
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, show_edge=False)
    table.add_column(_HEADER[0], overflow='fold')
    for name in _HEADER[1:]:
      table.add_column(name, justify='right', no_wrap=True)
    for group, counts in self._counts.items():
      seconds = self._seconds[group]
      shown = f'{statistics.median(seconds):.1f}' if seconds else '-'
      numbers = [counts[n] for n in ('waiting', *_COUNTED, 'again')]
      table.add_row(rich.text.Text(group), *map(str, numbers), shown)
    return table

  def _show(self, is_last=False):
    if self._live is not None:
      self._live.update(self.table(), refresh=True)
    elif is_last or time.monotonic() - self._shown_at > _PAUSE:
      self._shown_at = time.monotonic()
      self._console.print(self.table())
