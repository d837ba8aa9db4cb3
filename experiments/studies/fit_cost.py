"""What learning costs: seconds of adapting steps over those of frozen ones.

  python -m experiments.studies.fit_cost

HMC by Fisher divergence, and behind a conditional Gaussian, with eight chains
on a rotated Gaussian: one program, so many adapting steps and then as many
frozen ones, of the same numbers of leapfrog steps on average. The gradient is
as cheap as one gets, a product with a [d, d] matrix. Processor seconds.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.framework.json_files import append_lines
from experiments.framework.json_files import read_lines
from experiments.studies.trajectory_lengths import Sampler
from experiments.targets.gaussians import gaussian_target
from experiments.targets.gaussians import rotated_covariance

__all__ = ['CASES', 'run']

_OUTPUT = (
  pathlib.Path(__file__).resolve().parents[2]
  / 'docs'
  / 'results'
  / 'geometry'
  / 'fit_cost.jsonl'
)
_NUM_CHAINS, _NUM_STEPS, _CONDITION = 8, 5000, 1e4
_NEVER = 10**8  # Of a number of gradients, or of a step.


def _by_matrix(structure):
  return lambda log_prob, num_steps: tfpa.fisher_divergence_hamiltonian(
    log_prob, num_steps, num_leapfrog_steps=5, preconditioner=structure()
  )


def _by_map(log_prob, num_steps):
  return tfpa.transport_adaptive_hamiltonian(
    log_prob,
    num_steps,
    num_leapfrog_steps=5,
    transport=tfpa.transports.conditional_gaussian(),
  )


_KERNELS = {
  'dense': _by_matrix(tfpa.preconditioners.cholesky),
  'diagonal': _by_matrix(tfpa.preconditioners.diagonal),
  'low rank 20': _by_matrix(lambda: tfpa.preconditioners.low_rank(20)),
  'conditional Gaussian': _by_map,
}
CASES = [
  *((name, size) for size in (100, 1000) for name in [*_KERNELS][:3]),
  ('conditional Gaussian', 100),
]


def run(case, num_steps=_NUM_STEPS):
  """Returns the record of a case.

  Args:
    case: One of `CASES`.
    num_steps: Of the adaptation.
  """
  name, size = case
  covariance = rotated_covariance(np.geomspace(1.0, _CONDITION, size), seed=0)
  target = gaussian_target(name, covariance, 'float64')
  sampler = Sampler(_KERNELS[name](target.target_log_prob_fn, num_steps))
  normals = np.random.default_rng(0).normal(size=(_NUM_CHAINS, size))
  state = tf.constant(normals @ np.linalg.cholesky(covariance).T)
  results = sampler.start(state, None)
  sampler.advance(state, results, (0, 1), _NEVER, 1)  # Compiles.
  seconds = []
  for number in range(2):
    begin = time.process_time()
    states, _, _, results = sampler.advance(
      state, results, (0, 2 + number), _NEVER, num_steps
    )
    seconds.append(time.process_time() - begin)
    state = tf.constant(states[-1])
    results = results._replace(step=tf.constant(_NEVER))
  adapting, frozen = seconds
  return {
    'case': [name, size],
    'num_steps': num_steps,
    'seconds_adapting': adapting,
    'seconds_frozen': frozen,
    'share_of_learning': 1.0 - frozen / adapting,
  }


def main():
  """Appends the records that the file lacks."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--output', type=pathlib.Path, default=_OUTPUT)
  options = parser.parse_args()
  done = {tuple(row['case']) for row in read_lines(options.output)}
  for case in CASES:
    if case not in done:
      record = run(case)
      append_lines(options.output, record)
      print(json.dumps(record), flush=True)


if __name__ == '__main__':
  main()
