"""One method on one target with one seed: from the budget to a record."""

import contextlib
import math
import pathlib
import time
import warnings
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments.papers import cell as cells
from experiments.papers.config import Config
from experiments.papers.starts import make_starts
from experiments.run.errors import Refused
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.samplers.base import BuildOptions
from experiments.samplers.base import Method
from experiments.studies.panel import accuracy
from experiments.studies.panel import budget
from experiments.studies.panel.config import Gates
from experiments.studies.panel.config import load_panel
from experiments.studies.panel.config import Panel
from experiments.studies.panel.truth import coordinates

# Settings of `--smoke`.
_SMOKE = ('num_seeds=1', 'gradients_per_chain=1000', 'gradients_of_target={}')
# Most runs of a seed with random costs; the nearest to the budget counts.
_MAX_RUNS = 6
# How far off the budget a run may be, as a ratio. The first seed sets the
# numbers of steps, and later seeds keep these numbers if possible.
_FIRST_TOLERANCE = 1.25
_LATER_TOLERANCE = 2.0
# Steps of the run that measures the unknown cost of a method.
_PILOT_STEPS = 100
_NUM_DIGITS = 6


class Case:
  """One method on one target, built once for all seeds."""

  def __init__(self, panel: Panel, target: str, method: str):
    self.panel, self.target, self.method = panel, target, method
    self.runner: _Runner | None = None


def load(path, overrides=(), is_smoke: bool = False) -> Study:
  """Returns the study of a panel's YAML file.

  Args:
    is_smoke: Whether the run should take seconds only.

  Raises:
    ConfigError: If anything is wrong with the config or its checks.
  """
  panel = load_panel(path, (*(_SMOKE if is_smoke else ()), *overrides))
  return Study(
    cases=lambda settings: {
      f'{target} | {method}': Case(panel, target, method)
      for target in panel.targets
      for method in panel.methods
    },
    run=run,
    seeds=tuple(range(panel.config.num_seeds)),
    max_seconds=panel.config.seconds_per_pair,
    case_key=lambda case: panel.key(case.target, case.method),
  )


def head(panel: Panel, target: str, method: str) -> dict[str, Any]:
  """Returns the first fields of a record, which are known before the run."""
  parameters = panel.methods[method]
  return {
    'target': target,
    'method': method,
    'method_name': parameters.name,
    'is_peer': parameters.is_peer,
    'key': panel.key(target, method),
    'gates': panel.gates_digest,
    'gates_version': panel.gates.version,
    'dtype': panel.dtype(target),
    'num_chains': panel.config.num_chains,
  }


def run(case: Case, seed: int, work: Work) -> dict[str, Any]:
  """Returns the record of one run."""
  start = time.perf_counter()
  is_cold = case.runner is None
  try:
    if case.runner is None:
      case.runner = _Runner(case, work.data_dir)
      # If costs are random, seed 0 has run before and has compiled.
      is_cold = seed == 0 or not case.runner.is_random
    record = case.runner(seed, work.checkpoints)
  except ImportError as error:
    raise Refused(f'not installed: {error}') from error
  return _rounded(
    {
      **head(case.panel, case.target, case.method),
      'is_cold': is_cold,
      **record,
      'seconds_in_all': time.perf_counter() - start,
    }
  )


class _Built(NamedTuple):
  """A method that is ready to run."""

  config: Config
  method: Method
  # (num_adaptation_steps, steps thereafter).
  counts: tuple[int, int]
  # How far off the budget a run may be; None if costs are known, because every
  # run then meets the budget.
  tolerance: float | None = None
  # Units of a step of either phase, measured by a short run. None if the units
  # are known, 'corrected' if later runs measured better.
  pilot: Any = None


class _Runner:
  """Builds the method once, then runs it seed by seed.

  The costs of some methods are random. A short run decides the first numbers of
  steps of seed 0, and seed 0 decides those of all other seeds. Every process
  therefore runs seed 0, so that a record depends on its case and seed only.
  """

  def __init__(self, case: Case, data_dir: pathlib.Path | None):
    self._panel, self._labels = case.panel, (case.target, case.method)
    self._budget = case.panel.budget(case.target)
    self._target, self._truth = case.panel.problem(case.target, data_dir)
    self._first = self._begin()
    self._later: _Built | None = None

  @property
  def is_random(self) -> bool:
    """Returns whether the costs of the method are random."""
    return self._first.tolerance is not None

  def __call__(self, seed: int, checkpoints: pathlib.Path) -> dict[str, Any]:
    """Returns the record of a seed, without the fields of `head`."""
    if not self.is_random:
      return self._finish(self._first, seed, checkpoints)
    if seed and self._later is None:
      # A failure of seed 0 is recorded by seed 0.
      with contextlib.suppress(Exception):
        self._later = self._nearest(self._first, 0, None)[1]
    begin = self._first
    if seed and self._later is not None:
      begin = self._later._replace(tolerance=_LATER_TOLERANCE)
    record, built = self._nearest(begin, seed, checkpoints)
    if not seed:
      self._later = built
    return record

  def _begin(self) -> _Built:
    """Returns the method with the numbers of steps that fit the budget."""
    built = self._build(_PILOT_STEPS, _PILOT_STEPS)
    costs = (built.method.adapting_cost, built.method.frozen_cost)
    if None in costs:
      pilot = self._pilot(built)
      counts = budget.step_counts(self._budget, *pilot)
      return self._build(*counts, tolerance=_FIRST_TOLERANCE, pilot=pilot)
    units = map(budget.units, costs)
    return self._build(*budget.step_counts(self._budget, *units))

  def _build(self, num_adaptation_steps: int, num_steps: int, **fields):
    """Returns the `_Built` for some numbers of steps."""
    config = self._panel.pair_config(
      *self._labels, num_adaptation_steps, num_steps
    )
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
    counts = (num_adaptation_steps, num_steps)
    thinned = budget.thinned(self._budget, counts, method.kernel is not None)
    config = self._panel.pair_config(*self._labels, *thinned)
    return _Built(config, method, counts, **fields)

  def _pilot(self, built: _Built) -> list[float]:
    """Returns the units of a step of either phase, measured by a short run."""
    config = self._panel.pair_config(*self._labels, *built.counts)
    result = cells.sample(
      built.method,
      init_state=make_starts(config, self._target, config.num_repeats),
      num_results=_PILOT_STEPS,
      num_burnin_steps=_PILOT_STEPS,
      seed=cells.cell_seed(config, config.label(0), config.num_repeats),
      trace_fn=built.method.trace_fn,
      jit_compile=config.jit_compile,
      progress=False,
    )
    traces = (result.adaptation_trace, result.trace)
    return [budget.counted_units(trace.get('extra', {})) for trace in traces]

  def _nearest(self, built: _Built, seed: int, checkpoints) -> tuple:
    """Returns (record, `_Built`) of the run that is nearest to the budget.

    If one of the runs fails, the seed fails.
    """
    tolerance, runs = built.tolerance, []
    while len(runs) < _MAX_RUNS:
      record = self._finish(built, seed, checkpoints)
      tried = budget.Tried(
        built.counts, budget.Spent(**record['gradients_per_chain'])
      )
      runs.append((tried, record, built))
      counts = budget.corrected(self._budget, [r[0] for r in runs], tolerance)
      if counts is None:
        break
      built = self._build(*counts, tolerance=tolerance, pilot='corrected')
    _, record, built = min(
      runs, key=lambda run: budget.excess(self._budget, run[0])
    )
    return {**record, 'num_runs': len(runs)}, built

  def _finish(self, built: _Built, seed: int, checkpoints) -> dict[str, Any]:
    """Returns the record of one run."""
    if checkpoints is not None and built.method.sample_fn is None:
      checkpoints = checkpoints / '_'.join(map(str, built.counts))
    else:
      checkpoints = None  # Only `tfpa.sample` can resume.
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', RuntimeWarning)
      # `finished_record` compares with the truth.
      plain = self._target._replace(ground_truth=None, constrain=None)
      result = cells.run_cell(
        built.config, 0, built.method, plain, seed, checkpoints, False
      )
      record = finished_record(self._panel, result, self._target, self._truth)
    return {**record, 'pilot': built.pilot, 'counts': list(built.counts)}


def finished_record(panel: Panel, result, target, truth) -> dict[str, Any]:
  """Returns the record of a run that came to its end.

  Args:
    truth: The `Truth`, or None.

  Raises:
    FloatingPointError: If some draws are not finite.
  """
  states = result.draws[0]['unconstrained']
  if not np.isfinite(states).all():
    share = 1 - float(np.isfinite(states).mean())
    raise FloatingPointError(f'{share:.2%} of the draws are not finite.')
  # Samplers that do not thin may return too many draws for float64.
  stride = -(-len(states) // panel.config.max_draws)
  full = result.record
  spent = budget.spent(full['calls'], full['num_chains'])
  copied = (
    'num_adaptation_steps',
    'num_results',
    'calls',
    'seconds',
    'accept_rate',
    'rhat_max',
    'ess',
    'num_diverging',
  )
  record = {
    'event_size': target.event_size,
    **{name: full[name] for name in copied},
    'gradients_per_chain': spent and spent._asdict(),
    **{
      f'min_ess_{kind}': full[f'ess_{kind}']['min']
      for kind in ('squared', 'bulk', 'tail')
    },
    'warnings': [text[:200] for text in full['warnings'][:3]],
    **_against(truth, target, states[::stride], spent),
  }
  record['missed'] = _missed(panel.gates, record)
  record['is_biased'] = _is_biased(panel.gates, record)
  return record


def _against(truth, target, states, spent):
  """Returns b^2 by gradients spent and the worst z; None without a truth."""
  if truth is None:
    return {'truth': None, 'z': None, 'squared_bias': None}
  draws = coordinates(target, states)
  curve = accuracy.squared_bias_curve(draws, truth)
  gradients = None
  if spent is not None:
    per_draw = spent.sampling / len(draws)
    gradients = [
      round(spent.adaptation + k * per_draw) for k in curve.num_draws
    ]
  return {
    'truth': {
      'of': truth.source,
      'of_square': truth.square_source,
      'is_converged': truth.is_converged,
      'gym_z': truth.gym_z,
    },
    'z': accuracy.worst_z(draws, truth)._asdict(),
    'squared_bias': {'gradients': gradients, **curve._asdict()},
  }


def _missed(gates: Gates, record) -> list[str]:
  """Returns the names of the checks that the run did not pass."""
  missed = []
  if record['rhat_max'] is None or record['rhat_max'] >= gates.max_rhat:
    missed.append('R-hat')
  # A coordinate that never moves has no R-hat and no effective draws.
  sizes = [record['ess']['min']]
  sizes += [record[f'min_ess_{kind}'] for kind in ('squared', 'bulk', 'tail')]
  if any(size is None or size < gates.min_ess for size in sizes):
    missed.append('ESS')
  return missed


def _is_biased(gates: Gates, record) -> bool | None:
  """Returns whether a run that passed is biased, or None if not judged."""
  if record['missed'] or not (record['truth'] or {}).get('is_converged'):
    return None
  return abs(record['z']['worst']) > gates.max_abs_z


def _rounded(value):
  """Returns nested values with floats in a few digits, for small files."""
  if isinstance(value, dict):
    return {key: _rounded(entry) for key, entry in value.items()}
  if isinstance(value, list | tuple):
    return [_rounded(entry) for entry in value]
  if isinstance(value, float) and math.isfinite(value):
    return float(f'{value:.{_NUM_DIGITS}g}')
  return value
