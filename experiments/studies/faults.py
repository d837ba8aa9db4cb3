"""What is lost when a run dies, its disk fills up, or two write at once?

  python -m experiments.studies.faults [--seed 0]
    [--output docs/results/faults.json]

A run of 24 blocks, by `tfpa.sample` or by the command `run`, meets a fault at a
random moment and is then asked for again. It must end in the bits of a run that
met none, with all blocks but the one in progress read back, and what stopped it
must be told in words. Every run is a process of its own.
"""

import argparse
import collections
import contextlib
import errno
import functools
import hashlib
import importlib
import json
import multiprocessing
import os
import pathlib
import random
import signal
import tempfile
import time
import traceback

import numpy as np
import rich.console

__all__ = ['Fault', 'check', 'main', 'summarize']

_NUM_BLOCKS, _BLOCK_SIZE, _NUM_ADAPTING = 24, 10, 40
_COUNTS = (
  ('killed', 30),
  ('killed in a write', 30),
  ('disk full', 20),
  ('exception', 20),
  ('two writers', 10),
)
_BARE = 'a traceback'
_WORDS = {'disk full': 'No space left'}
_STAGES = ('open', 'write', 'fsync', 'replace', 'after')


class Fault(
  collections.namedtuple('Fault', ['kind', 'level', 'number', 'stage'])
):
  """What goes wrong, and where.

  Attributes:
    kind: A name in `_COUNTS`.
    level: 'sample', for `tfpa.sample`, or 'command'.
    number: Number of the write or block, or share of the run in [0, 1].
    stage: Of a write; exceptions: whether the user's (`KeyboardInterrupt`);
      two writers: whether the second asks for another run.
  """

  __slots__ = ()


def _draw_faults(seed):
  """Yields the faults, the same for the same seed."""
  rng = random.Random(seed)
  for kind, count in _COUNTS:
    for i in range(count):
      level = ('sample', 'command')[i % 2]
      number = rng.randrange(2 * _NUM_BLOCKS)
      stage = _STAGES[i // 2 % len(_STAGES)]
      if kind == 'killed':
        number = rng.random()
      elif kind in ('exception', 'two writers'):
        number, stage = rng.randrange(_NUM_BLOCKS), bool(i // 2 % 2)
      yield Fault(kind, level, number, stage)


def check(fault, folder):
  """Runs into a fault and on; returns what came of it, a dict.

  Args:
    fault: The `Fault`.
    folder: An empty folder.
  """
  expected = _expected(fault.level)
  if fault.kind == 'two writers':
    first = _start(fault.level, folder, 'first')
    # Not before it holds the lock.
    _wait_for_blocks(folder, max(1, fault.number))
    os.kill(first[0].pid, signal.SIGSTOP)  # Or it may end before the second.
    second = _finish(_start(fault.level, folder, 'second', other=fault.stage))
    os.kill(first[0].pid, signal.SIGCONT)
    last = _finish(first)
    row = dict(is_told=_is_told(second, 'in use by process'), num_lost=0)
  else:
    met = _meet(fault, folder, expected['seconds'])
    last = _finish(_start(fault.level, folder, 'again'))
    row = dict(
      is_told=_is_told(met, _WORDS.get(fault.kind, '')),
      # Those that had to be computed twice.
      num_lost=_num_blocks(folder) - _NUM_BLOCKS,
    )
  return dict(
    fault._asdict(), **row, same_bits=last.get('draws') == expected['draws']
  )


def _is_told(outcome, words):
  told = outcome.get('told', '')
  return words in told and told != _BARE


@functools.cache
def _expected(level):
  """Returns what a run without a fault draws, and its seconds."""
  with tempfile.TemporaryDirectory() as folder:
    start = time.monotonic()
    process = _start(level, pathlib.Path(folder), 'whole')
    _wait_for_blocks(pathlib.Path(folder), 1)
    start = time.monotonic()
    outcome = _finish(process)
    return dict(draws=outcome['draws'], seconds=time.monotonic() - start)


def _meet(fault, folder, seconds):
  """Runs until the fault has stopped it."""
  if fault.kind == 'killed':
    run = _start(fault.level, folder, 'met')
    _wait_for_blocks(folder, 1)
    time.sleep(fault.number * seconds)
    run[0].kill()
    return _finish(run)
  return _finish(_start(fault.level, folder, 'met', fault=fault))


def _start(level, folder, name, fault=None, other=False):
  """Starts a run; returns the process and the file that it writes last."""
  outcome = folder / f'{name}.json'
  process = multiprocessing.get_context('fork').Process(
    target=_in_child, args=(level, folder, outcome, fault, other)
  )
  process.start()
  return process, outcome


def _finish(run):
  process, outcome = run
  process.join()
  return json.loads(outcome.read_text()) if outcome.exists() else {}


def _num_blocks(folder):
  """Returns how many blocks were computed by the runs in a folder so far."""
  file = folder / 'computed'
  return len(file.read_bytes()) if file.exists() else 0


def _wait_for_blocks(folder, number):
  while _num_blocks(folder) < number:
    time.sleep(0.005)


def _in_child(level, folder, outcome, fault, other):
  """Runs, with a fault or without, and writes what came of it."""
  # Nothing of a child reaches the terminal.
  null = os.open(os.devnull, os.O_WRONLY)
  os.dup2(null, 1)
  os.dup2(null, 2)
  row = {}
  _count_blocks(folder)
  with _with_fault(fault):
    run = _sample if level == 'sample' else _command
    try:
      row.update(run(folder, other))
    except BaseException as error:  # What the user would see of it.
      row['told'] = f'{type(error).__name__}: {error}'
      row['traceback'] = traceback.format_exc()[-2000:]
  aside = outcome.with_suffix('.aside')
  aside.write_text(json.dumps(row))
  os.rename(aside, outcome)


def _sample(folder, other):
  """Runs `tfpa.sample`; returns the digest of what it drew."""
  import tensorflow as tf

  import tfp_adaptive as tfpa

  def target(x):
    return -0.5 * tf.reduce_sum((x / [1.0, 2.0, 0.3]) ** 2, axis=-1)

  result = tfpa.sample(
    tfpa.gradient_adaptive_langevin(target, _NUM_ADAPTING),
    tf.constant(np.random.default_rng(1).normal(size=[3, 3]), tf.float32),
    num_results=_NUM_BLOCKS * _BLOCK_SIZE - _NUM_ADAPTING,
    seed=(7, 9) if other else (7, 8),
    block_size=_BLOCK_SIZE,
    jit_compile=False,
    progress=False,
    checkpoint_dir=folder / 'run',
  )
  return dict(draws=hashlib.sha256(result.states.tobytes()).hexdigest())


def _command(folder, other):
  """Runs the command `run`; returns the digest of what it drew."""
  import arviz_base  # noqa: F401
  import xarray
  from typer.testing import CliRunner

  from experiments.__main__ import app

  path, output = folder / f'tiny_{os.getpid()}.yaml', folder / 'run'
  path.write_text(
    json.dumps(
      dict(
        name='tiny',
        target=dict(name='spectrum_gaussian', variances=[1.0, 4.0]),
        methods=[dict(name='gadmala_fast')],
        num_chains=3,
        num_adaptation_steps=_NUM_ADAPTING,
        num_results=_NUM_BLOCKS * _BLOCK_SIZE - _NUM_ADAPTING,
        num_repeats=1,
        block_size=_BLOCK_SIZE,
        jit_compile=False,
        seed=1 if other else 0,
      )
    )
  )
  arguments = ['run', str(path), '--output', str(output)]
  if (output / 'config.yaml').exists() and not other:
    arguments.append('--resume')
  done = CliRunner().invoke(app, arguments)
  if done.exit_code:
    is_bare = not isinstance(done.exception, SystemExit)
    return dict(told=_BARE if is_bare else ' '.join(done.output.split()))
  (cell,) = output.glob('cells/*/repeat_00')
  draws = xarray.open_datatree(cell / 'draws.zarr')['posterior']
  states = np.ascontiguousarray(draws['unconstrained'])
  return dict(draws=hashlib.sha256(states.tobytes()).hexdigest())


def _count_blocks(folder):
  """Writes a byte for every block that this process computes."""
  from tfp_adaptive.driver import checkpoint

  save = checkpoint.Checkpoint.save
  computed = os.open(folder / 'computed', os.O_CREAT | os.O_APPEND | os.O_RDWR)

  def counting_save(self, *args):
    os.write(computed, b'.')
    save(self, *args)

  checkpoint.Checkpoint.save = counting_save


@contextlib.contextmanager
def _with_fault(fault):
  """Plants a fault in this process, which has no other use."""
  if fault is None:
    yield
    return
  from tfp_adaptive.driver import checkpoint
  from tfp_adaptive.driver import diagnosis

  if fault.kind == 'exception':
    error = KeyboardInterrupt if fault.stage else RuntimeError('planted')
    _at_call(diagnosis, 'accept_rate', fault.number, _raising(error))
    yield
    return
  if fault.kind == 'killed in a write':
    act = lambda: os.kill(os.getpid(), signal.SIGKILL)
  else:
    act = _raising(OSError(errno.ENOSPC, 'No space left on device'))
  if fault.stage == 'write':
    checkpoint.open = functools.partial(_half_written, fault.number, act, [])
  elif fault.stage == 'open':
    checkpoint.open = open
    _at_call(checkpoint, 'open', fault.number, act)
  elif fault.stage == 'after':
    _at_call(checkpoint, '_sync_folder', fault.number, act)
  else:
    # Of the file, then of its folder.
    calls_per_write = 2 if fault.stage == 'fsync' else 1
    _at_call(os, fault.stage, calls_per_write * fault.number, act)
  yield


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
  """Opens a file; at one of the calls, half of what is written reaches it."""
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


def main():
  """Checks all faults, shows and writes what came of them."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--output', type=pathlib.Path)
  parser.add_argument('--seed', type=int, default=0)
  arguments = parser.parse_args()
  # Once, for all processes that are forked from this one.
  for name in (
    'tfp_adaptive',
    'experiments.__main__',
    'experiments.framework.runner',
  ):
    importlib.import_module(name)
  console, rows = rich.console.Console(), []
  for fault in _draw_faults(arguments.seed):
    with tempfile.TemporaryDirectory() as folder:
      rows.append(check(fault, pathlib.Path(folder)))
    console.print(f'[{len(rows)}] {rows[-1]}', markup=False, highlight=False)
  summary = summarize(rows)
  for kind in summary:
    console.print({k: v for k, v in kind.items() if k != 'cases'})
  if arguments.output is not None:
    arguments.output.write_text(json.dumps(summary, indent=1) + '\n')


def summarize(rows):
  """Returns a dict for each kind of fault: the counts, and its cases."""
  return [
    dict(
      kind=kind,
      num=len(cases),
      same_bits=sum(row['same_bits'] for row in cases),
      most_blocks_lost=max(row['num_lost'] for row in cases),
      num_told=sum(row['is_told'] for row in cases),
      cases=cases,
    )
    for kind, _ in _COUNTS
    for cases in [[row for row in rows if row['kind'] == kind]]
  ]


if __name__ == '__main__':
  main()
