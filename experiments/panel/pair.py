"""One method on one target, all seeds in turn: they share one compilation."""

import pathlib
import shutil
import time
import traceback
import warnings
from typing import Any
from typing import NamedTuple

from experiments.framework import cell as cells
from experiments.framework.starts import make_starts
from experiments.panel import budget
from experiments.panel.records import failed_record
from experiments.panel.records import finished_record
from experiments.panel.records import head
from experiments.panel.truth import load_truth
from experiments.samplers.base import BuildOptions
from experiments.targets.base import BuildContext

__all__ = ['Refused', 'build_target', 'run_pair']

# Runs of a seed of random cost, at most; the nearest to the budget counts.
_MAX_RUNS = 6
# How far off the budget it may be, as a ratio: a first seed, which sets the
# numbers of steps, and later ones.
_FIRST_TOLERANCE = 1.25
_LATER_TOLERANCE = 2.0
# Steps of the run that finds what a method of unknown cost spends.
_PILOT_STEPS = 100


class _Built(NamedTuple):
  """A method that is ready to run."""

  config: Any
  method: Any
  # (num_adaptation_steps, steps thereafter).
  counts: tuple
  # Units of a step as a short run found them; None where they are known, and
  # then the budget is met.
  pilot: Any = None
  tolerance: Any = None


class Refused(ValueError):
  """A method that does not take the target: no failure of either."""


def run_pair(
  panel,
  target_index,
  method_index,
  file,
  data_dir=None,
  redo=(),
  report=print,
  checkpoints=None,
):
  """Runs the seeds that the file lacks and appends a record of each.

  Args:
    panel: the `Panel`.
    target_index: in the panel.
    method_index: in the panel.
    file: the `CellFile`.
    data_dir: folder of local data sets.
    redo: statuses of records that are run again.
    report: called with one line of text per cell.
    checkpoints: folder in which cells in progress keep their state, or None.
  """
  config = panel.config
  target = build_target(panel, target_index, data_dir)
  truth = load_truth(
    target,
    config.target_label(target_index),
    panel.reference_path(target_index),
  )
  key = panel.key(target_index, method_index)
  lead = head(panel, target_index, method_index, key)
  missing = file.missing_seeds(panel, target_index, method_index, redo)
  done = file.finished_seeds(lead['target'], lead['method'], key, redo)
  run = _Runner(
    panel, target_index, method_index, target, truth, lead, checkpoints
  )
  for seed in missing:
    record = run(seed, done)
    file.append(record)
    done[seed] = record
    run.clear(seed)
    report(_line(record))
    if record['status'] in ('refused', 'not installed'):
      return


def build_target(panel, index, data_dir):
  context = BuildContext(panel.dtype(index), data_dir and str(data_dir))
  return panel.config.targets[index].build(context)


class _Runner:
  """Builds the method once, then runs it seed by seed."""

  def __init__(
    self, panel, target_index, method_index, target, truth, lead, checkpoints
  ):
    self._panel = panel
    self._budget = panel.budget(target_index)
    self._indices = (target_index, method_index)
    self._target = target
    self._truth = truth
    self._lead = lead
    self._checkpoints = checkpoints and pathlib.Path(checkpoints)
    self._built = None

  def __call__(self, seed, done):
    """Returns the record of one cell; whatever goes wrong is in it."""
    start = time.perf_counter()
    is_cold = self._built is None
    lead = {**self._lead, 'seed': seed, 'is_cold': is_cold}
    try:
      if is_cold:
        self._built = self._build(done)
      record = self._run(seed)
    except Refused as error:
      return {**lead, 'status': 'refused', 'error': str(error)}
    except ImportError as error:
      return {**lead, 'status': 'not installed', 'error': str(error)}
    except Exception as error:  # A failed method is a row, not the end.
      text = f'{type(error).__name__}: {error}'
      record = failed_record('failed', text, traceback.format_exc())
    record['seconds_in_all'] = time.perf_counter() - start
    return {**lead, **record}

  def _run(self, seed):
    """Returns the record of the run that comes nearest to the budget.

    One that fails on the way is not replaced by one that did not.
    """
    built, runs = self._built, []
    while len(runs) < _MAX_RUNS:
      record = self._finish(built, seed)
      found = record.get('gradients_per_chain')
      if built.tolerance is None or found is None:
        return record
      tried = budget.Tried(built.counts, budget.Spent(**found))
      runs.append((tried, record, built))
      counts = budget.corrected(
        self._budget, [run[0] for run in runs], built.tolerance
      )
      if counts is None:
        break
      built = self._method(counts)._replace(
        pilot='corrected', tolerance=built.tolerance
      )
    _, record, built = min(
      runs, key=lambda run: budget.excess(self._budget, run[0])
    )
    if self._built.tolerance == _FIRST_TOLERANCE:
      # All later seeds begin with the numbers of steps of the first.
      self._built = built._replace(tolerance=_LATER_TOLERANCE)
    return {**record, 'num_runs': len(runs)}

  def _finish(self, built, seed):
    """Returns the record of one run."""
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', RuntimeWarning)
      # Its own comparison with the truth is not wanted twice.
      plain = self._target._replace(ground_truth=None, constrain=None)
      result = cells.run_cell(
        built.config,
        0,
        built.method,
        plain,
        seed,
        self._checkpoint(built, seed),
        False,
      )
      record = finished_record(self._panel, result, self._target, self._truth)
    record.update(pilot=built.pilot, counts=list(built.counts))
    return record

  def _checkpoint(self, built, seed):
    """Returns the folder of a run's state; None where it keeps none."""
    if self._checkpoints is None or built.method.sample_fn is not None:
      return None
    counts = '_'.join(map(str, built.counts))
    return self._checkpoints / f'{self._lead["key"]}_{seed}_{counts}'

  def clear(self, seed):
    """Removes the states of a seed that has its record."""
    if self._checkpoints is not None:
      for path in self._checkpoints.glob(f'{self._lead["key"]}_{seed}_*'):
        shutil.rmtree(path, ignore_errors=True)

  def _build(self, done):
    """Returns the `_Built` with the numbers of steps that fit the budget."""
    known = [s for s, r in done.items() if r['status'] == 'finished']
    if known:
      first = done[min(known)]
      return self._method(first['counts'])._replace(
        pilot=first['pilot'], tolerance=first['pilot'] and _LATER_TOLERANCE
      )
    costs = self._method(None).method[1:3]
    if None in costs:
      pilot = self._pilot()
      built = self._method(budget.step_counts(self._budget, *pilot))
      return built._replace(pilot=pilot, tolerance=_FIRST_TOLERANCE)
    costs = [budget.units(cost) for cost in costs]
    return self._method(budget.step_counts(self._budget, *costs))

  def _method(self, counts):
    """Returns the `_Built` of (num_adaptation_steps, number of steps)."""
    counts = counts or (_PILOT_STEPS, _PILOT_STEPS)
    config = self._panel.pair_config(*self._indices, (*counts, 1))
    options = BuildOptions(
      num_adaptation_steps=config.num_adaptation_steps,
      num_chains=config.num_chains,
      jit_compile=config.jit_compile,
    )
    try:
      config.methods[0].check_target(self._target)
      method = config.methods[0].build(self._target, options)
    except (ValueError, TypeError, NotImplementedError) as error:
      raise Refused(str(error)) from error
    thinned = budget.thinned(self._budget, counts, method.kernel is not None)
    config = self._panel.pair_config(*self._indices, thinned)
    return _Built(config, method, tuple(counts))

  def _pilot(self):
    """Returns the units of a step of either phase, measured by a short run."""
    config, method, *_ = self._method(None)
    result = cells.sample(
      method,
      init_state=make_starts(config, self._target, config.num_repeats),
      num_results=_PILOT_STEPS,
      num_burnin_steps=_PILOT_STEPS,
      seed=cells.cell_seed(config, config.label(0), config.num_repeats),
      trace_fn=method.trace_fn,
      jit_compile=config.jit_compile,
      progress=False,
    )
    traces = (result.adaptation_trace, result.trace)
    return [budget.counted_units(trace.get('extra', {})) for trace in traces]


def _line(record):
  name = f'{record["target"]} | {record["method"]} | seed {record["seed"]}'
  if record['status'] != 'finished':
    error = record['error'].strip().splitlines()[0][:200]
    return f'{name}: {record["status"]}: {error}'
  z = record['z'] and f'{record["z"]["worst"]:.1f}'
  missed = ', '.join(record['missed']) or 'all passed'
  return (
    f'{name}: {record["seconds_in_all"]:.1f} s, min ESS '
    f'{record["ess"]["min"]:.0f}, R-hat {record["rhat_max"]}, z {z}, '
    f'gates: {missed}'
  )
