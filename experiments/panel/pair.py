"""One method on one target, all seeds in turn: they share one compilation."""

import time
import traceback
import warnings

import numpy as np

from experiments import cell as cells
from experiments.methods.base import BuildOptions
from experiments.panel import budget
from experiments.panel.records import failed_record
from experiments.panel.records import finished_record
from experiments.panel.records import head
from experiments.panel.truth import load_truth
from experiments.starts import make_starts
from experiments.targets.base import BuildContext

__all__ = ['Refused', 'build_target', 'run_pair']

# Steps of the run that finds what a method of unknown cost spends.
_PILOT_STEPS = 100


class Refused(ValueError):
  """A method that does not take the target: no failure of either."""


def run_pair(
  panel, target_index, method_index, file, data_dir=None, redo=(), report=print
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
  """
  config = panel.config
  target = build_target(panel, target_index, data_dir)
  truth = load_truth(
    target, config.target_label(target_index), file.reference_dir
  )
  key = file.key(panel, target_index, method_index)
  lead = head(panel, target_index, method_index, key)
  missing = file.missing_seeds(panel, target_index, method_index, redo)
  done = file.finished_seeds(lead['target'], lead['method'], key, redo)
  run = _Runner(panel, target_index, method_index, target, truth, lead)
  for seed in missing:
    record = run(seed, done)
    file.append(record)
    done[seed] = record
    report(_line(record))
    if record['status'] == 'refused':
      return


def build_target(panel, index, data_dir):
  context = BuildContext(panel.dtype(index), data_dir and str(data_dir))
  return panel.config.targets[index].build(context)


class _Runner:
  """Builds the method once, then runs it seed by seed."""

  def __init__(self, panel, target_index, method_index, target, truth, lead):
    self._panel = panel
    self._indices = (target_index, method_index)
    # Its own comparison with the truth is not wanted twice.
    self._target = target._replace(ground_truth=None)
    self._truth = truth
    self._lead = lead
    self._built = None

  def __call__(self, seed, done):
    """Returns the record of one cell; whatever goes wrong is in it."""
    start = time.perf_counter()
    is_cold = self._built is None
    lead = {**self._lead, 'seed': seed, 'is_cold': is_cold}
    try:
      if is_cold:
        self._built = self._build(done)
      config, method, pilot = self._built
      with warnings.catch_warnings():
        warnings.simplefilter('ignore', RuntimeWarning)
        result = cells.run_cell(
          config, 0, method, self._target, seed, None, False
        )
        record = finished_record(
          self._panel.gates, result, self._target, self._truth
        )
      record['pilot'] = pilot
    except Refused as error:
      return {**lead, 'status': 'refused', 'error': str(error)}
    except Exception as error:  # A failed method is a row, not the end.
      text = f'{type(error).__name__}: {error}'
      record = failed_record('failed', text, traceback.format_exc())
    record['seconds_in_all'] = time.perf_counter() - start
    return {**lead, **record}

  def _build(self, done):
    """Returns the pair's config, its method, and what the pilot found."""
    known = [r for r in done.values() if r.get('num_results')]
    if known:
      counts = known[0]['num_adaptation_steps'], known[0]['num_results']
      return (*self._method(counts), known[0].get('pilot'))
    config, method = self._method(None)
    costs = (method.adapting_cost, method.frozen_cost)
    pilot = None
    if None in costs:
      pilot = costs = self._pilot()
    else:
      costs = [budget.units(cost) for cost in costs]
    counts = budget.step_counts(self._panel.config, *costs)
    return (*self._method(counts), pilot)

  def _method(self, counts):
    config = self._panel.pair_config(*self._indices, counts)
    chosen = config.methods[0]
    options = BuildOptions(
      num_adaptation_steps=config.num_adaptation_steps,
      num_chains=config.num_chains,
      jit_compile=config.jit_compile,
    )
    try:
      chosen.check_target(self._target)
      return config, chosen.build(self._target, options)
    except (ValueError, TypeError, NotImplementedError) as error:
      raise Refused(str(error)) from error

  def _pilot(self):
    """Returns the units of a step of either phase, measured by a short run."""
    config, method = self._method((_PILOT_STEPS, _PILOT_STEPS))
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
    found = [
      float(np.mean(trace['extra']['leapfrogs_taken'])) for trace in traces
    ]
    return [max(value, 1.0) for value in found]


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
