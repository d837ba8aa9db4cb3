"""What the map, the Fisher start and the speed measure earn, each off in turn.

  python -m experiments.studies.ablation [--num-seeds 10]

Targets, starts, budget, thinning and gates are those of the config of
docs/results/geometry.md. All variants are HMC of random lengths, of at most
five leapfrog steps:

  all              half of the adaptation learns the conditional map f by Fisher
                   divergence; in z = f^-1(x) the speed measure then adapts a
                   dense factor, from the identity times the step size
  all_path         the same, with a map for paths
  without_map      half of it learns a dense factor by Fisher divergence, from
                   which the speed measure goes on
  without_fisher   the speed measure alone; a conditional map cannot be learned
                   without Fisher divergence, so that it has none
  without_speed    the map alone, and without_speed_path
  fisher           Fisher divergence alone, dense

The last is a method of the config, and the page takes its cells; so is the map
alone, but its cells are of a map as it was before: it is run anew. Maps for
paths are run where they are asked for, by `--variants`.
"""

import argparse
import functools
import pathlib
import time
import warnings
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.framework import diagnostics
from experiments.framework.cell import cell_seed
from experiments.framework.cell import CellResult
from experiments.framework.json_files import append_lines
from experiments.framework.json_files import read_lines
from experiments.framework.measurements import spread
from experiments.framework.starts import make_starts
from experiments.samplers.base import find_field
from experiments.studies.judgement import SIZES
from experiments.studies.panel import budget
from experiments.studies.panel.cells import finished_record
from experiments.studies.panel.config import load_panel

__all__ = ['TARGETS', 'VARIANTS', 'build', 'measure', 'pulled_back']

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_CONFIG = _ROOT / 'configs' / 'inference_gym' / 'geometry.yaml'
_OUTPUT = _ROOT / 'docs' / 'results' / 'geometry' / 'ablation.jsonl'
_BROWNIAN = 'BrownianMotionUnknownScalesMissingMiddleObservations'
TARGETS = (
  'NealsFunnel',
  'EightSchools',
  _BROWNIAN,
  'logistic_regression_german',
  'IllConditionedGaussian',
)
_NUM_STEPS = 5  # Of the leapfrog, at most.
_CALLS = ('target', 'gradient', 'hessian_vector')
_DROPPED = ('squared_bias', 'warnings', 'num_diverging')


class _Variant(NamedTuple):
  """A first sampler, and whether the speed measure goes on from it."""

  # (target_log_prob_fn, num_adaptation_steps) -> kernel.
  first: Callable[..., Any]
  goes_on: bool


class Sampler(NamedTuple):
  """A variant on a target.

  Attributes:
    sample: Function (starts [chains, d], pair of ints) -> draws
      [num_results, chains, d] and whether proposals were accepted.
    num_adaptation_steps: Of both phases together.
    num_results: Of each chain.
    calls: Calls of all chains, as of a cell's record.
  """

  sample: Callable[..., Any]
  num_adaptation_steps: int
  num_results: int
  calls: dict


def _mapped(structure):
  return functools.partial(
    tfpa.transport_adaptive_hamiltonian,
    num_leapfrog_steps=_NUM_STEPS,
    transport=tfpa.transports.conditional_gaussian(structure=structure),
  )


_fisher = functools.partial(
  tfpa.fisher_divergence_hamiltonian,
  num_leapfrog_steps=_NUM_STEPS,
  randomize_num_steps=True,
)


def _speed(target_log_prob_fn, num_adaptation_steps, preconditioner=None):
  return tfpa.entropy_adaptive_hamiltonian(
    target_log_prob_fn,
    num_adaptation_steps,
    num_leapfrog_steps=_NUM_STEPS,
    preconditioner=preconditioner,
    randomize_num_steps=True,
  )


VARIANTS = {
  'all': _Variant(_mapped('diagonal'), True),
  'all_path': _Variant(_mapped('tridiagonal'), True),
  'without_map': _Variant(_fisher, True),
  'without_fisher': _Variant(_speed, False),
  'without_speed': _Variant(_mapped('diagonal'), False),
  'without_speed_path': _Variant(_mapped('tridiagonal'), False),
  'fisher': _Variant(_fisher, False),
}
_RUN = ('all', 'without_map', 'without_fisher', 'without_speed')


def measure(names, variants, seeds, output, report=print, panel=None):
  """Appends a record for each run that the file lacks.

  Args:
    names: Labels of the panel's targets; a map for paths is for one of them.
    variants: Of `VARIANTS`.
    seeds: Ints, of the runs of each.
    output: Path of JSON lines.
    report: Called with one line of text for each.
    panel: A `Panel`; the geometry's by default.
  """
  panel = panel or load_panel(_CONFIG)
  keys = ('target', 'method', 'seed')
  done = {tuple(r[key] for key in keys) for r in read_lines(output)}
  for name in names:
    for variant in variants:
      missing = [s for s in seeds if (name, variant, s) not in done]
      if not missing or (variant.endswith('path') and name != _BROWNIAN):
        continue
      for record in _run_seeds(panel, name, variant, missing):
        append_lines(output, record)
        report(_line(record))


def _run_seeds(panel, name, variant, seeds):
  """Yields the record of every seed; they share one compilation."""
  target, truth = panel.problem(name)
  sampler = build(target.target_log_prob_fn, variant, panel.config)
  for seed in seeds:
    start = time.perf_counter()
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      states, is_accepted = sampler.sample(
        make_starts(panel.config, target, seed),
        cell_seed(panel.config, variant, seed),
      )
    seconds = time.perf_counter() - start
    full = _measured(sampler, states, is_accepted, seconds)
    result = CellResult(full, {}, ({'unconstrained': states}, {}))
    record = finished_record(panel, result, target, truth)
    yield dict(
      target=name,
      method=variant,
      seed=seed,
      num_chains=panel.config.num_chains,
      # With seconds that hold a compilation no speed can be told.
      **{k: v for k, v in record.items() if not _is_dropped(k)},
    )


def _is_dropped(key):
  return key in _DROPPED or key.endswith('_per_second')


def build(target_log_prob_fn, variant, config):
  """Returns the `Sampler` of a variant that spends the panel's gradients.

  Args:
    target_log_prob_fn: Of states [chains, d].
    variant: Of `VARIANTS`.
    config: The `PanelConfig`.
  """
  first, goes_on = VARIANTS[variant]
  if goes_on:
    return _two_phases(target_log_prob_fn, first, config)
  kernel = first(target_log_prob_fn, 1)
  counts = budget.step_counts(config, _units(kernel, True), _units(kernel))
  num_adapting, num_results, thinning = budget.thinned(config, counts, True)
  kernel = first(target_log_prob_fn, num_adapting)

  def sample(starts, seed):
    result = tfpa.sample(
      kernel,
      starts,
      num_results,
      num_steps_between_results=thinning - 1,
      seed=seed,
      progress=False,
    )
    return np.asarray(result.states), np.asarray(result.trace['is_accepted'])

  calls = dict(
    adaptation=_calls(config, [(kernel, True, num_adapting)]),
    sampling=_calls(config, [(kernel, False, num_results * thinning)]),
  )
  return Sampler(sample, num_adapting, num_results, calls)


def _two_phases(target_log_prob_fn, first, config):
  """Returns the `Sampler` of a start and of the speed measure from there."""
  kernel = first(target_log_prob_fn, 1)
  second = _speed(target_log_prob_fn, 1)  # As cheap in other coordinates.
  halves = config.model_copy(
    update={'gradients_per_chain': config.gradients_per_chain // 2}
  )
  # The first of them draws once to hand over its state.
  num_first, _ = budget.step_counts(halves, _units(kernel, True), 1)
  num_second, _ = budget.step_counts(halves, _units(second, True), 1)
  _, num_steps = budget.step_counts(config, 1, _units(second))
  num_first, counts = num_first - 1, (num_second, num_steps)
  num_second, num_results, thinning = budget.thinned(config, counts, True)
  kernel = first(target_log_prob_fn, num_first)
  go_on = _refinement(
    target_log_prob_fn,
    kernel.proposal,
    *(num_second, num_results, thinning),
  )

  def sample(starts, seed):
    found = tfpa.sample(kernel, starts, 1, seed=seed, progress=False)
    results = found.final_kernel_results
    learned = (
      find_field(results, name)
      for name in ('preconditioner_params', 'step_size')
    )
    draws, is_accepted = go_on(
      found.final_state, *learned, tf.constant(seed[::-1], tf.int32)
    )
    return draws.numpy(), is_accepted.numpy()

  adapting = [
    *((kernel, True, num_first), (kernel, False, 1)),
    (second, True, num_second),
  ]
  calls = dict(
    adaptation=_calls(config, adapting),
    sampling=_calls(config, [(second, False, num_results * thinning)]),
  )
  return Sampler(sample, num_first + 1 + num_second, num_results, calls)


def _refinement(fn, proposal, num_adapting, num_results, thinning):
  """Returns the second phase, compiled once for whatever the first learned.

  A factor is handed over as it is: a preconditioner whose `init` returns it,
  as `tfpa.frozen` makes one, is what the speed measure starts from. A map is a
  change of coordinates.
  """
  transport = getattr(proposal, 'transport', None)

  @tf.function(autograph=False, jit_compile=True)
  def go_on(state, params, step_size, seed):
    target_log_prob_fn, factor, map_fn = fn, params, None
    if transport is not None:
      map_fn = lambda: transport.bijector(params)
      target_log_prob_fn = pulled_back(fn, map_fn)
      state = map_fn().inverse(state)
      factor = tf.eye(state.shape[-1], dtype=state.dtype)
    kernel = _speed(
      target_log_prob_fn,
      num_adapting,
      tfpa.preconditioners.cholesky(init_scale=1.0)._replace(
        init=lambda *_: step_size * factor
      ),
    )
    draws, is_accepted = tfp.mcmc.sample_chain(
      num_results,
      state,
      kernel=kernel,
      num_burnin_steps=num_adapting,
      num_steps_between_results=thinning - 1,
      trace_fn=lambda _, results: results.inner_results.is_accepted,
      seed=seed,
    )
    return draws if map_fn is None else map_fn().forward(draws), is_accepted

  return go_on


def pulled_back(target_log_prob_fn, bijector_fn):
  """Returns the log density of z where f(z) has the target's.

    log p(z) = log pi(f(z)) + log |det Df(z)|

  Args:
    target_log_prob_fn: log pi, of [..., d].
    bijector_fn: Function () -> a new bijector f of rows.
  """

  def log_prob(rows):
    bijector = bijector_fn()
    mapped = bijector.forward(rows)
    return target_log_prob_fn(mapped) + bijector.forward_log_det_jacobian(
      rows, event_ndims=1
    )

  return log_prob


def _units(kernel, adapting=False):
  return budget.units(tfpa.cost_per_step(kernel, adapting))


def _calls(config, phases):
  """Returns calls of all chains over (kernel, whether it adapts, steps)."""
  return {
    name: config.num_chains
    * sum(
      num_steps * getattr(tfpa.cost_per_step(kernel, adapting), name)
      for kernel, adapting, num_steps in phases
    )
    for name in _CALLS
  }


def _measured(sampler, states, is_accepted, seconds):
  """Returns what the panel's records are made of."""
  found = diagnostics.summarize(states)
  sizes = {name: spread(getattr(found, name)) for name in SIZES}
  rhat = float(np.max(found.rhat))
  return dict(
    num_chains=states.shape[1],
    num_adaptation_steps=sampler.num_adaptation_steps,
    num_results=sampler.num_results,
    calls=sampler.calls,
    seconds=dict(adaptation=0.0, sampling=seconds),
    accept_rate=float(np.mean(is_accepted)),
    rhat_max=rhat if np.isfinite(rhat) else None,
    num_diverging=None,
    warnings=[],
    **sizes,
  )


def _line(record):
  name = f'{record["target"]} {record["method"]} seed {record["seed"]}'
  if record['status'] != 'finished':
    return f'{name}: {record["error"]}'
  return (
    f'{name}: {", ".join(record["missed"]) or "converged"}, '
    f'R-hat {record["rhat_max"] or np.inf:.3f}, z {record["z"]["worst"]:.1f}, '
    f'min ESS {record["ess"]["min"]:.0f}, {record["seconds"]["sampling"]:.0f} s'
  )


def main():
  """Appends the records that the file lacks."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--targets', nargs='+', choices=TARGETS, default=TARGETS)
  parser.add_argument('--variants', nargs='+', choices=VARIANTS, default=_RUN)
  parser.add_argument('--num-seeds', type=int, default=10)
  parser.add_argument('--first-seed', type=int, default=0)
  parser.add_argument('--output', type=pathlib.Path, default=_OUTPUT)
  options = parser.parse_args()
  first = options.first_seed
  seeds = range(first, first + options.num_seeds)
  report = functools.partial(print, flush=True)
  measure(options.targets, options.variants, seeds, options.output, report)


if __name__ == '__main__':
  main()
