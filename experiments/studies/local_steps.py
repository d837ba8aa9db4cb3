"""HMC with shorter steps in steep places, with some short ones, and without.

  python -m experiments.studies.local_steps [--num-seeds 10]

Eight chains start at N(0, I). A run adapts for as many steps as the panel's
gradients pay for by a short run, and then draws until as many again are spent:
draws beyond that are thrown away. The panel's gates judge the draws: R-hat,
four effective sample sizes, and the largest error of a mean or a deviation in
standard errors. No run estimates the deviations of a funnel, which are those of
the far end of its mouth, so that its log scale is judged by itself: its mean,
its deviation, and how often it is below -6.
"""

import argparse
import pathlib
import time
import warnings
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.framework.json_files import append_lines
from experiments.framework.json_files import read_lines
from experiments.studies import judgement
from experiments.studies.panel import budget
from experiments.studies.panel.config import DEFAULT as DEFAULT_CONFIG
from experiments.studies.panel.config import load_panel
from experiments.studies.panel.truth import coordinates
from experiments.studies.panel.truth import gaussian_variance_of_square
from experiments.studies.panel.truth import Truth
from tfp_adaptive.core import short_steps
from tfp_adaptive.core import stack
from tfp_adaptive.core import tfp_private

__all__ = ['METHODS', 'TARGETS', 'measure', 'run_seeds']

TARGETS = ('NealsFunnel', 'EightSchools', 'rotated_gaussian')
METHODS = ('one_size', 'short', 'local')
_NUM_CHAINS = 8
_GRADIENTS = 25_000  # Of a chain, for each of both phases: the panel's.
_PILOT = (2000, 100)
_PILOT_SEED = 1000
_SHARE = 0.2
_FIRST_SEED = 10  # With those before a constant was chosen.
_NECK = -6.0  # Two deviations of the funnel's log scale.
_GAUSSIAN_SIZE, _GAUSSIAN_CONDITION = 30, 1e3
_OUTPUT = pathlib.Path('docs/results/local_steps.jsonl')


class _Problem(NamedTuple):
  """A target and its moments."""

  name: str
  target_log_prob_fn: Any
  event_size: int
  # States [..., event_size] to the coordinates of the truth.
  coordinates: Any
  truth: Truth


def measure(names, methods, seeds, output, report=print):
  """Appends a record for each run that the file lacks.

  Args:
    names: Of `TARGETS`.
    methods: Of `METHODS`.
    seeds: Ints, of the runs of each.
    output: Path of JSON lines.
    report: Called with one line of text for each.
  """
  panel = load_panel(DEFAULT_CONFIG)
  keys = ('name', 'method', 'seed')
  done = {tuple(r[key] for key in keys) for r in read_lines(output)}
  for name in names:
    problem = _load(panel, name)
    for method in methods:
      missing = [s for s in seeds if (name, method, s) not in done]
      for record in run_seeds(problem, method, missing, panel.gates):
        append_lines(output, record)
        report(
          f'{name} {method} seed {record["seed"]}: '
          f'{record["missed"] or "passed"}, {record["seconds"]:.0f} s'
        )


def run_seeds(problem, method, seeds, gates):
  """Yields the record of every seed; they share one compilation.

  Args:
    problem: As of `_load`.
    method: Of `METHODS`.
    seeds: Ints.
    gates: The panel's.
  """
  if not seeds:
    return
  pilot = _build(problem, method, _PILOT[0])
  result = _sample(pilot, problem, _PILOT[1], _PILOT_SEED)
  num_adaptation_steps = int(_GRADIENTS / _units(pilot, True, result))
  kernel = _build(problem, method, num_adaptation_steps)
  for seed in seeds:
    start = time.perf_counter()
    # A step makes one gradient at least.
    result = _sample(kernel, problem, _GRADIENTS, seed)
    per_step = _units(kernel, False, result)
    num_results = int(_GRADIENTS / per_step)
    yield dict(
      name=problem.name,
      method=method,
      seed=seed,
      num_chains=_NUM_CHAINS,
      num_adaptation_steps=num_adaptation_steps,
      num_results=num_results,
      gradients_of_adaptation=_units(kernel, True, result)
      * num_adaptation_steps,
      gradients_of_sampling=per_step * num_results,
      seconds=time.perf_counter() - start,
      **_learned(result, num_results),
      **_judged(problem, result.states[:num_results], gates),
    )


def _load(panel, name):
  """Returns the `_Problem` of a name."""
  if name == 'rotated_gaussian':
    return _rotated_gaussian()
  target, truth = panel.problem(name)
  return _Problem(
    name,
    target.target_log_prob_fn,
    target.event_size,
    lambda states: coordinates(target, states),
    truth,
  )


def _rotated_gaussian():
  rng = np.random.default_rng(5)
  axes = np.linalg.qr(rng.normal(size=[_GAUSSIAN_SIZE] * 2))[0]
  variances = np.geomspace(1.0 / _GAUSSIAN_CONDITION, 1.0, _GAUSSIAN_SIZE)
  precision = tf.constant((axes / variances) @ axes.T, tf.float32)
  square = np.diag((axes * variances) @ axes.T)
  zeros = np.zeros(_GAUSSIAN_SIZE)
  return _Problem(
    'rotated_gaussian',
    lambda x: -0.5 * tf.reduce_sum(x * tf.matmul(x, precision), axis=-1),
    _GAUSSIAN_SIZE,
    lambda states: np.asarray(states, np.float64),
    Truth(
      zeros,
      square**0.5,
      zeros,
      square,
      gaussian_variance_of_square(zeros, square**0.5),
      'closed form',
      'closed form',
    ),
  )


def _build(problem, method, num_adaptation_steps):
  kernel = tfpa.fisher_divergence_hamiltonian(
    problem.target_log_prob_fn,
    num_adaptation_steps,
    local_steps=method == 'local',
  )
  if method != 'short':
    return kernel
  return kernel.copy(
    inner_kernel=short_steps.around(
      kernel.inner_kernel, num_adaptation_steps, _SHARE
    )
  )


def _sample(kernel, problem, num_results, seed):
  rng = np.random.default_rng(seed)
  start = rng.normal(size=[_NUM_CHAINS, problem.event_size])
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    return tfpa.sample(
      kernel,
      tf.constant(start, tf.float32),
      num_results,
      seed=seed,
      trace_fn=_trace,
      progress=False,
    )


def _trace(_, results):
  found = stack.metropolis_hastings_results(results)
  taken = found.proposed_results.trajectory
  return getattr(taken, 'octaves', tf.zeros_like(found.log_accept_ratio))


def _units(kernel, adapting, result):
  return budget.units(
    tfpa.cost_per_step(kernel, adapting, result.final_kernel_results)
  )


def _learned(result, num_results):
  """Returns what the kernel took for steps."""
  results = result.final_kernel_results
  is_accepted, octaves = (
    np.asarray(result.trace[name])[:num_results]
    for name in ('is_accepted', 'extra')
  )
  return dict(
    step_size=float(tfp_private.get_innermost(results, 'step_size')),
    num_leapfrog_steps=np.asarray(
      results.trajectory_length.num_leapfrog_steps
    ).tolist(),
    accept_rate=float(np.mean(is_accepted)),
    share_shorter=float(np.mean(octaves > 0.0)),
    most_octaves=float(np.max(octaves)),
  )


def _judged(problem, states, gates):
  """Returns what the gates say, and of the funnel what its log scale does."""
  judged = judgement.judged(problem, states, gates)
  if problem.name == 'NealsFunnel':
    scale = problem.coordinates(states)[..., 0]
    judged.update(
      log_scale_mean=float(np.mean(scale)),
      log_scale_deviation=float(np.std(scale)),
      share_in_neck=float(np.mean(scale < _NECK)),
    )
  return judged


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--targets', nargs='+', choices=TARGETS, default=TARGETS)
  parser.add_argument('--methods', nargs='+', choices=METHODS, default=METHODS)
  parser.add_argument('--num-seeds', type=int, default=10)
  parser.add_argument('--first-seed', type=int, default=_FIRST_SEED)
  parser.add_argument('--output', type=pathlib.Path, default=_OUTPUT)
  options = parser.parse_args()
  first = options.first_seed
  seeds = range(first, first + options.num_seeds)
  measure(options.targets, options.methods, seeds, options.output)


if __name__ == '__main__':
  main()
