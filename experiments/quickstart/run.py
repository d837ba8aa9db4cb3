"""Runs both samplers on a posterior and judges their draws by the same gates.

Each has its defaults, the same chains and draws, and one clock from the call to
draws on the host: XLA's compilation is part of what a user waits for.
"""

import contextlib
import time
import warnings
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.run import machine
from tfp_adaptive.driver import convergence
from tfp_adaptive.posterior import verdict as verdict_lib

__all__ = [
  'NUM_CHAINS',
  'NUM_DRAWS',
  'NUTS',
  'Outcome',
  'SAMPLERS',
  'record',
  'run',
  'worst_error',
]

NUTS = 'NUTS, windowed'
NUM_DRAWS = 1000
NUM_CHAINS = 8
_NUM_WARMUP_STEPS = 500  # TFP's default.


class Outcome(NamedTuple):
  """What a sampler returned.

  Attributes:
    names: Of the coordinates, [d].
    values: Draws of them, [draws, chains, d].
    trace: dict of [draws, chains]: `target_log_prob`, `diverging`.
    num_gradients: Of each chain, warm-up included.
    found: What the sampler says that it chose, or ''.
    seconds: Of the wall, compilation included.
    cpu_seconds: Of all threads; load by others does not enter.
    num_warmup_gradients: Of each chain, before the first draw.
    own_converged: Its own verdict, which may be stricter; `None` of a sampler
      that has none.
  """

  names: list
  values: np.ndarray
  trace: dict
  num_gradients: float
  found: str = ''
  seconds: float = 0.0
  cpu_seconds: float = 0.0
  num_warmup_gradients: float = 0.0
  own_converged: bool | None = None


def run(sampler, model, seed, progress=False):
  """Returns the `Outcome` of a sampler.

  Args:
    sampler: Key of `SAMPLERS`.
    model: Joint distribution with its data.
    seed: Int.
    progress: Whether a sampler that can tells on stderr what is going on.
  """
  begin, cpu_begin = time.monotonic(), time.process_time()
  with _without_warnings():
    outcome = SAMPLERS[sampler](model, seed, progress)
  return outcome._replace(
    seconds=time.monotonic() - begin,
    cpu_seconds=time.process_time() - cpu_begin,
  )


def record(posterior, sampler, seed, outcome, exact_means):
  """Returns dict of what is kept of an outcome, for JSON.

  Args:
    posterior: Name of the posterior.
    sampler: Key of `SAMPLERS`.
    seed: Int.
    outcome: `Outcome`.
    exact_means: {name: posterior mean}, those that are known.
  """
  verdict = verdict_lib.judge(
    outcome.names, outcome.values, outcome.trace, convergence.LEAST_ESS
  )
  means = np.mean(outcome.values, axis=(0, 1), dtype=np.float64)
  deviations = np.std(outcome.values, axis=(0, 1), dtype=np.float64)
  errors = deviations / np.sqrt(verdict.diagnosis.ess_moments[:-1])
  moments = dict(zip(outcome.names, np.stack([means, errors], -1).tolist()))
  sizes = {name: verdict.worst(name) for name in ('ess_bulk', 'ess_tail')}
  return {
    'posterior': posterior,
    'sampler': sampler,
    'seed': seed,
    'converged': not verdict.failed,
    'own_converged': outcome.own_converged,
    'verdict': repr(verdict),
    'found': outcome.found,
    **{name: worst and worst[0] for name, worst in sizes.items()},
    'num_gradients': float(outcome.num_gradients),
    'num_warmup_gradients': float(outcome.num_warmup_gradients),
    'seconds': outcome.seconds,
    'cpu_seconds': outcome.cpu_seconds,
    # Mean and its standard error.
    'means': moments,
    'worst_error': worst_error(moments, exact_means),
    'version': tfpa.__version__,
    'commit': machine.commit(),
  }


def worst_error(means, exact_means):
  """Returns the error in standard errors, and its name; None: nothing known.

  Args:
    means: {name: (mean, standard error)}.
    exact_means: {name: mean}.
  """
  errors = [
    ((means[name][0] - exact) / means[name][1], name)
    for name, exact in exact_means.items()
  ]
  return max(errors, key=lambda error: abs(error[0]), default=None)


def _sample_posterior(model, seed, progress):
  posterior = tfpa.sample_posterior(
    model, NUM_DRAWS, NUM_CHAINS, seed, progress=progress
  )
  return Outcome(
    *_coordinates(posterior.states),
    posterior.trace,
    posterior.num_gradients,
    posterior.choice,
    # The last stage is the sampling that was kept.
    num_warmup_gradients=posterior.num_gradients
    - posterior.report[-1].num_gradients,
    own_converged=posterior.converged,
  )


def _windowed_nuts(model, seed, progress):
  del progress  # TFP's is silent.

  def sample(seed):
    return tfp.experimental.mcmc.windowed_adaptive_nuts(
      NUM_DRAWS,
      model,
      n_chains=NUM_CHAINS,
      num_adaptation_steps=_NUM_WARMUP_STEPS,
      discard_tuning=False,  # Its gradients count.
      seed=seed,
    )

  # Half as long as without XLA.
  compiled = tf.function(sample, autograph=False, jit_compile=True)
  states, trace = compiled(tf.constant([0, seed]))
  recorded = {
    name: trace[name][_NUM_WARMUP_STEPS:].numpy()
    for name in ('target_log_prob', 'diverging')
  }
  # Chains go on together: the longest of a step is what all wait for.
  taken = np.max(trace['n_steps'], axis=-1)
  names, values = _coordinates(states)
  return Outcome(
    names,
    values[_NUM_WARMUP_STEPS:],
    recorded,
    np.sum(taken),
    num_warmup_gradients=np.sum(taken[:_NUM_WARMUP_STEPS]),
  )


# Name -> (model, seed, progress) -> `Outcome`, the clock's fields left out.
SAMPLERS = {'sample_posterior': _sample_posterior, NUTS: _windowed_nuts}


def _coordinates(states):
  """Returns names [d] and values [n, chains, d] of a joint distribution's."""
  parts = states._asdict()
  return verdict_lib.coordinates(
    list(parts), [np.asarray(part) for part in parts.values()]
  )


@contextlib.contextmanager
def _without_warnings():
  """Keeps what TensorFlow logs, and warnings, off the terminal.

  The verdict, which is shown, says more of the draws.
  """
  logger = tf.get_logger()
  level = logger.level
  logger.setLevel('ERROR')
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      yield
  finally:
    logger.setLevel(level)
