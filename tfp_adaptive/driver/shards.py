"""Divides chains into shards on devices, and merges what the shards learn.

The chains of a run are divided evenly, by their first axis. A shard runs the
block that all chains would run, on its device. Each device has its own thread.
Shards on the same device run one after another.

What shards have learned is merged by the rules of `core/merging.py`. At first
shards are merged after every step, because the noise of a shard's few chains
would mislead its adaptation. Later the intervals grow. After the discarded
steps, devices exchange nothing.

Draws depend on the number of shards, not on where they run.
"""

import concurrent.futures

import tensorflow as tf

from tfp_adaptive.core import merging
from tfp_adaptive.core import random
from tfp_adaptive.core import stack

_LONGEST_INTERVAL = 256  # Most steps between two merges.
_GROWTH = 4  # After n steps, the next merge is n / 4 steps later, at least 1.
_SALT = 1_000_003  # Separates the seeds of shards from the seeds of steps.


def device_names(devices):
  """Returns the names of the devices of all shards as a list, or `None`."""
  if devices is None:
    return None
  found = [d.name for d in tf.config.list_logical_devices()]
  if isinstance(devices, str) and devices == 'all':
    gpus = [name for name in found if ':GPU:' in name]
    return gpus or [name for name in found if ':CPU:' in name]
  is_list = isinstance(devices, (list, tuple)) and devices
  if not is_list or not all(isinstance(name, str) for name in devices):
    raise ValueError(
      f"`devices` must be None, 'all' or a list of names, one for each shard, "
      f"but got {devices!r}. Write for example `devices=['/GPU:0', '/GPU:1']`; "
      'a name may occur twice.'
    )
  names = []
  for given in devices:
    ends = f':{given.lstrip("/").removeprefix("device:")}'.upper()
    match = [name for name in found if name.upper().endswith(ends)]
    if not match:
      raise ValueError(
        f'`devices`: TensorFlow has no device {given!r}, but '
        f'{", ".join(found)}. More CPUs are made by '
        '`tf.config.set_logical_device_configuration`, before any op.'
      )
    names.append(match[0])
  return names


def next_merge(step):
  """Returns the first step after `step` at which shards are merged, an int."""
  at = 0
  while at <= step:
    at += min(max(1, at // _GROWTH), _LONGEST_INTERVAL)
  return at


class Sharded:
  """A `blocks.Block` whose chains are divided among devices."""

  def __init__(
    self, kernel, program, devices, num_adapting, block_size, structure
  ):
    """Finds the chain axis of each result.

    `program` is the `blocks.Block` for any number of chains, and can hold
    `block_size` results. Only blocks of adapting steps are merged. `structure`
    is (state, kernel_results, recorded row) of all chains.
    """
    state, results, row = structure
    self._program, self._num_adapting = program, num_adapting
    self._devices, self._block_size = list(devices), block_size
    _check_divides(state, results, len(self._devices))
    self._state_axes = tf.nest.map_structure(lambda _: 0, state)
    part = self._split(state, self._state_axes)[0]
    self._result_axes = tf.nest.map_structure(
      _chain_axis, results, kernel.bootstrap_results(part)
    )
    self._row_shapes = tf.nest.map_structure(lambda leaf: leaf.shape, row)

  def describe(self, state, results, seed, *counts):
    """Returns the `Program` of one shard."""
    part = self._parts(state, results)[0]
    return self._program.describe(*part, seed, *counts)

  def run(self, state, results, seed, first_step, num_results, thin):
    """Runs a block on every shard; at its end, merges what was learned."""
    counts = int(first_step), int(num_results), int(thin)
    parts, seeds = self._parts(state, results), self._seeds(seed)
    outcomes = [None] * len(parts)

    def run_on(device):
      with tf.device(device):
        for shard, part in enumerate(parts):
          if self._devices[shard] == device:
            outcomes[shard] = self._run_one(*part, seeds[shard], *counts)

    with concurrent.futures.ThreadPoolExecutor() as pool:
      # `list` raises the error of a thread.
      list(pool.map(run_on, dict.fromkeys(self._devices)))
    return self._joined(outcomes, results, counts[0] < self._num_adapting)

  def _run_one(self, state, results, seed, first_step, num_results, thin):
    """Runs one shard, in blocks that fit the program."""
    state, results, seed = tf.nest.map_structure(
      tf.identity, (state, results, seed)
    )
    recorded = []
    for done in range(0, max(num_results, 1), self._block_size):
      count = min(self._block_size, num_results - done)
      counts = (first_step + done * thin, count, thin)
      state, results, rows = self._program.run(
        state, results, seed, *(tf.constant(n, tf.int32) for n in counts)
      )
      recorded.append(tf.nest.map_structure(lambda a, n=count: a[:n], rows))
    rows = tf.nest.map_structure(lambda *r: tf.concat(r, axis=0), *recorded)
    return state, results, rows

  def _seeds(self, seed):
    count = len(self._devices)
    if count == 1:
      return [seed]
    return [random.fold_in(seed, _SALT + shard) for shard in range(count)]

  def _parts(self, state, results):
    """Returns (state, results) of every shard, a list."""
    return list(
      zip(
        self._split(state, self._state_axes),
        self._split(results, self._result_axes),
      )
    )

  def _split(self, structure, axes):
    """Returns the structure for every shard; axis -1 means no chain axis."""
    count = len(self._devices)
    leaves = [
      [leaf] * count if axis < 0 or count == 1 else tf.split(leaf, count, axis)
      for leaf, axis in zip(tf.nest.flatten(structure), tf.nest.flatten(axes))
    ]
    return [tf.nest.pack_sequence_as(structure, part) for part in zip(*leaves)]

  def _joined(self, outcomes, before, is_adapting):
    """Returns (state, results, recorded) of all chains."""
    with tf.device('/CPU:0'):
      states, results, rows = (
        [tf.nest.map_structure(tf.identity, part) for part in column]
        for column in zip(*outcomes)
      )
      row_axes = tf.nest.map_structure(
        lambda leaf, shape: _axis(leaf.shape[1:], shape, 1),
        rows[0],
        self._row_shapes,
      )
      shared = merging.merged(results, before) if is_adapting else results[0]
      of_rows = tf.nest.map_structure(
        lambda axis, *leaves: merging.mean(leaves) if axis < 0 else leaves[0],
        row_axes,
        *rows,
      )
      return (
        _concatenated(states, self._state_axes, states[0]),
        _concatenated(results, self._result_axes, shared),
        _concatenated(rows, row_axes, of_rows),
      )


def _concatenated(parts, axes, shared):
  """Joins leaves along their chain axes; others are those of `shared`."""
  return tf.nest.map_structure(
    lambda axis, of_all, *leaves: (
      of_all if axis < 0 else tf.concat(leaves, axis)
    ),
    axes,
    shared,
    *parts,
  )


def _chain_axis(leaf, of_part):
  return _axis(of_part.shape, leaf.shape, 0)


def _axis(of_part, of_all, offset):
  """Returns the axis that is shorter in a shard, plus an offset; or -1."""
  pairs = zip(of_part.as_list(), of_all.as_list(), strict=True)
  differing = [
    axis for axis, (part, whole) in enumerate(pairs) if part != whole
  ]
  return differing[0] + offset if differing else -1


def _check_divides(state, results, num_shards):
  log_prob = stack.target_log_prob(results)
  if num_shards > 1 and tf.is_tensor(log_prob) and not log_prob.shape.rank:
    shown = ', '.join(str(part.shape) for part in tf.nest.flatten(state))
    raise ValueError(
      f'`devices` has {num_shards} names, but the log density of the start '
      f'{shown} is one number, so there is one chain, which cannot be '
      'divided. Start with the shape [chains, ...] and a density of the shape '
      '[chains], or leave out `devices`.'
    )
  for part in tf.nest.flatten(state) if num_shards > 1 else ():
    count = part.shape[0] if part.shape.rank else 0
    if not count or count % num_shards:
      raise ValueError(
        f'`devices` has {num_shards} names, but a part of the start has shape '
        f'{part.shape}: its first axis, chains, must divide evenly. Start '
        f'{num_shards}, {2 * num_shards}, ... chains.'
      )
