"""Are runs told apart? Restarts of changed and of unchanged runs.

  python -m experiments.studies.restarts [--output docs/results/restarts.json]

Every restart is a process of its own. A finished run is asked for again with
one thing changed: it must be refused. A run that was stopped between two blocks
is continued unchanged: it must end in the bits of a run that was never stopped.
The price is what describing the run costs, in seconds.
"""

import argparse
import atexit
import collections
import concurrent.futures
import contextlib
import functools
import hashlib
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import rich.console

from experiments.studies import restart_runs

__all__ = ['changed', 'summarize', 'unchanged']

_NUM_SAVES = 3  # Blocks of a run before it is stopped.
_BLOCK_SIZE = 5


class _StoppedError(Exception):
  """Stands for whatever stops a process."""


def _main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--output', type=pathlib.Path)
  parser.add_argument('--num-processes', type=int, default=2)
  parser.add_argument('--child', help='For the processes of this command.')
  arguments = parser.parse_args()
  if arguments.child is not None:
    print(json.dumps(_in_child(**json.loads(arguments.child))))
    return
  console = rich.console.Console()
  with concurrent.futures.ThreadPoolExecutor(arguments.num_processes) as pool:
    rows = {
      name: _shown(console, pool.map(check, cases))
      for name, check, cases in (
        ('changed', changed, restart_runs.CHANGES),
        ('unchanged', unchanged, _unchanged_cases()),
      )
    }
  summary = summarize(rows)
  for part in summary:
    console.print({k: v for k, v in part.items() if k != 'cases'})
  if arguments.output is not None:
    arguments.output.write_text(json.dumps(summary, indent=1) + '\n')


def _unchanged_cases():
  """Returns (sampler, changes): every sampler, each mode with some of them."""
  modes = itertools.cycle(
    {'jit_compile': jit_compile, 'dtype': dtype}
    for jit_compile in (False, True)
    for dtype in ('float32', 'float64')
  )
  samplers = [*restart_runs.WITH_DENSITY, *restart_runs.LATENT] * 2
  cases = list(zip(samplers, modes))
  cases += [
    ('langevin', {'data_in': 'tensor'}),
    ('langevin', {'data_in': 'variable'}),
    ('adaptive_metropolis', {'data_in': 'python'}),
    ('kernel_hamiltonian', {'history': 1.0}),
  ]
  return cases


def _shown(console, rows):
  """Returns the rows as a list, shown as they come."""
  done = []
  for row in rows:
    done.append(row)
    console.print(
      f'[{len(done)}] {row["sampler"]} {row["changes"]}: {row["outcome"]}',
      markup=False,
      highlight=False,
    )
  return done


def changed(case):
  """Returns the row of a finished run that is asked for with one change."""
  sampler, changes = case
  # What the change is a change of: where the data lie, for example.
  base = {k: v for k, v in changes.items() if k in ('data_in', 'zeros')}
  with tempfile.TemporaryDirectory() as folder:
    finished, row = _finished(sampler, json.dumps(base))
    if row['outcome'] != 'accepted':
      return dict(row, sampler=sampler, changes=changes)
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    again = _child(sampler=sampler, changes=changes, folder=folder)
  return dict(sampler=sampler, changes=changes, **again)


@functools.cache
def _finished(sampler, changes):
  """Returns the folder of a finished run, and its row; both are kept."""
  folder = tempfile.mkdtemp()
  atexit.register(shutil.rmtree, folder)
  row = _child(sampler=sampler, changes=json.loads(changes), folder=folder)
  return folder, row


def unchanged(case):
  """Returns the row of a run that is stopped and continued unchanged."""
  sampler, changes = case
  with tempfile.TemporaryDirectory() as folder:
    first = _child(
      sampler=sampler, changes=changes, folder=folder, num_saves=_NUM_SAVES
    )
    if first['outcome'] != 'stopped':
      return dict(sampler=sampler, changes=changes, **first)
    again = _child(sampler=sampler, changes=changes, folder=folder)
  if again['outcome'] == 'accepted':
    same = again['draws'] == first['draws']
    again['outcome'] = 'same bits' if same else 'other bits'
  return dict(sampler=sampler, changes=changes, **again)


def summarize(rows):
  """Returns a dict for each part: counts, seconds of describing, the cases.

  Args:
    rows: {part: rows of `changed` or `unchanged`}.
  """
  parts = []
  for name, cases in rows.items():
    prices = sorted(row['seconds'] for row in cases if 'seconds' in row)
    outcomes = collections.Counter(row['outcome'] for row in cases)
    parts.append(
      dict(
        restart=name,
        num=len(cases),
        refused=outcomes['refused'],
        same_bits=outcomes['same bits'],
        others=len(cases) - outcomes['refused'] - outcomes['same bits'],
        median_seconds=prices[len(prices) // 2],
        max_seconds=prices[-1],
        cases=cases,
      )
    )
  return parts


def _child(**arguments):
  """Runs a case in a process of its own."""
  command = [sys.executable, '-m', 'experiments.studies.restarts', '--child']
  root = pathlib.Path(__file__).resolve().parents[2]
  done = subprocess.run(
    [*command, json.dumps(arguments)],
    capture_output=True,
    text=True,
    cwd=root,
    env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='3'),
    check=False,
  )
  if done.returncode:
    return dict(outcome='broken', error=done.stderr[-2000:])
  return json.loads(done.stdout.splitlines()[-1])


def _in_child(sampler, changes, folder, num_saves=None):
  """Runs a case with its checkpoints in `folder`; returns what happened.

  With `num_saves`, the run is stopped after that many blocks, and what it draws
  is computed by another that is not stopped and keeps no checkpoints.
  """
  from tfp_adaptive.driver import checkpoint
  from tfp_adaptive.driver import program_digest
  from tfp_adaptive.driver import run_identity

  seconds = []
  _time_calls(program_digest, 'describe', seconds)
  _time_calls(run_identity, 'describe', seconds)
  row = dict(outcome='accepted')
  try:
    if num_saves is not None:
      with _stopping_after(checkpoint.Checkpoint, num_saves):
        _run(sampler, changes, checkpoint_dir=folder)
    else:
      row['draws'] = _run(sampler, changes, checkpoint_dir=folder)
  except _StoppedError:
    row = dict(outcome='stopped', draws=_run(sampler, changes))
  except checkpoint.CheckpointError as error:
    _, _, difference = str(error).partition('it differs in ')
    row = dict(outcome='refused', message=difference or str(error))
  return dict(row, seconds=round(sum(seconds), 3))


def _run(sampler, changes, **options):
  """Runs a case; returns the digest of its draws and of its trace."""
  import numpy as np
  import tensorflow as tf

  result = restart_runs.run(sampler, changes, block_size=_BLOCK_SIZE, **options)
  digest = hashlib.sha256()
  for part in tf.nest.flatten((result.states, result.trace)):
    digest.update(np.ascontiguousarray(part).tobytes())
  return digest.hexdigest()


def _time_calls(module, name, seconds):
  """Makes a function append the time of its calls, but for those inside."""
  function = getattr(module, name)

  def timed(*args):
    num_before, start = len(seconds), time.perf_counter()
    try:
      return function(*args)
    finally:
      del seconds[num_before:]
      seconds.append(time.perf_counter() - start)

  setattr(module, name, timed)


@contextlib.contextmanager
def _stopping_after(cls, num_saves):
  save, calls = cls.save, []

  def stopping_save(self, *args):
    save(self, *args)
    calls.append(None)
    if len(calls) == num_saves:
      raise _StoppedError

  cls.save = stopping_save
  try:
    yield
  finally:
    cls.save = save


if __name__ == '__main__':
  _main()
