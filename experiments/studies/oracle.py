"""Default settings against the best preconditioner there is.

Targets are randomly rotated Gaussians. The learned sampler starts ten standard
deviations out and is given no setting. The oracle is the same sampler with
C = c chol(Sigma) from starts in the target, where c is tuned to the acceptance
that the learned sampler reached. Ratios are effective sample sizes of the
learned sampler over those of the oracle, after equally many draws.
"""

import itertools
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.papers.diagnostics import geyer_ess
from experiments.run.study import Settings
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.samplers.tfp_kernels import fixed_preconditioner
from experiments.targets.gaussians import gaussian_target
from experiments.targets.gaussians import rotated_covariance

_NUM_TUNING_STEPS = 500
_START_SCALE = 10.0
_BUILDERS = {
  'langevin': tfpa.gradient_adaptive_langevin,
  'random_walk': tfpa.gradient_adaptive_random_walk,
}
_PROPOSALS = {
  'langevin': tfpa.proposals.UncalibratedPreconditionedLangevin,
  'random_walk': tfpa.proposals.UncalibratedPreconditionedRandomWalk,
}


class Length(Settings):
  """Draws of each chain."""

  num_results: int = 5000

  def smoke(self) -> 'Length':
    return Length(num_results=200)


class Case(NamedTuple):
  """A Gaussian, and how it is sampled."""

  event_size: int
  condition_number: float
  num_chains: int
  num_adaptation_steps: int
  dtype: str = 'float64'
  method: str = 'langevin'

  @property
  def name(self) -> str:
    return (
      f'{self.method}, d = {self.event_size}, '
      f'condition {self.condition_number:.0e}, {self.num_chains} chains, '
      f'{self.num_adaptation_steps} adapting, {self.dtype}'
    )


def cases(settings: Length) -> dict[str, Case]:
  """Returns all cases by name."""
  del settings
  rows = [
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
    (10, 1e6, 10, 5000, 'float64', 'random_walk'),
    (100, 1e6, 10, 5000, 'float64', 'random_walk'),
  ]
  return {case.name: case for case in itertools.starmap(Case, rows)}


def run(case: Case, seed: int, work: Work) -> dict[str, Any]:
  """Returns the ratios of effective sample sizes."""
  variances = np.logspace(0, np.log10(case.condition_number), case.event_size)
  covariance = rotated_covariance(variances, seed)
  target = gaussian_target('rotated', covariance, case.dtype)
  rng = np.random.default_rng([seed, 1])
  root = np.linalg.cholesky(covariance)
  exact = rng.normal(size=(case.num_chains, case.event_size)) @ root.T

  def sample(kernel, starts):
    return tfpa.sample(
      kernel,
      tf.constant(starts, case.dtype),
      work.settings.num_results,
      seed=(seed, 7),
      progress=False,
    )

  build = _BUILDERS[case.method]
  kernel = build(target.target_log_prob_fn, case.num_adaptation_steps)
  learned = sample(kernel, _START_SCALE * exact)
  accept_prob = float(np.mean(learned.trace['is_accepted']))
  oracle = sample(_oracle(case, target, root, accept_prob), exact)
  ess, oracle_ess = (
    geyer_ess(result.states).reshape(case.num_chains, -1).sum(0)
    for result in (learned, oracle)
  )
  num_draws = work.settings.num_results * case.num_chains
  factor = tfpa.learned_factor(kernel, learned.final_kernel_results)
  # Singular values of C^-1 chol(Sigma): all are equal for the best C.
  left = np.linalg.svd(np.linalg.solve(factor, root), compute_uv=False)
  return dict(
    case._asdict(),
    min_ratio=float(ess.min() / oracle_ess.min()),
    median_ratio=float(np.median(ess) / np.median(oracle_ess)),
    accept=accept_prob,
    oracle_accept=float(np.mean(oracle.trace['is_accepted'])),
    min_ess_per_gradient=float(ess.min() / num_draws),
    condition_left=float((left[0] / left[-1]) ** 2),
  )


STUDY = Study(cases, run, Length, seeds=(0, 1, 2, 3, 4))


def _oracle(case, target, root, accept_prob):
  """Returns the kernel with C = c chol(Sigma), whose c is tuned."""
  proposal = _PROPOSALS[case.method](
    target.target_log_prob_fn,
    fixed_preconditioner(root),
    1.5 * case.event_size ** (-1 / 6),
  )
  return tfp.mcmc.DualAveragingStepSizeAdaptation(
    tfpa.MetropolisHastings(proposal),
    num_adaptation_steps=_NUM_TUNING_STEPS,
    target_accept_prob=accept_prob,
  )
