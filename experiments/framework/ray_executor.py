"""A Ray cluster as executor: one Ray task for each cell or pair.

Ray moves names and records only: a task reads and writes the folder of the
results, which lies on storage that all nodes share. A task whose node dies is
begun again by Ray on another one and goes on from its checkpoints there.

The only file that imports Ray.
"""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import time
import uuid

from experiments.framework import executors
from experiments.framework import outputs
from experiments.framework import progress_table
from experiments.framework.errors import ConfigError
from experiments.framework.errors import shortened
from experiments.framework.errors import shown
from experiments.framework.errors import StorageError

__all__ = ['MAX_RETRIES', 'Cluster']

# Of one task: so many nodes may die under it.
MAX_RETRIES = 5
# Tasks of one worker process: what XLA has compiled stays for as long as it
# lives, and each new one imports TensorFlow.
_MAX_CALLS = 50
# Seconds in which the head of a cluster answers.
_REACH = 10.0
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PASSED_ON = ('TFP_ADAPTIVE_DATA_DIR', 'XLA_FLAGS')


class Cluster(executors.Local):
  """Runs every task on whatever node is free; shows them in one table."""

  is_remote = True

  def __init__(self, address, device, console, folder):
    """Checks that Ray is there, and who answers at its address.

    Args:
      address: host:port of the cluster's head; None: what RAY_ADDRESS says, or
        the cluster of this machine.
      device: as of `--device`; 'gpu' asks for one GPU for each task.
      console: a rich console.
      folder: of the results, absolute.

    Raises:
      ConfigError: if Ray is not installed, or nobody answers.
    """
    self.device = device
    self._ray = _imported()
    self._address = address or os.environ.get('RAY_ADDRESS') or 'auto'
    with self._reaching():
      _reach(self._address)
    self._console = console
    self._folder = folder
    self._attempts = folder / 'attempts'

  def run(self, function, tasks, started, status):
    """As of `Local`, in the order in which they end; `started` is not told."""
    del started
    tasks = list(tasks)
    if not tasks:
      return
    self._connect()
    try:
      with progress_table.ProgressTable(self._console) as table:
        yield from self._run(function, tasks, status, table)
    finally:
      self._ray.shutdown()  # Ends what of this sweep still runs.
      shutil.rmtree(self._attempts, ignore_errors=True)

  def finish(self, missing, finish):
    """As of `Local`; removes the locks of the cells."""
    # Not after an interruption: workers may still be at work then.
    shutil.rmtree(self._folder / 'locks', ignore_errors=True)
    return super().finish(missing, finish)

  def _connect(self):
    """Joins the cluster; its workers import from this checkout."""
    paths = [str(_ROOT), os.environ.get('PYTHONPATH')]
    variables = {k: os.environ[k] for k in _PASSED_ON if k in os.environ}
    variables['PYTHONPATH'] = os.pathsep.join(filter(None, paths))
    variables['TF_CPP_MIN_LOG_LEVEL'] = '3'
    with self._reaching():
      self._ray.init(
        address=self._address,
        runtime_env={'env_vars': variables},
        log_to_driver=False,
        logging_level='error',
      )

  @contextlib.contextmanager
  def _reaching(self):
    """Says in one sentence that there is no cluster, and what to do."""
    try:
      yield
    except (OSError, ValueError, RuntimeError) as error:
      raise ConfigError(
        f'--executor ray: no cluster was reached at {shown(self._address)} '
        f'({shortened(error, 200)}). Start one with `ray start --head` on this '
        'machine and `ray start --address=HOST:PORT` on others, and name it '
        'with --address.'
      ) from error

  def _run(self, function, tasks, status, table):
    """Yields (task, value) as tasks end."""
    shutil.rmtree(self._attempts, ignore_errors=True)
    with outputs.storing(self._attempts):
      self._attempts.mkdir(parents=True)
    remote = self._ray.remote(
      num_cpus=1,
      num_gpus=1 if self.device == 'gpu' else 0,
      max_retries=MAX_RETRIES,
      max_calls=_MAX_CALLS,
    )(attempt)
    waiting = {}
    for task in tasks:
      log = self._attempts / f'{task.number:06d}'
      named = remote.options(name=task.name)
      waiting[named.remote(function, task.argument, log)] = task
      table.add(task.group)
    while waiting:
      (done,), _ = self._ray.wait(list(waiting), num_returns=1)
      task = waiting.pop(done)
      value, seconds, num_tries = self._value(done)
      is_lost = isinstance(value, executors.Lost)
      told = 'lost' if is_lost else status(value)
      table.ended(task.group, told, seconds, num_tries)
      yield task, value

  def _value(self, reference):
    """Returns (value or `Lost`, seconds, number of tries) of an ended task."""
    try:
      return self._ray.get(reference)
    except self._ray.exceptions.RayTaskError as error:
      cause = error.cause
      if isinstance(cause, ConfigError):  # As good as any other task's.
        raise cause from error
      text = f'{type(cause).__name__}: {cause}'
    except self._ray.exceptions.RayError as error:
      text = f'{type(error).__name__}: {error}'
    return executors.Lost(shortened(text, 500)), None, 1


def _reach(address):
  """Raises OSError where nobody answers: Ray itself would ask for minutes."""
  found = re.fullmatch(r'(?:ray://)?([^/]+):([0-9]+)', address)
  if found:
    socket.create_connection(found.groups(), _REACH).close()


def _imported():
  try:
    import ray
  except ImportError as error:
    raise ConfigError(
      "--executor ray needs Ray: pip install '.[cluster]', in the environment "
      'of every node; or write --executor local.'
    ) from error
  return ray


def attempt(function, argument, log):
  """Runs a task on a node; returns (value, seconds, number of tries so far).

  Args:
    function: of the argument.
    argument: of the task.
    log: folder with a file for each try, in the folder of the results.

  Raises:
    StorageError: if that folder is not on storage that this node shares.
  """
  start = time.monotonic()
  if not log.parent.is_dir():
    raise StorageError(
      f'{str(log.parent)!r} is not there on the node {socket.gethostname()}: '
      'the folder of the results must lie on storage that all nodes share, '
      'under one path.'
    )
  with outputs.storing(log):
    log.mkdir(exist_ok=True)
    (log / uuid.uuid4().hex).touch()
  value = function(argument)
  return value, time.monotonic() - start, len(list(log.iterdir()))
