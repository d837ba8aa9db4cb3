"""How many gradients a factor needs: Fisher divergence against speed measure.

  python -m experiments.studies.fisher_start

HMC with eight chains and the same bound of leapfrog steps on Gaussians whose
covariance the structure can hold; after each of several adaptations the least
effective sample size per gradient of frozen steps. Starts are ten standard
deviations out, as in `oracle`.
"""

import argparse
import functools
import json
import pathlib

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.framework.diagnostics import geyer_ess
from experiments.framework.json_files import append_lines
from experiments.framework.json_files import read_lines
from experiments.targets.gaussians import gaussian_target
from experiments.targets.gaussians import rotated_covariance

__all__ = ['CASES', 'run']

_OUTPUT = (
  pathlib.Path(__file__).resolve().parents[2]
  / 'docs'
  / 'results'
  / 'geometry'
  / 'fisher_start.jsonl'
)
_NUM_CHAINS, _NUM_STEPS = 8, 5
_SIZE, _NUM_DRAWS = 100, 2000
_LARGE_SIZE, _NUM_LARGE_DRAWS = 1000, 500
_LARGE_PATH = 2516  # That of the S&P 500.
_GRADIENTS = (250, 1000, 4000, 16000)


def _dense(size, condition):
  return rotated_covariance(np.geomspace(1.0, condition, size), seed=0)


def _scales(size, condition):
  return np.diag(np.geomspace(1.0, condition, size))


def _spiked(size, condition):
  """Scales of two decades, and twenty long directions."""
  rng = np.random.default_rng(0)
  columns, _ = np.linalg.qr(rng.normal(size=(size, 20)))
  long = (columns * np.geomspace(10.0, condition, 20)) @ columns.T
  scales = np.geomspace(1.0, 100.0, size)
  return (np.eye(size) + long) * scales * scales[:, np.newaxis]


def _path(size, condition):
  """An AR(1) path of this condition number, roughly (2 / (1 - phi))^2."""
  lags = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
  return _persistence(condition) ** lags


def _persistence(condition):
  return 1.0 - 2.0 / np.sqrt(condition)


def _path_log_prob(condition, x):
  """Returns the log density of an AR(1) path, in as many products as steps."""
  phi = _persistence(condition)
  innovations = (x[..., 1:] - phi * x[..., :-1]) / np.sqrt(1.0 - phi**2)
  squares = tf.reduce_sum(innovations**2, axis=-1) + x[..., 0] ** 2
  return -0.5 * squares


# Name -> (covariance, structure).
_STRUCTURES = {
  'dense': (_dense, tfpa.preconditioners.cholesky),
  'diagonal': (_scales, tfpa.preconditioners.diagonal),
  'low rank 20': (_spiked, lambda: tfpa.preconditioners.low_rank(20)),
  'tridiagonal': (_path, tfpa.preconditioners.tridiagonal),
}
_RULES = {
  'Fisher divergence': tfpa.fisher_divergence_hamiltonian,
  'speed measure': tfpa.entropy_adaptive_hamiltonian,
}


def _size(name, is_large):
  large = _LARGE_PATH if name == 'tridiagonal' else _LARGE_SIZE
  return large if is_large else _SIZE


CASES = [
  (name, _size(name, is_large), condition, rule)
  for is_large in (False, True)
  for condition in (1e4, 1e6)
  for name in _STRUCTURES
  for rule in _RULES
]


def run(case, num_gradients, seed):
  """Returns the record of one adaptation.

  Args:
    case: One of `CASES`.
    num_gradients: Of the adaptation, per chain.
    seed: Int.
  """
  name, size, condition, rule = case
  covariance_of, structure = _STRUCTURES[name]
  covariance = covariance_of(size, condition)
  if name == 'tridiagonal':
    log_prob = functools.partial(_path_log_prob, condition)
  else:
    log_prob = gaussian_target(name, covariance, 'float64').target_log_prob_fn
  per_step = 0.5 * (1 + _NUM_STEPS)
  kernel = _RULES[rule](
    target_log_prob_fn=log_prob,
    num_adaptation_steps=int(num_gradients / per_step),
    num_leapfrog_steps=_NUM_STEPS,
    randomize_num_steps=True,
    preconditioner=structure(),
  )
  normals = np.random.default_rng(seed).normal(size=(_NUM_CHAINS, size))
  start = 10.0 * normals @ np.linalg.cholesky(covariance).T
  num_draws = _NUM_DRAWS if size == _SIZE else _NUM_LARGE_DRAWS
  result = tfpa.sample(
    kernel, tf.constant(start), num_draws, seed=(seed, 1), progress=False
  )
  ess = geyer_ess(result.states).sum(axis=0)
  return {
    'case': case,
    'num_gradients': num_gradients,
    'seed': seed,
    'min_ess_per_gradient': float(
      ess.min() / (_NUM_CHAINS * num_draws * per_step)
    ),
    'seconds_of_adaptation': float(result.seconds['adaptation']),
  }


def main():
  """Appends the records that the file lacks."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--output', type=pathlib.Path, default=_OUTPUT)
  parser.add_argument('--num-seeds', type=int, default=2)
  options = parser.parse_args()
  done = {
    (*r['case'], r['num_gradients'], r['seed'])
    for r in read_lines(options.output)
  }
  for seed in range(options.num_seeds):
    for case in CASES:
      for num_gradients in _GRADIENTS:
        if (*case, num_gradients, seed) in done:
          continue
        record = run(case, num_gradients, seed)
        append_lines(options.output, record)
        print(json.dumps(record), flush=True)


if __name__ == '__main__':
  main()
