"""`sample_posterior` on the panel's targets: its choices and its errors.

Each run is one call with the density and the panel's budget of gradients,
warm-up included. The verdict of the call is compared with the panel's checks
and with the truth. The full S&P 500 path has ten times the gradients:

  python -m experiments run front_door --seeds 0:2 \\
    --set panel=configs/inference_gym/full_path.yaml
"""

import functools
import time
import warnings
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.papers import diagnostics
from experiments.run import find
from experiments.run.study import Settings
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.studies.panel import accuracy
from experiments.studies.panel import truth as truth_lib
from experiments.studies.panel.config import load_panel
from tfp_adaptive.driver import convergence
from tfp_adaptive.posterior.judge import tails
from tfp_adaptive.posterior.judge import verdict


class Choice(Settings):
  """The panel with its targets, budgets and checks."""

  panel: str = 'configs/inference_gym/panel.yaml'


class Case(NamedTuple):
  """A target of a panel, by its label."""

  panel: str
  target: str


def cases(settings: Choice) -> dict[str, Case]:
  """Returns the targets of the panel by label."""
  labels = load_panel(find.ROOT / settings.panel).targets
  return {label: Case(settings.panel, label) for label in labels}


def run(case: Case, seed: int, work: Work) -> dict[str, Any]:
  """Returns the choices, the verdict and the errors of one call."""
  panel = load_panel(find.ROOT / case.panel)
  target, truth = _target(case, work.data_dir)
  begin = time.monotonic()
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', UserWarning)
    posterior = tfpa.sample_posterior(
      target.target_log_prob_fn,
      seed=seed,
      num_chains=panel.config.num_chains,
      init=tf.TensorSpec([target.event_size], target.dtype),
      max_gradients=panel.budget(case.target).gradients_per_chain,
      jit_compile=panel.is_jit_compiled(case.target),
      progress=False,
    )
  seconds = time.monotonic() - begin
  summary = diagnostics.summarize(posterior.unconstrained)
  sizes = {
    name: float(np.nanmin(getattr(summary, name)))
    for name in ('ess', 'ess_squared', 'ess_bulk', 'ess_tail')
  }
  rhat = float(np.nanmax(summary.rhat))
  return {
    'event_size': target.event_size,
    'converged': posterior.converged,
    'failed': posterior.failed,
    'passes_gates': rhat < panel.gates.max_rhat
    and min(sizes.values()) >= panel.gates.min_ess,
    **_errors(target, truth, posterior),
    'rhat': rhat,
    **sizes,
    'doubts': posterior.verdict.doubts,
    'share_diverging': posterior.verdict.share_diverging,
    'choice': posterior.choice,
    'num_gradients': posterior.num_gradients,
    'max_gradients': panel.budget(case.target).gradients_per_chain,
    'seconds': seconds,
    'report': [stage._asdict() for stage in posterior.report],
  }


STUDY = Study(cases, run, Choice, seeds=tuple(range(10)))


@functools.lru_cache(maxsize=1)  # All seeds of a target share its compilations.
def _target(case, data_dir):
  """Returns the target and its truth, which may be `None`."""
  return load_panel(find.ROOT / case.panel).problem(case.target, data_dir)


def _errors(target, truth, posterior):
  """Returns the worst errors in standard errors, or `None` without a truth.

  `z` covers all moments in the model's own coordinates. `z_vouched` covers the
  moments for which the verdict vouches. These have no heavy tails, and are no
  deviations that depend on visits of narrow regions.
  """
  if truth is None or not truth.is_converged:
    return {'z': None, 'z_vouched': None}
  draws = truth_lib.coordinates(target, posterior.unconstrained)
  heavy = tails.of_draws(draws, convergence.diagnose(draws).ess_tail)
  counts = ~heavy.is_heavy
  visits = verdict.are_visits(posterior.trace)
  shares = verdict.shares_of_variance(draws, visits)
  counts[1] &= shares <= verdict.LARGEST_SHARE_OF_VISITS
  vouched = accuracy.worst_z(draws, truth, counts) if counts.any() else None
  return {
    'z': accuracy.worst_z(draws, truth).worst,
    'z_vouched': vouched and vouched.worst,
    'num_moments': counts.size,
    'num_vouched': int(counts.sum()),
    'largest_k': [float(np.nanmax(k)) for k in (heavy.value, heavy.square)],
  }
