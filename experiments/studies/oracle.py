"""Default settings against the best preconditioner there is.

Randomly rotated Gaussians, starts ten standard deviations away, no setting
given; against MALA with C = c chol(Sigma), c tuned to the acceptance that the
learned sampler reached, started in the target. The figure is the ratio of
effective sample sizes per gradient, both chains recorded equally long.
"""

import itertools
import pathlib
from typing import NamedTuple

import numpy as np
import rich.table
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.framework.diagnostics import geyer_ess
from experiments.framework.json_files import append_lines
from experiments.framework.json_files import read_lines
from experiments.targets.gaussians import gaussian_target
from experiments.targets.gaussians import rotated_covariance

__all__ = ['Case', 'cases', 'compare', 'run', 'to_rich']

_NUM_TUNING_STEPS = 500
_START_SCALE = 10.0


class Case(NamedTuple):
  """One row of the panel."""

  event_size: int
  condition_number: float
  num_chains: int
  num_adaptation_steps: int
  dtype: str = 'float64'
  method: str = 'langevin'


def cases(smoke=False):
  """Returns the rows: size, condition, chains, adaptation, precision."""
  if smoke:
    return [Case(3, 1e2, 4, 300)]
  langevin = [
    (10, 1e6, 10, 2000),
    (100, 1e6, 10, 2000),
    (100, 1e6, 10, 5000),
    (100, 1e6, 100, 1000),
    (300, 1e6, 10, 5000),
    (10, 1e6, 10, 5000),
    (10, 1e6, 100, 1000),
    (30, 1e6, 10, 2000),
    (30, 1e2, 10, 5000),
    (100, 1e2, 10, 2000),
    *itertools.product((12, 60, 150), (1e3, 1e6), (10,), (5000,)),
    (10, 1e4, 10, 2000, 'float32'),
    (100, 1e4, 10, 5000, 'float32'),
    (300, 1e4, 10, 5000, 'float32'),
  ]
  walk = [
    (10, 1e6, 10, 5000, 'float64', 'random_walk'),
    (100, 1e6, 10, 5000, 'float64', 'random_walk'),
  ]
  return [Case(*row) for row in langevin + walk]


def run(output, num_seeds=5, num_results=5000, smoke=False, report=print):
  """Runs the panel; appends one JSON line per case and seed to `output`.

  Cases already in the file are not run again.

  Args:
    output: path of the JSON lines file.
    num_seeds: seeds per case.
    num_results: draws per chain.
    smoke: one tiny case.
    report: called with each finished row, a dict.
  """
  output = pathlib.Path(output)
  done = {(*row['case'], row['seed']) for row in read_lines(output)}
  for case, seed in itertools.product(cases(smoke), range(num_seeds)):
    if (*case, seed) in done:
      continue
    row = compare(case, seed, 200 if smoke else num_results)
    append_lines(output, row)
    report(row)


def to_rich(path):
  """Returns a table of the worst and the mean ratio over seeds per case."""
  table = rich.table.Table(
    title='ESS per gradient over that of the oracle', title_justify='left'
  )
  for name in (*Case._fields, 'seeds', 'min ratio', 'median ratio', 'accept'):
    table.add_column(name.replace('_', ' '), justify='right')
  by_case = {}
  for row in read_lines(pathlib.Path(path)):
    by_case.setdefault(tuple(row['case']), []).append(row)
  for case, rows in by_case.items():
    ratios = [
      f'{min(values):.2f} (mean {np.mean(values):.2f})'
      for values in (
        [row[name] for row in rows] for name in ('min_ratio', 'median_ratio')
      )
    ]
    accept = np.mean([row['accept'] for row in rows])
    cells = [str(value) for value in case] + [str(len(rows))]
    table.add_row(*cells, *ratios, f'{accept:.2f}')
  return table


def compare(case, seed, num_results=5000):
  """Returns a dict of the ratios for one case and seed."""
  variances = np.logspace(0, np.log10(case.condition_number), case.event_size)
  covariance = rotated_covariance(variances, seed)
  target = gaussian_target('rotated', covariance, case.dtype)
  rng = np.random.default_rng([seed, 1])
  root = np.linalg.cholesky(covariance)
  exact = rng.normal(size=(case.num_chains, case.event_size)) @ root.T

  learned = _sample(
    _builder(case)(target.target_log_prob_fn, case.num_adaptation_steps),
    _START_SCALE * exact,
    num_results,
    case,
    seed,
  )
  accept_prob = float(np.mean(learned.trace['is_accepted']))
  oracle = _sample(
    _oracle(case, target, root, accept_prob), exact, num_results, case, seed
  )
  learned_ess, oracle_ess = (
    geyer_ess(r.states).reshape(case.num_chains, -1).sum(0)
    for r in (learned, oracle)
  )
  return dict(
    case=list(case),
    seed=seed,
    min_ratio=float(learned_ess.min() / oracle_ess.min()),
    median_ratio=float(np.median(learned_ess) / np.median(oracle_ess)),
    accept=accept_prob,
    oracle_accept=float(np.mean(oracle.trace['is_accepted'])),
    min_ess_per_gradient=float(
      learned_ess.min() / num_results / case.num_chains
    ),
    condition_left=_condition_left(learned, case, root),
  )


def _builder(case):
  return {
    'langevin': tfpa.gradient_adaptive_langevin,
    'random_walk': tfpa.gradient_adaptive_random_walk,
  }[case.method]


def _oracle(case, target, root, accept_prob):
  """Returns the kernel with C = c chol(Sigma), c tuned."""
  dense = tfpa.preconditioners.cholesky(init_scale=1.0)
  exact = dense._replace(
    init=lambda event_size, dtype, scale: tf.constant(root, dtype)
  )
  proposal = {
    'langevin': tfpa.proposals.UncalibratedPreconditionedLangevin,
    'random_walk': tfpa.proposals.UncalibratedPreconditionedRandomWalk,
  }[case.method]
  return tfp.mcmc.DualAveragingStepSizeAdaptation(
    tfpa.MetropolisHastings(
      proposal(
        target.target_log_prob_fn, exact, 1.5 * case.event_size ** (-1 / 6)
      )
    ),
    num_adaptation_steps=_NUM_TUNING_STEPS,
    target_accept_prob=accept_prob,
  )


def _sample(kernel, starts, num_results, case, seed):
  return tfpa.sample(
    kernel,
    tf.constant(starts, case.dtype),
    num_results,
    seed=(seed, 7),
    progress=False,
  )


def _condition_left(learned, case, root):
  """Returns the condition number of C^-1 Sigma C^-T: 1 is perfect."""
  kernel = _builder(case)(lambda x: x, 1)
  factor = tfpa.learned_factor(kernel, learned.final_kernel_results)
  values = np.linalg.svd(np.linalg.solve(factor, root), compute_uv=False)
  return float((values[0] / values[-1]) ** 2)
