"""What the command line says of who runs the cells, checked."""

import pathlib
from typing import NamedTuple
from typing import Optional

from experiments.framework import executors
from experiments.framework import shards
from experiments.framework.errors import ConfigError
from experiments.framework.errors import shown

__all__ = ['Choice', 'choose']

_NAMES = ('local', 'ray')


class Choice(NamedTuple):
  """Who runs the cells, as it was given.

  Attributes:
    shard: 'i/n' or None.
    executor: 'local' or 'ray'.
    address: of a Ray cluster, or None.
    device: as of `--device`.
  """

  shard: Optional[str] = None
  executor: str = 'local'
  address: Optional[str] = None
  device: Optional[str] = None

  def device_here(self):
    """Returns the device of this process, which may run no cell itself."""
    if self.executor != 'local' and self.device in ('gpu', 'tpu'):
      return None
    return self.device

  def check(self, output):
    """Refuses what does not go together, before anything is imported.

    Args:
      output: folder that was named, or None.

    Returns:
      The `Shard`, or None.
    """
    if self.executor not in _NAMES:
      raise ConfigError(
        f'--executor: {shown(self.executor)} was given; allowed are '
        f'{", ".join(_NAMES)}.'
      )
    if self.address is not None and self.executor != 'ray':
      raise ConfigError(
        f'--address: {shown(self.address)} was given, but only a Ray cluster '
        'has one; write --executor ray, too.'
      )
    if self.shard is None:
      return None
    shard = shards.parse(self.shard)
    if self.executor != 'local':
      raise ConfigError(
        f'--shard: {shown(self.shard)} was given with --executor '
        f'{self.executor}, which divides the cells itself; leave one out.'
      )
    if output is None:
      raise ConfigError(
        f'--shard: {shown(self.shard)} was given without --output; name the '
        'folder that all shards write to.'
      )
    return shard


def choose(choice, console, folder):
  """Returns the executor of a whole run; a shard has `executors.Shared`.

  Args:
    choice: the `Choice`, checked.
    console: a rich console, for the table of a cluster.
    folder: of the results.
  """
  if choice.executor == 'local':
    return executors.Local()
  from experiments.framework import ray_executor

  return ray_executor.Cluster(
    choice.address, choice.device, console, pathlib.Path(folder).resolve()
  )
