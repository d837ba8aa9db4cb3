"""Feeds broken inputs to what reads them, and counts what goes wrong.

A fault is an exception that is not one of the project's own, more than five
seconds of the processor or thirty of the clock, a message of more than 600
characters, a sudden need of memory, an input that should have been refused, or
one that should not.
"""

import contextlib
import os
import pathlib
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from typing import NamedTuple

import numpy as np
import rich.table

from experiments.fuzz import configs
from experiments.fuzz import data_files
from experiments.fuzz.case import ACCEPT
from experiments.fuzz.case import REFUSE
from experiments.run.errors import ConfigError
from experiments.run.errors import DataError
from experiments.run.errors import DeviceError

__all__ = ['FAULTS', 'KINDS', 'Outcome', 'one', 'run', 'summary', 'to_rich']

# What makes an input, and its share of them.
KINDS = {'configs': configs, 'data': data_files}
_SHARES = (0.65, 0.35)
FAULTS = (
  'traceback',
  'hang',
  'long message',
  'memory',
  'wrong accept',
  'wrong refusal',
)
# Of the processor: another process on the same machine makes no fault.
MAX_SECONDS = 5.0
MAX_CLOCK = 30.0
MAX_MESSAGE = 600
_MAX_KILOBYTES = 400_000


class Outcome(NamedTuple):
  """What became of one input."""

  number: int
  kind: str
  mutation: str
  given: str
  is_refused: bool
  # The message of the refusal, the exception, or what is wrong.
  message: str
  # Of the processor.
  seconds: float
  # Of `FAULTS`.
  faults: tuple


class _Hang(BaseException):
  """Its time is over."""


def run(seed, num):
  """Returns the outcomes of inputs 0, ..., num - 1 of a seed."""
  return [one(seed, number) for number in range(num)]


def one(seed, number):
  """Returns the `Outcome` of one input; the same whenever it is asked for."""
  rng = np.random.default_rng([seed, number])
  kind = list(KINDS)[int(rng.choice(len(KINDS), p=_SHARES))]
  with tempfile.TemporaryDirectory(prefix='fuzz-') as folder:
    case = KINDS[kind].make(rng, pathlib.Path(folder))
    memory = _peak()
    start = time.process_time()
    result, message = _attempt(case.load)
    seconds = time.process_time() - start
    faults = list(_faults(case.expected, result, message))
    if seconds > MAX_SECONDS and 'hang' not in faults:
      faults.append('hang')
    if _peak() - memory > _MAX_KILOBYTES:
      faults.append('memory')
  return Outcome(
    number,
    kind,
    case.mutation,
    case.given,
    result == 'refused',
    message,
    seconds,
    tuple(faults),
  )


def _attempt(load):
  """Returns ('read', 'wrong', 'refused', 'hang' or 'traceback', message)."""
  try:
    with _alarm(), warnings.catch_warnings(), _silent():
      warnings.simplefilter('ignore')
      return _loaded(load)
  except _Hang as error:
    # Of what it broke off nothing else is shown: that may take as long.
    return 'hang', ''.join(traceback.format_tb(error.__traceback__)[-2:])


def _loaded(load):
  try:
    wrong = load()
  except (ConfigError, DataError, DeviceError) as error:
    return 'refused', str(error)
  except (Exception, SystemExit) as error:
    where = ''.join(traceback.format_tb(error.__traceback__)[-2:])
    return 'traceback', f'{type(error).__name__}: {str(error)[:300]}\n{where}'
  return ('read', '') if wrong is None else ('wrong', wrong)


def _faults(expected, result, message):
  """Yields what is wrong with the result."""
  if result in ('hang', 'traceback'):
    yield result
  if result == 'refused' and len(message) > MAX_MESSAGE:
    yield 'long message'
  if result == 'wrong' or (result == 'read' and expected == REFUSE):
    yield 'wrong accept'
  if result == 'refused' and expected == ACCEPT:
    yield 'wrong refusal'


@contextlib.contextmanager
def _alarm():
  """Raises `_Hang` in the body when its time is over."""

  def ring(*unused):
    raise _Hang

  clocks = (
    (signal.SIGPROF, signal.ITIMER_PROF, MAX_SECONDS),
    (signal.SIGALRM, signal.ITIMER_REAL, MAX_CLOCK),
  )
  before = [signal.signal(number, ring) for number, _, _ in clocks]
  try:
    for _, timer, seconds in clocks:
      # Again and again: a reader may swallow the first. Not at once: what it
      # leaves behind may take a second to clear away.
      signal.setitimer(timer, seconds, seconds)
    yield
  finally:
    for (number, timer, _), handler in zip(clocks, before):
      signal.setitimer(timer, 0)
      signal.signal(number, handler)


@contextlib.contextmanager
def _silent():
  """Sends what the body prints to nowhere."""
  with open(os.devnull, 'w', encoding='utf-8') as nowhere:
    with contextlib.redirect_stdout(nowhere):
      yield


def _peak():
  """Returns the most memory that this process ever had, kilobytes."""
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return peak // 1024 if sys.platform == 'darwin' else peak


def summary(outcomes):
  """Returns {kind: counts} of outcomes, and the same of them all."""
  return {
    kind: _counts([o for o in outcomes if kind in (o.kind, 'all')])
    for kind in [*KINDS, 'all']
  }


def _counts(outcomes):
  refused = [o for o in outcomes if o.is_refused]
  return {
    'inputs': len(outcomes),
    'mutations': len({o.mutation for o in outcomes}),
    'refused': len(refused),
    'accepted': sum(not o.is_refused and not o.faults for o in outcomes),
    **{f: sum(f in o.faults for o in outcomes) for f in FAULTS},
    'longest message': max((len(o.message) for o in refused), default=0),
    'slowest seconds': round(max((o.seconds for o in outcomes), default=0), 2),
  }


def to_rich(seed, outcomes):
  """Returns a table of the counts by kind."""
  counts = summary(outcomes)
  title = f'Broken inputs of seed {seed}'
  table = rich.table.Table(title=title, title_justify='left')
  table.add_column('')
  for kind in counts:
    table.add_column(kind, justify='right')
  for name in counts['all']:
    values = [counts[kind][name] for kind in counts]
    style = 'red' if name in FAULTS and any(values) else None
    table.add_row(name, *map(str, values), style=style)
  return table
