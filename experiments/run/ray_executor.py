"""A Ray cluster as executor: one Ray task for each group of cells.

Ray moves names only: a task reads and writes the folder of the results, which
lies on storage that all nodes share. If a node dies, Ray begins its tasks again
on another node, where they continue from their checkpoints.

This is the only file that imports Ray.
"""

import contextlib
import os
import pathlib
import re
import socket
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from experiments.run import find
from experiments.run import store
from experiments.run.errors import ConfigError
from experiments.run.errors import shortened
from experiments.run.errors import shown
from experiments.run.errors import StorageError

# A task is lost if more of its nodes die one after the other.
MAX_RETRIES = 5
# Seconds within which the head of a cluster must answer.
_REACH = 10.0
_PASSED_ON = ('TFP_ADAPTIVE_DATA_DIR', 'XLA_FLAGS')


class Cluster:
  """Calls a function with every group of cells, each on a free node."""

  def __init__(
    self, address: str | None, device: str | None, say: Callable[[str], None]
  ):
    """Checks that Ray is installed and that a cluster answers.

    Args:
      address: HOST:PORT of the cluster's head. `None` stands for RAY_ADDRESS,
        or else the cluster of this machine.
      device: As in `--device`; 'gpu' asks for one GPU for each task.
      say: Function that shows a line of text.

    Raises:
      ConfigError: If Ray is not installed, or nobody answers.
    """
    self._ray = _imported()
    self._address = address or os.environ.get('RAY_ADDRESS') or 'auto'
    self._num_gpus = 1 if device == 'gpu' else 0
    self._say = say
    with self._reaching():
      _reach(self._address)

  def __call__(self, function: Callable, groups: Sequence, folder: str) -> None:
    """Calls the function; groups that are lost are shown and left missing."""
    groups = list(groups)
    if not groups:
      return
    self._connect()
    try:
      self._run(function, groups, folder)
    finally:
      self._ray.shutdown()  # This ends the running tasks.

  def _run(self, function, groups, folder):
    remote = self._ray.remote(
      num_cpus=1, num_gpus=self._num_gpus, max_retries=MAX_RETRIES
    )(_call)
    waiting = {
      remote.options(name=str(group[0])).remote(function, group, folder): group
      for group in groups
    }
    while waiting:
      (done,), _ = self._ray.wait(list(waiting), num_returns=1)
      group = waiting.pop(done)
      try:
        self._ray.get(done)
      except self._ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ConfigError | StorageError):
          raise error.cause from error  # All tasks would fail.
        self._lost(group, error.cause)
      except self._ray.exceptions.RayError as error:
        self._lost(group, error)

  def _lost(self, group, error):
    text = shortened(f'{type(error).__name__}: {error}', 500)
    self._say(f'{group[0]} ({len(group)} cells): lost by the cluster: {text}')

  def _connect(self):
    """Joins the cluster; its workers import from this checkout."""
    paths = [str(find.ROOT), os.environ.get('PYTHONPATH')]
    variables = {k: os.environ[k] for k in _PASSED_ON if k in os.environ}
    variables['PYTHONPATH'] = os.pathsep.join(filter(None, paths))
    with self._reaching():
      self._ray.init(
        address=self._address,
        runtime_env={'env_vars': variables},
        log_to_driver=False,
        logging_level='error',
      )

  @contextlib.contextmanager
  def _reaching(self) -> Iterator[None]:
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


def _reach(address: str) -> None:
  """Raises OSError if nobody answers. Ray itself would try for minutes."""
  found = re.fullmatch(r'(?:ray://)?([^/]+):([0-9]+)', address)
  if found:
    socket.create_connection(found.groups(), _REACH).close()


def _imported() -> Any:
  try:
    import ray
  except ImportError as error:
    raise ConfigError(
      "--executor ray needs Ray. Run `pip install '.[cluster]'` in the "
      'environment of every node, or write --executor local.'
    ) from error
  return ray


def _call(function, group, folder):
  """Calls the function on a node.

  Raises:
    StorageError: If the folder is not on storage that this node shares.
  """
  if not (pathlib.Path(folder) / store.DESCRIPTION).is_file():
    raise StorageError(
      f'{folder!r} is not there on the node {socket.gethostname()}: the folder '
      'of the results must lie on storage that all nodes share, under one path.'
    )
  function(group)
