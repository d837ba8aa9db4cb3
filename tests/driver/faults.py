"""Runs that meet a fault at a random moment and are then asked for again.

  python -m tests.driver.faults KIND

prints a line of JSON for each fault of a kind. A run of `tfpa.sample` has 24
blocks. All runs are forked from one process, which has imported TensorFlow and
not yet used it.
"""

import errno
import functools
import hashlib
import json
import multiprocessing
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.driver import archive
from tfp_adaptive.driver import checkpoint
from tfp_adaptive.driver import diagnosis

_NUM_BLOCKS, _BLOCK_SIZE, _NUM_ADAPTING = 24, 10, 40
# Kind -> number of faults.
COUNTS = {
  'killed': 10,
  'killed in a write': 10,
  'disk full': 10,
  'exception': 6,
  'two writers': 4,
}
_STAGES = ('open', 'write', 'fsync', 'replace', 'after')


class Fault(NamedTuple):
  """What goes wrong, and where.

  Attributes:
    kind: A key of `COUNTS`.
    number: Number of the write or block, or share of the run in [0, 1].
    stage: Stage of a write. For exceptions, whether the user interrupts. For
      two writers, whether the second asks for another run.
  """

  kind: str
  number: float
  stage: Any


def drawn(kind: str, seed: int = 0) -> list[Fault]:
  """Returns the faults of a kind, the same for the same seed."""
  rng, faults = random.Random(f'{kind} {seed}'), []
  for i in range(COUNTS[kind]):
    number, stage = rng.randrange(2 * _NUM_BLOCKS), _STAGES[i % len(_STAGES)]
    if kind == 'killed':
      number = rng.random()
    elif kind in ('exception', 'two writers'):
      number, stage = rng.randrange(_NUM_BLOCKS), bool(i % 2)
    faults.append(Fault(kind, number, stage))
  return faults


def check(fault: Fault, folder: pathlib.Path) -> dict[str, Any]:
  """Runs into a fault and on.

  Args:
    fault: The fault.
    folder: An empty folder.

  Returns:
    What the run that met the fault said (`told`), whether it was killed, how
    many blocks were computed twice, and whether the draws are those of a run
    that met no fault.
  """
  expected, seconds = _whole()
  if fault.kind == 'two writers':
    first = _start(folder, 'first')
    _wait_for_blocks(folder, max(1, fault.number))  # It holds the lock now.
    os.kill(first[0].pid, signal.SIGSTOP)  # Or it may end before the second.
    second = _start(folder, 'second', is_other=fault.stage)
    second[0].join()
    os.kill(first[0].pid, signal.SIGCONT)
    last, met = _finish(first), _finish(second)
  else:
    run = _start(folder, 'met', fault)
    if fault.kind == 'killed':
      _wait_for_blocks(folder, 1)
      time.sleep(fault.number * seconds)
      run[0].kill()
    met = _finish(run)
    last = _finish(_start(folder, 'again'))
  return dict(
    fault._asdict(),
    told=met.get('told', ''),
    is_killed=met['exit_code'] == -signal.SIGKILL,
    num_lost=_num_blocks(folder) - _NUM_BLOCKS,
    same_bits=last.get('draws') == expected,
  )


@functools.cache
def _whole():
  """Returns the draws of a run without a fault, and its seconds."""
  with tempfile.TemporaryDirectory() as folder:
    run = _start(pathlib.Path(folder), 'whole')
    _wait_for_blocks(pathlib.Path(folder), 1)
    start = time.monotonic()
    return _finish(run)['draws'], time.monotonic() - start


def _start(folder, name, fault=None, is_other=False):
  """Starts a run; returns the process and the file that it writes last."""
  outcome = folder / f'{name}.json'
  process = multiprocessing.get_context('fork').Process(
    target=_in_child, args=(folder, outcome, fault, is_other)
  )
  process.start()
  return process, outcome


def _finish(run):
  process, outcome = run
  process.join()
  row = json.loads(outcome.read_text()) if outcome.exists() else {}
  return dict(row, exit_code=process.exitcode)


def _num_blocks(folder):
  """Returns how many blocks the runs in a folder have computed so far."""
  file = folder / 'computed'
  return file.stat().st_size if file.exists() else 0


def _wait_for_blocks(folder, number):
  while _num_blocks(folder) < number:
    time.sleep(0.005)


def _in_child(folder, outcome, fault, is_other):
  """Runs, with a fault or without, and writes what came of it."""
  null = os.open(os.devnull, os.O_WRONLY)
  os.dup2(null, 1)
  os.dup2(null, 2)
  _count_blocks(folder)
  if fault is not None:
    _plant(fault)
  try:
    row = dict(draws=_digest(_draws(folder / 'run', is_other)))
  except BaseException as error:  # What the user would see.
    row = dict(told=f'{type(error).__name__}: {error}')
  aside = outcome.with_suffix('.aside')
  aside.write_text(json.dumps(row))
  os.rename(aside, outcome)


def _draws(folder, is_other):
  scales = tf.constant([1.0, 2.0, 0.3])
  kernel = tfpa.gradient_adaptive_langevin(
    lambda x: -0.5 * tf.reduce_sum((x / scales) ** 2, axis=-1), _NUM_ADAPTING
  )
  return tfpa.sample(
    kernel,
    tf.constant(np.random.default_rng(1).normal(size=[3, 3]), tf.float32),
    num_results=_NUM_BLOCKS * _BLOCK_SIZE - _NUM_ADAPTING,
    seed=(7, 9) if is_other else (7, 8),
    block_size=_BLOCK_SIZE,
    jit_compile=False,
    progress=False,
    checkpoint_dir=folder,
  ).states


def _digest(states):
  return hashlib.sha256(states.tobytes()).hexdigest()


def _count_blocks(folder):
  """Writes a byte for every block that this process computes."""
  save = checkpoint.Checkpoint.save
  computed = os.open(folder / 'computed', os.O_CREAT | os.O_APPEND | os.O_RDWR)

  def counting_save(self, *args):
    os.write(computed, b'.')
    save(self, *args)

  checkpoint.Checkpoint.save = counting_save


def _plant(fault):
  """Plants a fault in this process, which has no other use."""
  if fault.kind == 'killed':  # From outside.
    return
  if fault.kind == 'exception':
    error = KeyboardInterrupt if fault.stage else RuntimeError('planted')
    _at_call(diagnosis, 'accept_rate', fault.number, _raising(error))
    return
  if fault.kind == 'killed in a write':
    act = lambda: os.kill(os.getpid(), signal.SIGKILL)
  else:
    act = _raising(OSError(errno.ENOSPC, 'No space left on device'))
  if fault.stage == 'write':
    archive.open = functools.partial(_half_written, fault.number, act, [])
  elif fault.stage == 'open':
    archive.open = open
    _at_call(archive, 'open', fault.number, act)
  elif fault.stage == 'after':
    _at_call(archive, '_sync_folder', fault.number, act)
  else:
    # Each write syncs the file and then its folder.
    calls_per_write = 2 if fault.stage == 'fsync' else 1
    _at_call(os, fault.stage, calls_per_write * fault.number, act)


def _raising(error):
  def act():
    raise error

  return act


def _at_call(module, name, number, act):
  """Makes a function act at one of its calls, before it does its work."""
  function, calls = getattr(module, name), []

  def acting(*args, **kwargs):
    calls.append(None)
    if len(calls) == number + 1:
      act()
    return function(*args, **kwargs)

  setattr(module, name, acting)


def _half_written(number, act, calls, *args):
  """Opens a file; half of what is written to one of them reaches it."""
  file = open(*args)
  calls.append(None)
  if len(calls) == number + 1:
    write = file.write

    def half(content):
      write(content[: len(content) // 2])
      file.flush()
      act()

    file.write = half
  return file


if __name__ == '__main__':
  for _fault in drawn(*sys.argv[1:]):
    with tempfile.TemporaryDirectory() as _folder:
      print(json.dumps(check(_fault, pathlib.Path(_folder))), flush=True)
