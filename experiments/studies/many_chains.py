"""Ten thousand chains, and two chains of a million coordinates, in float32.

  python -m experiments.studies.many_chains [--only TEXT] [--smoke]

Chains: a rotated Gaussian of condition 100, d = 100. The time of a step, frozen
and adapting, the peak of memory, and what the learned factor is worth against
the exact covariance at the same acceptance, both as the learned sampler with
another factor: effective draws of the mean of each principal direction, by the
variance of the means of thousands of stationary chains. Coordinates: Gaussians
whose scales are known; how far the learned ones are off, and how far the log
density in float32 is from that in float64. Every row has a process of its own;
finished rows are kept.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import resource
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.framework.json_files import append_lines
from experiments.framework.json_files import read_lines
from experiments.studies import bench
from experiments.studies.large_targets import LARGE
from experiments.targets.gaussians import gaussian_target
from experiments.targets.gaussians import rotated_covariance
from tfp_adaptive.core import random
from tfp_adaptive.core import tfp_private

__all__ = ['METHODS', 'chains_row', 'coordinates_row', 'efficiency']

_RESULTS_FILE = pathlib.Path('docs/results/many_chains.jsonl')
_NUM_CHAINS = (10, 1000, 10_000)
_SECONDS = 0.3  # Of a run that is timed.
_NUM_REPEATS = 3
_NUM_TUNING_STEPS = 10


class Method(NamedTuple):
  """A sampler, how long it adapts, and how long its efficiency is watched."""

  build: str
  num_adaptation_steps: int
  num_watched_steps: int  # Several autocorrelation times.
  num_judges: int = 10_000  # Stationary chains that are watched.
  options: dict = {}


METHODS = {
  'random walk': Method('gradient_adaptive_random_walk', 500, 2000, 2000),
  'MALA': Method('gradient_adaptive_langevin', 300, 50),
  'entropy HMC-3': Method(
    'entropy_adaptive_hamiltonian', 300, 20, options=dict(num_leapfrog_steps=3)
  ),
  'Fisher HMC': Method('fisher_divergence_hamiltonian', 300, 20),
}


class Size(NamedTuple):
  """Dimensions of the rows on chains."""

  event_size: int = 100
  most_judges: int = 10_000
  is_smoke: bool = False


_FULL = Size()


def chains_row(name, num_chains, size=_FULL):
  """Returns the row of a method of `METHODS` with so many chains."""
  method = METHODS[name]
  variances = np.geomspace(1.0, 100.0, size.event_size)
  target = gaussian_target(
    'rotated', rotated_covariance(variances, 0), 'float32'
  )
  kernel = _build(method, target.target_log_prob_fn)
  start = 3.0 * target.exact_draws_fn(num_chains, 1)
  before = _peak()
  row, state, results = _adapted(kernel, start, method, size.is_smoke)
  row['megabytes'] = round(_peak() - before, 1)
  if num_chains in (min(_NUM_CHAINS), max(_NUM_CHAINS)) or size.is_smoke:
    frozen = tfpa.frozen(kernel, results)
    num_judges = min(method.num_judges, size.most_judges)
    exact = tf.constant(target.exact_draws_fn(num_judges, 2), target.dtype)
    row |= efficiency(frozen, exact, target.covariance, method)
  return dict(kind='chains', name=name, num_chains=num_chains, **row)


def coordinates_row(name, is_smoke=False):
  """Returns the row of a case of `large_targets.LARGE`."""
  case = LARGE[name](1000 if is_smoke else 1_000_000)
  kernel = getattr(tfpa, case.builder)(
    case.target_log_prob_fn,
    num_adaptation_steps=case.num_adaptation_steps,
    **case.options,
  )
  method = Method(case.builder, case.num_adaptation_steps, 0)
  before = _peak()
  row, _, results = _adapted(kernel, case.draw(2, 1), method, is_smoke)
  row['megabytes'] = round(_peak() - before, 1)
  row['log_prob_error'] = case.log_prob_error()
  row |= _errors(case.log_scales(kernel, results))
  return dict(
    kind='coordinates',
    name=name,
    num_chains=2,
    event_size=case.event_size,
    **row,
  )


def _errors(log_ratios):
  """Returns how far scales are off, apart from one that all share."""
  centered = np.abs(log_ratios - np.median(log_ratios))
  return dict(
    median_scale_error=float(np.median(centered)),
    largest_scale_error=float(np.max(centered)),
  )


def _build(method, target_log_prob_fn):
  return getattr(tfpa, method.build)(
    target_log_prob_fn,
    num_adaptation_steps=method.num_adaptation_steps,
    **method.options,
  )


def _adapted(kernel, start, method, is_smoke):
  """Returns times of a step, and state and results after the adaptation."""
  start = tf.constant(start, tf.float32)
  begin = time.monotonic()
  run = _program(kernel)
  results = kernel.bootstrap_results(start)
  run(start, results, 0, 1)
  compile_seconds = time.monotonic() - begin
  begin = time.monotonic()
  state, results = run(start, results, 0, method.num_adaptation_steps)
  adapting_seconds = time.monotonic() - begin
  accept = float(
    np.mean(tfp_private.get_innermost(results, 'is_accepted').numpy())
  )
  row = dict(
    num_adaptation_steps=method.num_adaptation_steps,
    compile_seconds=compile_seconds,
    adapting=1e6 * adapting_seconds / method.num_adaptation_steps,
    frozen=_microseconds(run, state, results, 0.01 if is_smoke else _SECONDS),
    accept=accept,
  )
  return row, state, results


def _microseconds(run, state, results, seconds):
  """Returns the median time of a step after the adaptation."""

  def program(num_steps):
    return [None, run(state, results, 10**6, num_steps)[0]]

  num_steps = 1
  while bench.time_steps(program, num_steps) < 0.5 * seconds:
    num_steps *= 4
  times = [bench.time_steps(program, num_steps) for _ in range(_NUM_REPEATS)]
  return 1e6 * float(np.median(times)) / num_steps


def _program(kernel):
  """Returns (state, results, first step, number) -> (state, results)."""

  @tf.function(jit_compile=True, autograph=False)
  def run(state, results, first, last):
    def body(step, state, results):
      seed = random.fold_in(tf.constant([3, 4]), step)
      return step + 1, *kernel.one_step(state, results, seed=seed)

    _, state, results = tf.while_loop(
      lambda step, *_: step < last, body, (first, state, results)
    )
    return state, results

  def call(state, results, first, number):
    first = tf.constant(first)
    return run(state, results, first, first + tf.cast(number, tf.int32))

  return call


def efficiency(kernel, exact, covariance, method):
  """Returns what the learned factor is worth against the exact one.

  Args:
    kernel: A learned sampler, frozen.
    exact: Exact draws, [chains, d].
    covariance: [d, d].
    method: `Method`.
  """
  root = np.linalg.cholesky(covariance)
  watch = _watcher(kernel, covariance, exact)
  start = kernel.bootstrap_results(exact)
  learned = tfp_private.get_innermost(start, 'preconditioner_params')
  ess, accept = watch(start, method.num_watched_steps)
  # A scale of the exact factor that is accepted as often, in the same steps.
  _, wanted = watch(start, _NUM_TUNING_STEPS)
  low, high = -2.0, 2.0
  logdet = np.linalg.slogdet(_dense(learned))[1] - np.linalg.slogdet(root)[1]
  base = logdet / len(root)
  for _ in range(8):
    middle = 0.5 * (low + high)
    results = _with_factor(start, np.exp(base + middle) * root, exact.dtype)
    _, found = watch(results, _NUM_TUNING_STEPS)
    low, high = (middle, high) if found > wanted else (low, middle)
  best, oracle_accept = watch(results, method.num_watched_steps)
  values = np.linalg.svd(
    np.linalg.solve(_dense(learned), root), compute_uv=False
  )
  return dict(
    min_ratio=float(ess.min() / best.min()),
    median_ratio=float(np.median(ess) / np.median(best)),
    condition_left=float((values[0] / values[-1]) ** 2),
    frozen_accept=accept,
    oracle_accept=oracle_accept,
    ess_per_step=float(ess.min()) / len(exact) / method.num_watched_steps,
  )


def _dense(params):
  return np.tril(np.asarray(params, np.float64))


def _with_factor(results, factor, dtype):
  return tfp_private.replace_innermost(
    results, preconditioner_params=tf.constant(factor, dtype)
  )


def _watcher(kernel, covariance, exact):
  """Returns (results, number of steps) -> (ESS of directions, acceptance)."""
  variances, directions = np.linalg.eigh(covariance)

  @tf.function(jit_compile=True, autograph=False)
  def run(results, num_steps):
    def body(step, state, results, total, accepted):
      seed = random.fold_in(tf.constant([5, 6]), step)
      state, results = kernel.one_step(state, results, seed=seed)
      is_accepted = tfp_private.get_innermost(results, 'is_accepted')
      rate = tf.reduce_mean(tf.cast(is_accepted, total.dtype))
      return step + 1, state, results, total + state, accepted + rate

    zero = tf.zeros([], exact.dtype)
    _, _, _, total, accepted = tf.while_loop(
      lambda step, *_: step < num_steps,
      body,
      (0, exact, results, tf.zeros_like(exact), zero),
    )
    count = tf.cast(num_steps, total.dtype)
    return total / count, accepted / count

  def watch(results, num_steps):
    means, accepted = run(results, tf.constant(num_steps))
    spread = np.mean((means.numpy() @ directions) ** 2, axis=0)
    return len(exact) * variances / spread, float(accepted)

  return watch


def _peak():
  """Returns the most memory that the process has held, MiB."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _jobs(smoke):
  if smoke:
    size = Size(3, 200, is_smoke=True)
    yield chains_row, ('MALA', 4, size)
    yield coordinates_row, ('MALA, diagonal', True)
    return
  for name in METHODS:
    for num_chains in _NUM_CHAINS:
      yield chains_row, (name, num_chains)
  for name in LARGE:
    yield coordinates_row, (name,)


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--only', default='', help='rows whose name holds it')
  parser.add_argument('--smoke', action='store_true', help='two tiny rows')
  parser.add_argument('--output', type=pathlib.Path, default=_RESULTS_FILE)
  arguments = parser.parse_args()
  done = {(r['name'], r['num_chains']) for r in read_lines(arguments.output)}
  for function, values in _jobs(arguments.smoke):
    num_chains = values[1] if function is chains_row else 2
    if (values[0], num_chains) in done or arguments.only not in values[0]:
      continue
    with concurrent.futures.ProcessPoolExecutor(
      1, mp_context=multiprocessing.get_context('spawn')
    ) as pool:
      row = pool.submit(function, *values).result()
    append_lines(arguments.output, row)
    print(json.dumps(row), flush=True)


if __name__ == '__main__':
  main()
