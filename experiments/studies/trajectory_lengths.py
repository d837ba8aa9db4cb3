"""What a learned number of leapfrog steps gives, against a scan of given ones.

  python -m experiments.studies.trajectory_lengths --data-dir data

HMC by Fisher divergence with eight chains: its range learned, every number
fixed, and every number drawn from 1, ..., L; and HMC behind a conditional
Gaussian, its range learned or from 1, ..., L; and both with a learned range and
part of the momentum kept. Records hold least bulk and tail
effective sizes per 1000 gradients of frozen steps, gradients as counted.
"""

import argparse
import functools
import json
import pathlib
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.framework import diagnostics
from experiments.framework.json_files import append_lines
from experiments.framework.json_files import read_lines
from experiments.samplers.base import find_field
from experiments.studies.length_targets import MAP_TARGETS
from experiments.studies.length_targets import TARGETS
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results

__all__ = ['MAPS', 'MATRICES', 'Sampler', 'effective_sizes', 'run']

_OUTPUT = (
  pathlib.Path(__file__).resolve().parents[2]
  / 'docs'
  / 'results'
  / 'trajectory_length'
  / 'lengths.jsonl'
)
_NUM_CHAINS, _BLOCK = 8, 125
_NEVER = 10**8  # Steps of an adaptation that is ended by hand.
_KEPT = 'kept'  # The law of kept momenta: the range is learned.
_ONE_TO_MOST = [(1, n) for n in (2, 3, 5, 8, 12)]


class Plan(NamedTuple):
  """What is run on some targets."""

  # Name -> (folder of data) -> (log density, event size).
  targets: dict
  # (log density, adapting steps, options) -> kernel whose range is learned.
  build: Callable
  # (fewest, most) of all steps; None: learned; or with kept momenta.
  laws: list
  # That adapt where the range is learned.
  num_steps: int
  # Of an adaptation at a given range, and of frozen steps, per chain.
  num_gradients: int


MATRICES = Plan(
  TARGETS,
  tfpa.fisher_divergence_hamiltonian,
  [
    None,
    _KEPT,
    *((n, n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)),
    *_ONE_TO_MOST,
    *((1, n) for n in (4, 6, 10, 16)),
  ],
  25 * _BLOCK,
  12_500,
)
MAPS = Plan(
  MAP_TARGETS,
  functools.partial(
    tfpa.transport_adaptive_hamiltonian,
    transport=tfpa.transports.conditional_gaussian(),
  ),
  [None, _KEPT, *((n, n) for n in (1, 2, 3, 5)), *_ONE_TO_MOST],
  16 * _BLOCK,
  8_000,
)


def _given(kernel):
  """Returns a kernel that learns all but the range, ended by hand.

  One program serves every range.
  """

  class Given(type(kernel)):
    def _learn_length(self, next_state, results, *others):
      del next_state, others
      return results.trajectory_length, {}

  return Given(kernel.inner_kernel, _NEVER, 0.8)


class Sampler:
  """A kernel compiled once for blocks of steps."""

  def __init__(self, kernel):
    self._kernel = kernel

    def block(state, results, seed):
      return tfp.mcmc.sample_chain(
        _BLOCK,
        state,
        kernel=self._kernel,
        previous_kernel_results=results,
        trace_fn=lambda _, r: (
          mh_results(r).proposed_results.trajectory.num_steps,
          mh_results(r).is_accepted,
        ),
        return_final_kernel_results=True,
        seed=seed,
      )

    self._start = tf.function(self._kernel.bootstrap_results, jit_compile=True)
    self._block = tf.function(block, autograph=False, jit_compile=True)

  def start(self, state, law):
    """Returns the first results, at a range unless it is learned."""
    results = self._start(state)
    if law is None:
      return results
    inner = results.inner_results
    accepted = inner.accepted_results._replace(
      num_leapfrog_steps=tf.constant(law, tf.int32)
    )
    return results._replace(
      inner_results=inner._replace(accepted_results=accepted)
    )

  def advance(self, state, results, seed, num_gradients, num_steps=_NEVER):
    """Returns blocks of at least so many gradients per chain, or steps.

    Args:
      state: [num_chains, d].
      results: Of the kernel.
      seed: Pair of ints.
      num_gradients: Int.
      num_steps: Int.

    Returns:
      States [num_steps, num_chains, d], numbers of leapfrog steps [num_steps],
      the share of accepted steps, and the last results.
    """
    states, lengths, accepted = [], [], []
    while (
      sum(map(np.sum, lengths)) < num_gradients
      and _BLOCK * len(states) < num_steps
    ):
      out = self._block(
        state, results, tf.constant([seed[0], 1000 * seed[1] + len(states)])
      )
      results, state = out.final_kernel_results, out.all_states[-1]
      states.append(out.all_states.numpy())
      lengths.append(out.trace[0].numpy())
      accepted.append(out.trace[1].numpy())
    return (
      np.concatenate(states),
      np.concatenate(lengths),
      float(np.mean(accepted)),
      results,
    )


def run(sampler, event_size, law, seed, plan):
  """Returns the numbers of one run.

  Args:
    sampler: A `Sampler`.
    event_size: d.
    law: A range that is given, or `None`.
    seed: Int.
    plan: The `Plan`.
  """
  normals = np.random.default_rng(seed).normal(size=(_NUM_CHAINS, event_size))
  state = tf.constant(normals)
  results = sampler.start(state, law)
  amount = (plan.num_gradients, _NEVER)
  if law is None:
    amount = (_NEVER, plan.num_steps)
  states, lengths, _, results = sampler.advance(
    state, results, (seed, 1), *amount
  )
  num_adapting = int(lengths.sum())
  results = results._replace(step=tf.constant(_NEVER))
  began = time.perf_counter()
  states, lengths, accepted, results = sampler.advance(
    states[-1], results, (seed, 2), plan.num_gradients
  )
  seconds = time.perf_counter() - began
  return {
    'range': find_field(results, 'num_leapfrog_steps').numpy().tolist(),
    **effective_sizes(states, float(lengths.sum())),
    'accepted': accepted,
    'step_size': float(find_field(results, 'step_size')),
    'gradients_of_adaptation': num_adapting,
    'seconds': seconds,
  }


def effective_sizes(states, num_gradients):
  """Returns least effective sizes per 1000 gradients, and R-hat.

  Args:
    states: [num_steps, num_chains, d].
    num_gradients: Of each chain.
  """
  summary = diagnostics.summarize(states)
  squares = diagnostics.geyer_ess(states - states.mean((0, 1)), np.square)
  gradients = 1e-3 * states.shape[1] * num_gradients
  return {
    'bulk': float(np.nanmin(summary.ess_bulk)) / gradients,
    'tail': float(np.nanmin(summary.ess_tail)) / gradients,
    'squares': float(squares.sum(axis=0).min()) / gradients,
    'rhat': float(np.nanmax(summary.rhat)),
  }


def _samplers(plan, log_prob):
  """Returns the `Sampler` of each law, one for all ranges that are given."""
  learned, kept = (
    plan.build(log_prob, plan.num_steps, **options)
    for options in ({}, {'keep_momentum': True})
  )
  return {
    None: Sampler(learned),
    _KEPT: Sampler(kept),
    'given': Sampler(_given(learned)),
  }


def main():
  """Appends the records that the file lacks."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--output', type=pathlib.Path, default=_OUTPUT)
  parser.add_argument('--data-dir', type=pathlib.Path, default=None)
  parser.add_argument('--num-seeds', type=int, default=3)
  parser.add_argument('--targets', nargs='*', default=[*TARGETS, *MAP_TARGETS])
  options = parser.parse_args()
  rows = read_lines(options.output)
  done = {(r['target'], str(r['law']), r['seed']) for r in rows}
  for name in options.targets:
    plan = MAPS if name in MAP_TARGETS else MATRICES
    log_prob, event_size = plan.targets[name](options.data_dir)
    samplers = _samplers(plan, log_prob)
    for seed in range(options.num_seeds):
      for law in plan.laws:
        is_given = isinstance(law, tuple)
        written = list(law) if is_given else law
        if (name, str(written), seed) in done:
          continue
        sampler = samplers['given' if is_given else law]
        numbers = run(
          sampler, event_size, law if is_given else None, seed, plan
        )
        record = {
          'target': name,
          'is_map': plan is MAPS,
          'law': written,
          'seed': seed,
          **numbers,
        }
        append_lines(options.output, record)
        print(json.dumps(record), flush=True)


if __name__ == '__main__':
  main()
