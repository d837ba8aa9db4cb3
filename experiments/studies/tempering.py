"""Targets of several modes, with replica exchange and without.

  python -m experiments.studies.tempering [--num-seeds 10] [--budgets 1 4]

Eight chains start at N(0, I). Runs spend the panel's gradients, those of all
replicas counted, or a multiple of them; half of them adapt. The same gates as
there judge the draws: R-hat, four effective sample sizes, and the largest error
of a mean or a deviation in standard errors. Replicas are sampled by HMC or by
MALA; `alone` is the HMC of a replica without the others.
"""

import argparse
import pathlib
import time
import warnings

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.framework.json_files import append_lines
from experiments.framework.json_files import read_lines
from experiments.studies import judgement
from experiments.studies import tempering_targets
from experiments.studies.panel import budget
from experiments.studies.panel.config import DEFAULT as DEFAULT_CONFIG
from experiments.studies.panel.config import load_panel

__all__ = ['METHODS', 'measure', 'run_seeds']

_SAMPLERS = {
  'tempered': tfpa.fisher_divergence_hamiltonian,
  'tempered_langevin': tfpa.fisher_divergence_langevin,
}
METHODS = (*_SAMPLERS, 'alone')
_NUM_CHAINS = 8
_MOST_DRAWS = 5000
_PILOT = (400, 100)
_PILOT_SEED = 1000
_OUTPUT = pathlib.Path('docs/results/tempering.jsonl')


def measure(names, methods, budgets, num_seeds, output, report=print):
  """Appends a record for each run that the file lacks.

  Args:
    names: Keys of `tempering_targets.SIZES`.
    methods: Of `METHODS`.
    budgets: Multiples of the panel's gradients.
    num_seeds: Runs of each.
    output: Path of JSON lines.
    report: Called with one line of text for each.
  """
  gates = load_panel(DEFAULT_CONFIG).gates
  keys = ('name', 'method', 'budget', 'seed')
  done = {tuple(r[key] for key in keys) for r in read_lines(output)}
  for name in names:
    problem = tempering_targets.load(DEFAULT_CONFIG, name)
    for method in methods:
      for multiple in budgets:
        seeds = [
          seed
          for seed in range(num_seeds)
          if (name, method, multiple, seed) not in done
        ]
        for record in run_seeds(problem, method, multiple, seeds, gates):
          append_lines(output, record)
          report(
            f'{name} {method} x{multiple} seed {record["seed"]}: '
            f'{record["missed"] or "passed"}, {record["seconds"]:.0f} s'
          )


def run_seeds(problem, method, multiple, seeds, gates):
  """Yields the record of every seed; they share one compilation.

  Args:
    problem: `tempering_targets.Problem`.
    method: Of `METHODS`.
    multiple: Of the panel's gradients.
    seeds: Ints.
    gates: The panel's.
  """
  if not seeds:
    return
  num_replicas, gradients = tempering_targets.SIZES[problem.name]
  gradients *= multiple
  pilot = _build(problem, method, num_replicas, _PILOT[0])
  result = _sample(pilot, problem, *_PILOT, 1, _PILOT_SEED)
  per_step = [
    budget.units(tfpa.cost_per_step(pilot, a, result.final_kernel_results))
    for a in (True, False)
  ]
  num_adaptation_steps, num_steps = (
    int(0.5 * gradients / units) for units in per_step
  )
  thinning = -(-num_steps // _MOST_DRAWS)
  kernel = _build(problem, method, num_replicas, num_adaptation_steps)
  counts = num_adaptation_steps, num_steps // thinning, thinning
  for seed in seeds:
    start = time.perf_counter()
    result = _sample(kernel, problem, *counts, seed)
    record = dict(
      name=problem.name,
      method=method,
      budget=multiple,
      seed=seed,
      num_chains=_NUM_CHAINS,
      num_replicas=1 if method == 'alone' else num_replicas,
      num_adaptation_steps=counts[0],
      num_results=counts[1],
      thinning=thinning,
      seconds=time.perf_counter() - start,
      **_spent(kernel, result, counts),
      **judgement.judged(problem, result.states, gates),
    )
    if method != 'alone':
      record.update(_exchanges(result))
    yield record


def _build(problem, method, num_replicas, num_adaptation_steps):
  if method == 'alone':
    return tfpa.fisher_divergence_hamiltonian(
      problem.target_log_prob_fn, num_adaptation_steps
    )
  return tfpa.replica_exchange(
    problem.target_log_prob_fn,
    num_adaptation_steps,
    num_replicas=num_replicas,
    kernel_fn=_SAMPLERS[method],
    reference=problem.reference,
  )


def _sample(kernel, problem, num_adaptation_steps, num_results, thinning, seed):
  del num_adaptation_steps
  rng = np.random.default_rng(seed)
  start = rng.normal(size=[_NUM_CHAINS, problem.event_size])
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    return tfpa.sample(
      kernel,
      tf.constant(start, tf.float32),
      num_results,
      num_steps_between_results=thinning - 1,
      seed=seed,
      progress=False,
    )


def _spent(kernel, result, counts):
  adapting, frozen = (
    budget.units(tfpa.cost_per_step(kernel, a, result.final_kernel_results))
    for a in (True, False)
  )
  return dict(
    gradients_of_adaptation=adapting * counts[0],
    gradients_of_sampling=frozen * counts[1] * counts[2],
  )


def _exchanges(result):
  results = result.final_kernel_results
  return dict(
    barrier=float(results.barrier),
    inverse_temperatures=results.inverse_temperatures.numpy().tolist(),
    rejection_rates=results.rejection_rates.numpy().tolist(),
    num_restarts=int(tf.reduce_sum(results.num_restarts)),
  )


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  names = tuple(tempering_targets.SIZES)
  parser.add_argument('--targets', nargs='+', choices=names, default=names)
  parser.add_argument('--methods', nargs='+', choices=METHODS, default=METHODS)
  parser.add_argument('--budgets', nargs='+', type=int, default=[1])
  parser.add_argument('--num-seeds', type=int, default=10)
  parser.add_argument('--output', type=pathlib.Path, default=_OUTPUT)
  options = parser.parse_args()
  measure(
    options.targets,
    options.methods,
    options.budgets,
    options.num_seeds,
    options.output,
  )


if __name__ == '__main__':
  main()
