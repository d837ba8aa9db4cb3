"""Keeps draws on disk, for runs with more draws than memory holds.

  draws.zarr   posterior and sample_stats, [chain, draw, event...]: an ArviZ
               DataTree for `xarray.open_datatree(..., engine='zarr')`
  trace.zarr   the trace of adaptation, and those leaves of the trace of
               sampling that are not in the tree, by number
  state.npz    the position of the run, see `checkpoint.State`

Blocks are written before the state that counts them. A run that is killed loses
only the block that it was writing.
"""

import pathlib

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import state_parts
from tfp_adaptive.driver import archive
from tfp_adaptive.driver import checkpoint as checkpoint_lib
from tfp_adaptive.driver import folder_lock
from tfp_adaptive.driver import to_arviz
from tfp_adaptive.driver import zarr_arrays
from tfp_adaptive.driver.lazy_draws import LazyDraws

_TREE, _TRACE = 'draws.zarr', 'trace.zarr'
_STATS = 'sample_stats'
_TREE_GROUPS = ('posterior', _STATS)
_TRACE_GROUPS = ('adaptation', 'sampling')
_LAYOUT = 3  # Version of the files, part of the identity of a run.
_NUMBERS = 'biufc'  # Kinds of dtypes that Zarr and numpy write alike.
# Files that a killed run leaves before its first file is complete.
_HARMLESS = (folder_lock.NAME, 'state.npz.tmp')


class DrawsOnDisk:
  """Keeps the records of a run in a folder; `recording.InMemory` is similar.

  The folder holds no other files. `plan` has counts of steps, including
  `num_discarded` and `num_results`. `structure` is the pair (state, trace) of
  Tensors that a step records. `attributes` are those of the tree, and
  `log_prob_name` is explained by `to_arviz.sample_stats`.
  """

  def __init__(
    self, folder, run, plan, structure, block_size, log_prob_name, attributes
  ):
    # The path is absolute, because a reader may have another working folder.
    self._folder = pathlib.Path(folder).absolute()
    self._plan = plan
    self._structure = structure
    self._block_size = block_size
    self._log_prob_name = log_prob_name
    self._attributes = attributes
    self._chain_shape = _chain_shape(structure)
    _check_dtypes(structure)
    _check_names(state_parts.names(structure[0]))
    template = _one_row(structure)
    _check_names([n for group, n in self._named(template) if group == _STATS])
    self._in_tree = self._leaves_in_tree(template)
    # The file of a row depends on the block size, so that a run must keep it.
    self._state = checkpoint_lib.State(
      folder, dict(run, block_size=block_size, layout=_LAYOUT), 'draws_dir'
    )
    self._arrays = None
    self._num_rows, self._sizes = 0, []
    # Rows of the trace of adaptation that do not fill a file yet. They occur if
    # a block ends early, where shards are merged or a fit is due.
    self._pending = []
    self._saved = None

  def load(self):
    """Returns (leaves, step, seconds) at which a run was cut off, or None.

    It reads no draws. It only checks that their files exist and have the right
    lengths.
    """
    found = self._state.load()
    if found is None:
      self._refuse_files()
      # This state marks the folder as belonging to this run.
      self._state.save([], step=0, num_rows=0, sizes=[], seconds={})
    if found is None or not found[1]['num_rows']:
      with checkpoint_lib.writing(self._folder):
        self._arrays = self._make_arrays()
      return None
    leaves, header = found
    self._arrays = self._open_arrays()
    self._num_rows, self._sizes = header['num_rows'], header['sizes']
    num_leaves = len(leaves) - header['num_pending']
    leaves, self._pending = leaves[:num_leaves], leaves[num_leaves:]
    self._saved = leaves, header
    self._check_files()
    # Zarr leaves these files if a run is killed.
    for left in self._folder.rglob('*.partial'):
      left.unlink(missing_ok=True)
    return leaves, header['step'], header['seconds']

  def append(self, block):
    """Writes a block of rows, and returns the block."""
    start, discarded = self._num_rows, self._plan.num_discarded
    trace = self._trace_leaves(block)
    self._num_rows += len(trace[0])
    if start < discarded:
      self._append_adaptation(trace)
    else:
      rows = {('sampling', str(i)): leaf for i, leaf in enumerate(trace)}
      rows.update(self._named(block))
      self._write((start - discarded) // self._block_size, rows)
    return block

  def _append_adaptation(self, trace):
    """Writes full files, and the last file; the remaining rows wait."""
    pending = self._pending or [leaf[:0] for leaf in trace]
    pending = [np.concatenate(both) for both in zip(pending, trace)]
    is_last, size = self._num_rows == self._plan.num_discarded, self._block_size
    while len(pending[0]) >= size or (is_last and len(pending[0])):
      rows = {('adaptation', str(i)): x[:size] for i, x in enumerate(pending)}
      self._write(len(self._sizes), rows)
      pending = [x[size:] for x in pending]
    # An empty view would keep the block in memory.
    self._pending = pending if len(pending[0]) else []

  def _write(self, number, rows):
    """Writes the files of a block: those of `rows` for which arrays exist."""
    paths = []
    for key, array in self._arrays.items():
      if key in rows:
        paths.append(array.file(number))
        with checkpoint_lib.writing(paths[-1]):
          array.write(number, rows[key])
    with checkpoint_lib.writing(self._folder):
      archive.sync(paths)
      self._sizes.append(sum(path.stat().st_size for path in paths))

  def save(self, leaves, step, block, seconds):
    """Writes the position of the run; the last block counts from then on."""
    del block
    header = dict(
      step=int(step),
      num_rows=self._num_rows,
      num_pending=len(self._pending),
      sizes=self._sizes,
      seconds=seconds,
    )
    self._state.save([*leaves, *self._pending], **header)
    self._saved = leaves, header

  def summary(self, make):
    """Returns (worst coordinates, thinning of their draws) from `make()`.

    The result is kept with the state, so that opening a finished run does not
    read all draws again.
    """
    leaves, header = self._saved
    if 'summary' not in header:
      self._saved = leaves, dict(header, summary=make())
      self._state.save(leaves, **self._saved[1])
    worst, every = self._saved[1]['summary']
    return {field: tuple(found) for field, found in worst.items()}, every

  def columns(self):
    """Returns (records of discarded steps, records of results), as flat lists.

    Discarded steps have a trace, but no states.
    """
    names = to_arviz.checked_names(self._structure[0])
    draws = [self._lazy('posterior', name) for name in names]
    discarded, recorded = [None] * len(draws), draws
    for i in range(len(self._trace_leaves(_one_row(self._structure)))):
      discarded.append(self._lazy('adaptation', str(i)))
      recorded.append(
        self._lazy(_STATS, self._in_tree[i])
        if i in self._in_tree
        else self._lazy('sampling', str(i))
      )
    return discarded, recorded

  def _lazy(self, group, name):
    array, is_in_tree = self._arrays[group, name], group in _TREE_GROUPS
    return LazyDraws(
      array,
      self._folder / (_TREE if is_in_tree else _TRACE),
      self._chain_shape if is_in_tree else None,
    )

  def _trace_leaves(self, block):
    return block[len(tf.nest.flatten(self._structure[0])) :]

  def _named(self, block):
    """Returns {(group, name): rows} of a block, in ArviZ's layout."""
    states, trace = tf.nest.pack_sequence_as(self._structure, block)
    groups = dict(
      posterior=to_arviz.variables(states, len(self._chain_shape)),
      sample_stats=to_arviz.sample_stats(trace, self._log_prob_name),
    )
    return {
      (group, name): rows
      for group, variables in groups.items()
      for name, rows in variables.items()
    }

  def _leaves_in_tree(self, template):
    """Returns {number of a leaf of the trace: its name in the tree}.

    During sampling only the tree holds these leaves, with the same values.
    """
    stats = [
      (name, rows)
      for (group, name), rows in self._named(template).items()
      if group == _STATS
    ]
    return {
      i: name
      for i, leaf in enumerate(self._trace_leaves(template))
      for name, rows in stats
      if leaf.shape[1 : 1 + len(self._chain_shape)] == self._chain_shape
      and leaf.size == rows.size
      and np.shares_memory(leaf, rows)
    }

  def _make_arrays(self):
    """Makes all arrays, without rows; returns {(group, name): array}."""
    tree, recorded = self._folder / _TREE, self._folder / _TRACE
    zarr_arrays.make_group(tree, to_arviz.described(self._attributes))
    zarr_arrays.make_group(recorded)
    for group in _TREE_GROUPS:
      zarr_arrays.make_group(tree / group)
    for group in _TRACE_GROUPS:
      zarr_arrays.make_group(recorded / group)
    template, arrays = _one_row(self._structure), {}
    for (group, name), row in self._named(template).items():
      arrays[group, name] = zarr_arrays.BlockArray.make(
        tree / group / name,
        (len(row), self._plan.num_results, *row.shape[2:]),
        row.dtype,
        self._block_size,
        [f'{name}_dim_{i}' for i in range(row.ndim - 2)],
      )
    zarr_arrays.consolidate(tree)
    leaves = self._trace_leaves(template)
    sizes = dict(
      adaptation=self._plan.num_discarded, sampling=self._plan.num_results
    )
    for group, name in self._trace_keys():
      row = leaves[int(name)]
      arrays[group, name] = zarr_arrays.BlockArray.make(
        recorded / group / name,
        (sizes[group], *row.shape[1:]),
        row.dtype,
        self._block_size,
      )
    return arrays

  def _trace_keys(self):
    """Returns (group, name) of all arrays of the trace outside of the tree."""
    num_leaves = len(self._trace_leaves(_one_row(self._structure)))
    return [
      (group, str(i))
      for i in range(num_leaves)
      for group in _TRACE_GROUPS
      if group == 'adaptation' or i not in self._in_tree
    ]

  def _open_arrays(self):
    """Returns {(group, name): array} in the folder of an earlier run."""
    keys = [(_TREE, *key) for key in self._named(_one_row(self._structure))]
    keys += [(_TRACE, *key) for key in self._trace_keys()]
    arrays = {}
    for store, group, name in keys:
      path = self._folder / store / group / name
      try:
        arrays[group, name] = zarr_arrays.BlockArray.open(
          path, self._block_size, store == _TREE
        )
      except zarr_arrays.Damaged as error:
        raise _damaged(path, error) from error
    return arrays

  def _refuse_files(self):
    """Refuses a folder that has files but no position of a run."""
    found = sorted({p.name for p in self._folder.glob('*')} - {*_HARMLESS})
    if found:
      more = ', ...' if len(found) > 4 else ''
      raise checkpoint_lib.CheckpointError(
        f'{str(self._folder)!r} is not empty, and no run with `draws_dir` made '
        f'it: it holds {", ".join(found[:4])}{more}. Name an empty folder, or '
        'a new one.'
      )

  def _check_files(self):
    """Refuses a folder whose files have other lengths than when written."""
    num_adapting = -(-self._plan.num_discarded // self._block_size)
    for index, size in enumerate(self._sizes):
      is_result = index >= num_adapting
      number = index - num_adapting * is_result
      paths = [
        array.file(number)
        for (group, _), array in self._arrays.items()
        if (group != 'adaptation') == is_result
      ]
      missing = [path for path in paths if not path.is_file()]
      if missing:
        raise _damaged(missing[0], 'it is missing')
      if sum(path.stat().st_size for path in paths) != size:
        raise _damaged(
          paths[0], 'it, or another file of this block, was changed'
        )


def _chain_shape(structure):
  log_prob = structure[1].get('target_log_prob')
  if log_prob is None:
    raise ValueError(
      '`draws_dir` puts the axes of chains first, and the results of this '
      'kernel do not show which axes these are: they have no '
      '`target_log_prob`. Use `checkpoint_dir` instead.'
    )
  return tuple(log_prob.shape)


def _one_row(structure):
  """Returns a block of one row of zeros, flat."""
  return [
    np.zeros([1, *leaf.shape], leaf.dtype.as_numpy_dtype)
    for leaf in tf.nest.flatten(structure)
  ]


def _check_dtypes(structure):
  for leaf in tf.nest.flatten(structure):
    if np.dtype(leaf.dtype.as_numpy_dtype).kind not in _NUMBERS:
      raise ValueError(
        '`draws_dir` records logical, whole, real and complex numbers, but got '
        f'{leaf.dtype.name}. Cast it, for example to float32.'
      )


def _check_names(names):
  if not to_arviz.are_names(names) or {'.', '..'} & set(names):
    raise ValueError(
      f'`draws_dir` makes a folder of every name, but got {list(names)}. '
      "Names must differ, must not be 'chain' or 'draw', and must not contain "
      'a slash. Rename them in the state, or in what `trace_fn` returns.'
    )


def _damaged(path, reason):
  return checkpoint_lib.damaged(path, reason, 'draws_dir')
