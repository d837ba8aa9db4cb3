"""`tfpa.sample`: adapts a kernel, then records draws, in compiled blocks.

`blocks.py` compiles a block, `recording.py` or `draws_on_disk.py` keeps its
records, and `diagnosis.py` warns.
"""

import contextlib
import functools
import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import block_fits
from tfp_adaptive.core import random
from tfp_adaptive.core import run_warnings
from tfp_adaptive.core import stack
from tfp_adaptive.core import target_call
from tfp_adaptive.driver import blocks
from tfp_adaptive.driver import checkpoint as checkpoint_lib
from tfp_adaptive.driver import diagnosis
from tfp_adaptive.driver import draws_on_disk
from tfp_adaptive.driver import folder_lock
from tfp_adaptive.driver import known_programs
from tfp_adaptive.driver import progress as progress_lib
from tfp_adaptive.driver import recording
from tfp_adaptive.driver import run_arguments
from tfp_adaptive.driver import run_identity
from tfp_adaptive.driver import shards
from tfp_adaptive.driver import zarr_arrays
from tfp_adaptive.driver.result import attributes
from tfp_adaptive.driver.result import describe_plan
from tfp_adaptive.driver.result import describe_run
from tfp_adaptive.driver.result import SampleResult
from tfp_adaptive.interfaces import types

_MAX_BLOCK_BYTES = 2**26
_MAX_BLOCK_STEPS = 1000
# A run with a time limit begins with a block of about 4 steps. Later blocks are
# planned to take a quarter of the remaining time, but have at least one row.
_FIRST_STEPS, _SHARE_OF_TIME = 4, 0.25


class Cut(Exception):
  """A run that was stopped by the time limit of `sample_until` or by Ctrl-C.

  Attributes:
    states: Draws so far, [n, chains..., event...]. Without draws: the last
      state, [1, chains..., event...].
    trace: dict of the records that belong to `states`.
    final_state: Last state of the chains.
    final_kernel_results: Last kernel results.
    step: Number of steps that were taken.
    by_user: Whether Ctrl-C stopped the run, and not the time limit.
  """

  def __init__(self, recorded, state, results, step, by_user):
    super().__init__('The run was stopped.')
    self.states, self.trace = recorded
    self.final_state, self.final_kernel_results = state, results
    self.step, self.by_user = step, by_user


class Arguments(NamedTuple):
  """The arguments of a run, as `sample` describes them."""

  kernel: tfp.mcmc.TransitionKernel
  init_state: types.Structure
  num_results: int
  num_burnin_steps: int = 0
  num_steps_between_results: int = 0
  seed: types.Seed = (0, 1)
  block_size: int | None = None
  trace_fn: Callable[..., types.Structure] | None = None
  jit_compile: bool = True
  reports: progress_lib.Reports = progress_lib.SHOWN
  checkpoint_dir: types.Path | None = None
  draws_dir: types.Path | None = None
  devices: str | Sequence[str] | None = None


def sample(
  kernel: tfp.mcmc.TransitionKernel,
  init_state: types.Structure,
  num_results: int,
  num_burnin_steps: int = 0,
  num_steps_between_results: int = 0,
  seed: types.Seed = (0, 1),
  block_size: int | None = None,
  trace_fn: Callable[..., types.Structure] | None = None,
  jit_compile: bool = True,
  progress: bool = True,
  checkpoint_dir: types.Path | None = None,
  draws_dir: types.Path | None = None,
  devices: str | Sequence[str] | None = None,
) -> SampleResult:
  """Adapts, then samples, with progress, checkpoints and a compact trace.

  The first max(num_adaptation_steps of the kernel, num_burnin_steps) steps are
  discarded. Steps run in compiled blocks of one program. The seed of step t is
  `fold_in(seed, t)`. If there are several shards, each has its own `seed`.
  Draws are therefore bit-identical for all block sizes, and after a run was
  stopped and resumed.

  Args:
    kernel: Any `tfp.mcmc.TransitionKernel`. It is compiled once. If the target
      reads Python values that change, make a new kernel.
    init_state: Tensor or structure of Tensors, [chains..., event...].
    num_results: Draws to return per chain, a positive int.
    num_burnin_steps: Steps to discard, adapting steps included.
    num_steps_between_results: Number of steps left out between two draws.
    seed: Int, pair of ints or [2] int Tensor. `None` is refused, because a run
      must be repeatable.
    block_size: Results per block. `None`: chosen by the size of a draw.
    trace_fn: Function of (state, kernel_results). Its result is recorded as
      `extra`, in addition to the default trace.
    jit_compile: Whether XLA compiles the steps. On a CPU, a density that
      factors matrices can be many times faster without XLA.
    progress: Whether to show progress: a bar on a terminal or in a notebook,
      otherwise lines.
    checkpoint_dir: Folder to which every finished block is written, or `None`.
      The same call resumes from this folder, but not if target, data, start, a
      setting or a version has changed. Only one run at a time can write to it.
    draws_dir: Folder to which draws and trace are written block by block
      instead of kept in memory, or `None`. It must be empty, or belong to this
      run. Slices of the result's arrays are read from this folder when they are
      used. Its `draws.zarr` is an ArviZ tree. The same call with the same block
      size resumes from it. Needs `zarr`.
    devices: Names of devices, one for each shard of the chains, such as
      `['/GPU:0', '/GPU:1']`; `'all'` for all GPUs, or all CPUs if there is no
      GPU; or `None` for one shard on TensorFlow's default device. Shards share
      what they learn, at first after every step, later after up to 256 steps. A
      name may occur twice, for two shards on one device. Draws depend on the
      number of shards, but not on their devices. A traced value without a chain
      axis is computed by every shard. The mean is recorded; for integers, the
      value of the first shard.

  Returns:
    A `SampleResult`.

  Warns:
    UserWarning: If a chain never moved, more than 1 % of the proposals
      diverged, or an adaptation by gradient has not settled. With at least 100
      draws, also if R-hat is above 1.01 or the bulk or tail ESS is below 400.
      With 256 chains or more, R-hat is nested, over groups of chains that began
      alike, so chains may be short. Even without a warning, the chains may not
      have converged.

  Raises:
    TypeError: If `kernel` is not a transition kernel, or the state has no
      floating dtype.
    ValueError: If a start has no finite log density, if a count is not
      allowed, if the target cannot be compiled, or if `checkpoint_dir` or
      `draws_dir` is damaged, belongs to another run, or is on a full disk.
    RuntimeError: If another run writes to a folder, if no run can write there,
      or if the process was forked after TensorFlow had run.
    ImportError: If `draws_dir` is given and `zarr` is missing.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500, seed=1)
    print(result, result.states.mean(axis=(0, 1)))
  """
  given = Arguments(
    kernel,
    init_state,
    num_results,
    num_burnin_steps,
    num_steps_between_results,
    seed,
    block_size,
    trace_fn,
    jit_compile,
    progress_lib.Reports(progress),
    checkpoint_dir,
    draws_dir,
    devices,
  )
  try:
    return sample_until(None, given)
  except target_call.StepError as error:
    raise target_call.StepError(
      f'{error} The draws of finished blocks are kept if `checkpoint_dir` or '
      '`draws_dir` was given, else they are lost.'
    ) from error


def sample_until(seconds_left, given):
  """Does what `sample` does, but raises `Cut` when time is up or after Ctrl-C.

  `given` are `Arguments`. `seconds_left` is a function that returns how many
  seconds are left. If it is `None`, there is no limit, and Ctrl-C is not
  caught.
  """
  run_arguments.check(given)
  devices = shards.device_names(given.devices) or []
  if given.draws_dir is not None:
    zarr_arrays.check_installed()
  folder = given.checkpoint_dir if given.draws_dir is None else given.draws_dir
  with contextlib.ExitStack() as opened:
    opened.enter_context(block_fits.promised(given.kernel))
    if folder is not None:
      opened.enter_context(folder_lock.held(folder))
    state = tf.nest.map_structure(
      lambda part: tf.identity(tf.convert_to_tensor(part)), given.init_state
    )
    results = given.kernel.bootstrap_results(state)
    diagnosis.check_starts(results)
    for message in diagnosis.warnings_before(given.kernel, state, results):
      run_warnings.warn(message)
    num_adapting = stack.num_adaptation_steps(given.kernel)
    plan = _Plan(
      num_discarded=int(max(num_adapting, given.num_burnin_steps)),
      num_results=int(given.num_results),
      steps_per_result=1 + int(given.num_steps_between_results),
      num_shards=max(1, len(devices)),
    )
    progress = progress_lib.Progress(
      plan.num_steps, given.reports, num_discarded=plan.num_discarded
    )
    return _run_blocks(
      *(given, plan, state, results, progress, devices, seconds_left),
      # With a time limit, the caller judges the draws itself.
      is_judged=seconds_left is None,
    )


def sample_more(given, results):
  """Continues chains of `sample` from their last state; discards no steps.

  `given` are `Arguments` with this state, and `results` are the last kernel
  results. The kernel's adaptation has ended. The seed must not have been used
  before, because otherwise the noise repeats. Give the same block size as
  before, because otherwise the kernel is compiled again.
  """
  plan = _Plan(0, given.num_results, 1 + given.num_steps_between_results)
  progress = progress_lib.Progress(plan.num_steps, given.reports, is_kept=False)
  return _run_blocks(
    given, plan, given.init_state, results, progress, is_judged=False
  )


class _Plan(NamedTuple):
  """Counts of the steps that are discarded and recorded."""

  num_discarded: int
  num_results: int
  steps_per_result: int
  num_shards: int = 1

  @property
  def num_steps(self):
    return self.num_discarded + self.num_results * self.steps_per_result

  def next_block(self, step, block_size, fit_steps=()):
    """Returns (phase, num_results, steps_per_result) of the block at `step`.

    A block has at most `block_size` results, and passes no step of `fit_steps`.
    While several shards adapt, it ends at their next merge, whatever
    `block_size` is.
    """
    phase = self.phase(step)
    if phase == 'adapt':
      if self.num_shards > 1:
        block_size = shards.next_merge(step) - step
      ends = [self.num_discarded, *(end for end in fit_steps if end > step)]
      return phase, min(block_size, min(ends) - step), 1
    left = (self.num_steps - step) // self.steps_per_result
    return phase, min(block_size, left), self.steps_per_result

  def phase(self, step):
    """Returns 'adapt' or 'sample', the phase that continues at `step`."""
    return 'adapt' if step < self.num_discarded else 'sample'

  def num_results_at(self, step):
    """Returns how many results there are after `step` steps."""
    return max(0, step - self.num_discarded) // self.steps_per_result


class _Reached(NamedTuple):
  """What a run has reached.

  It changes in one statement, so that an interrupt leaves no state without its
  step.
  """

  state: Any
  results: Any
  step: int


def _run_blocks(
  given,
  plan,
  state,
  results,
  progress,
  devices=(),
  seconds_left=None,
  is_judged=True,
):
  """Runs all blocks, and joins their records.

  If not `is_judged`, nothing is diagnosed, and no warning appears.
  """
  kernel, trace_fn = given.kernel, given.trace_fn
  seed = random.sanitize(given.seed)
  structure = (state, _trace_fn(kernel, trace_fn)(state, results))
  block_size = int(given.block_size or _default_block_size(structure, plan))
  program = _program(kernel, trace_fn, block_size, given.jit_compile)
  if devices:
    parts = state, results, structure
    program = shards.Sharded(
      kernel, program, devices, plan.num_discarded, block_size, parts
    )
  identity = None
  if given.checkpoint_dir is not None or given.draws_dir is not None:
    described = program.describe(state, results, seed, *_counts(0, 0, 1))
    identity = run_identity.describe(
      kernel, plan, seed, given.jit_compile, *structure, trace_fn, described
    )
  kept = _kept(given, plan, structure, block_size, identity)
  fit_steps = block_fits.steps(kernel)
  now, seconds = _loaded(kept, state, results)
  pace = _Pace(seconds_left)

  def cut(by_user):
    num_results = plan.num_results_at(now.step)
    recorded = _recorded(kernel, structure, kept, now, num_results)
    return Cut(recorded, *now, by_user)

  with progress, pace.interrupts(cut):
    if now.step < plan.num_steps:
      pace.check()
      start = time.monotonic()
      with progress.compiling():
        program.run(*now[:2], seed, *_counts(now.step, 0, 1))
      seconds['compile'] += time.monotonic() - start
    progress.update(now.step, plan.phase(now.step), None)
    while now.step < plan.num_steps:
      phase, num_rows, thin = plan.next_block(now.step, block_size, fit_steps)
      num_rows = pace.rows(num_rows, thin)
      start = time.monotonic()
      state, results, recorded = program.run(
        *now[:2], seed, *_counts(now.step, num_rows, thin)
      )
      block = kept.append(_rows(recorded, phase, num_rows))
      step = now.step + num_rows * thin
      results = block_fits.fitted(kernel, state, results, step)
      now = _Reached(state, results, step)
      seconds[phase] += time.monotonic() - start
      pace.took(num_rows * thin, time.monotonic() - start)
      leaves = tf.nest.flatten((state, results), expand_composites=True)
      kept.save(leaves, step, block, seconds)
      progress.update(step, phase, diagnosis.accept_rate(structure, block))
      # Memory of this block is released before the next block.
      del block, recorded
  return _join(kernel, plan, structure, kept, now, seconds, is_judged)


class _OutOfTime(Exception):
  """Time is up."""


class _Pace:
  """Chooses the number of steps in each block, so that a run ends in time."""

  def __init__(self, seconds_left=None):
    self._seconds_left = seconds_left
    self._seconds_per_step = None

  @property
  def _is_limited(self):
    return self._seconds_left is not None and np.isfinite(self._seconds_left())

  def check(self):
    """Raises `_OutOfTime` if time is up."""
    if self._is_limited and self._seconds_left() <= 0.0:
      raise _OutOfTime

  def rows(self, num_rows, steps_per_row):
    """Returns how many of `num_rows` rows to run; raises like `check`."""
    if not self._is_limited:
      return num_rows
    self.check()
    steps = _FIRST_STEPS
    if self._seconds_per_step is not None:
      steps = _SHARE_OF_TIME * self._seconds_left() / self._seconds_per_step
    return int(np.clip(steps // steps_per_row, 1, num_rows))

  def took(self, num_steps, seconds):
    """Records the seconds per step of the block that has just run."""
    self._seconds_per_step = max(seconds, 1e-6) / num_steps

  @contextlib.contextmanager
  def interrupts(self, cut):
    """Raises `cut(by_user)` when time is up or after Ctrl-C."""
    try:
      yield
    except (KeyboardInterrupt, _OutOfTime) as error:
      if self._seconds_left is None:
        raise
      raise cut(isinstance(error, KeyboardInterrupt)) from error


def _recorded(kernel, structure, kept, now, num_results):
  """Returns draws and trace so far; without draws, the last state."""
  if num_results:
    rows = kept.rows_so_far(num_results)
    return tf.nest.pack_sequence_as(structure, rows)
  one = now.state, _trace_fn(kernel, None)(now.state, now.results)
  return tf.nest.map_structure(lambda leaf: np.asarray(leaf)[np.newaxis], one)


def _rows(recorded, phase, num_rows):
  """Returns the rows of a block, flat; discarded steps keep no states.

  The rows are views of the program's output.
  """
  states, trace = (
    [np.asarray(leaf)[:num_rows] for leaf in tf.nest.flatten(part)]
    for part in recorded
  )
  return [x[:0] for x in states] + trace if phase == 'adapt' else states + trace


def _loaded(kept, state, results):
  """Returns what a run has `_Reached` from which it resumes, and seconds."""
  loaded = kept.load()
  if not loaded:
    seconds = dict(compile=0.0, adapt=0.0, sample=0.0)
    return _Reached(state, results, 0), seconds
  leaves, step, seconds = loaded
  state, results = tf.nest.pack_sequence_as(
    (state, results),
    [tf.convert_to_tensor(leaf) for leaf in leaves],
    expand_composites=True,
  )
  return _Reached(state, results, step), seconds


def _kept(given, plan, structure, block_size, identity):
  """Returns the object that keeps the records of the run."""
  if given.draws_dir is not None:
    run = describe_plan(given.kernel, plan)
    return draws_on_disk.DrawsOnDisk(
      given.draws_dir,
      identity,
      plan,
      structure,
      block_size,
      run['log_prob'],
      attributes(run),
    )
  checkpoint = None
  if given.checkpoint_dir is not None:
    checkpoint = checkpoint_lib.Checkpoint(given.checkpoint_dir, identity)
  num_parts = len(tf.nest.flatten(structure[0]))
  return recording.InMemory(
    plan.num_discarded, plan.num_results, num_parts, checkpoint
  )


def _counts(*values):
  # Counts are Tensors, because every Python int would compile a new program.
  return [tf.constant(value, tf.int32) for value in values]


def _join(kernel, plan, structure, kept, now, seconds, is_judged):
  (_, adaptation_trace), (states, trace) = (
    tf.nest.pack_sequence_as(structure, columns) for columns in kept.columns()
  )
  worst, every = {}, 1
  if is_judged:
    worst, every = kept.summary(
      lambda: diagnosis.worst_coordinates(states, trace)
    )
    for message in diagnosis.warnings_after(
      kernel, states, trace, now.results, worst
    ):
      run_warnings.warn(message)
  return SampleResult(
    states=states,
    trace=trace,
    adaptation_trace=adaptation_trace,
    final_state=now.state,
    final_kernel_results=now.results,
    seconds=dict(
      compile=seconds['compile'],
      adaptation=seconds['adapt'],
      sampling=seconds['sample'],
    ),
    run=describe_run(kernel, plan, now.results, worst, every),
  )


_KNOWN = known_programs.Known()


# Only few programs are kept, because each takes some megabytes and holds the
# target's data.
@functools.lru_cache(maxsize=2)
def _program(kernel, extra_fn, block_size, jit_compile):
  """Returns the compiled block; a repeated run does not compile again."""
  trace = _trace_fn(kernel, extra_fn)
  return blocks.build(
    kernel, lambda s, r: (s, trace(s, r)), block_size, jit_compile, _KNOWN
  )


def _trace_fn(kernel, extra_fn):
  def trace(state, results):
    recorded = blocks.default_trace(state, results)
    recorded.update(stack.scalars(kernel, results))
    if extra_fn is not None:
      extra = extra_fn(state, results)
      if extra is None:
        raise ValueError(
          '`trace_fn` returned None. Return what to record: a Tensor or a '
          'structure of Tensors.'
        )
      recorded['extra'] = tf.nest.map_structure(tf.convert_to_tensor, extra)
    return recorded

  return trace


def _default_block_size(structure, plan):
  leaves = tf.nest.flatten(structure)
  row_bytes = sum(leaf.dtype.size * int(tf.size(leaf)) for leaf in leaves)
  fitting = max(1, _MAX_BLOCK_BYTES // row_bytes)
  longest = max(plan.num_discarded, plan.num_results)
  return min(_MAX_BLOCK_STEPS, fitting, longest)
