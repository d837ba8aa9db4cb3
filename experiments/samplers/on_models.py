"""Samplers with their defaults on models as users write them.

`run` runs this library and TFP's NUTS in this process. `run_theirs` runs the
other samplers in another interpreter. All get the same numbers of chains and
draws, and one judge. The clock runs from the call to draws on the host,
compilation included.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.run.errors import Refused
from experiments.samplers import theirs
from tfp_adaptive.driver import convergence
from tfp_adaptive.posterior.judge import verdict as verdict_lib

OURS, NUTS = 'sample_posterior', 'NUTS, windowed'
# Defaults of `sample_posterior`; the other samplers get the same.
NUM_DRAWS, NUM_CHAINS = 1000, 8
_NUM_LONG_DRAWS = 5000
_NUM_WARMUP_STEPS = 500  # TFP's default.
_TRACED = ('target_log_prob', 'diverging', 'log_accept_ratio')
_MOST_ERROR = 2000  # Most characters of the output of a failed process.


class Outcome(NamedTuple):
  """The result of a sampler, and its cost.

  Attributes:
    states: Draws of all unknowns by name, [draws, chains, ...].
    trace: Arrays [draws, chains]: `target_log_prob`, `diverging`.
    num_gradients: Gradients of each chain, warm-up included.
    num_warmup_gradients: Gradients of each chain before the first draw.
    found: The sampler's report of its choices, or ''.
    own_converged: The sampler's own verdict, which may be stricter, or `None`.
    cost: Wall time `seconds`, `cpu_seconds` of all threads and children, and
      `peak_bytes`.
    more: JSON values that only this sampler has.
  """

  states: Mapping[str, np.ndarray]
  trace: Mapping[str, np.ndarray]
  num_gradients: float
  num_warmup_gradients: float = 0.0
  found: str = ''
  own_converged: bool | None = None
  cost: Mapping[str, float] = {}
  more: Mapping[str, Any] = {}


def run(
  sampler: str,
  build: Callable[[], Any],
  seed: int,
  progress: bool = False,
  **pins: Any,
) -> Outcome:
  """Returns the outcome of `OURS` or `NUTS`; compilation is timed.

  Args:
    progress: Whether a sampler that can do so shows its progress.
    **pins: Data by name, for a joint distribution without pins. TFP's NUTS
      takes no pins.
  """
  clock = theirs.Clock()
  with _without_warnings():
    outcome = SAMPLERS[sampler](build(), seed, progress, **pins)
  return outcome._replace(cost=clock.read())


def _sample_posterior(model, seed, progress, **pins):
  posterior = tfpa.sample_posterior(
    model,
    num_draws=NUM_DRAWS,
    num_chains=NUM_CHAINS,
    seed=seed,
    progress=progress,
    **pins,
  )
  stages = [
    [stage.name, stage.found, float(stage.num_gradients), float(stage.seconds)]
    for stage in posterior.report
  ]
  return Outcome(
    _numpy(posterior.states),
    posterior.trace,
    float(posterior.num_gradients),
    # The last stage has the draws that were kept.
    float(posterior.num_gradients - posterior.report[-1].num_gradients),
    posterior.choice,
    bool(posterior.converged),
    more={
      'failed': posterior.failed,
      'ended_by': posterior.ended_by,
      'stages': stages,
    },
  )


def _windowed_nuts(model, seed, progress):
  del progress  # TFP's NUTS shows no progress.

  def sample(seed):
    return tfp.experimental.mcmc.windowed_adaptive_nuts(
      NUM_DRAWS,
      model,
      n_chains=NUM_CHAINS,
      num_adaptation_steps=_NUM_WARMUP_STEPS,
      discard_tuning=False,  # Gradients of tuning count.
      seed=seed,
    )

  # XLA halves the time.
  compiled = tf.function(sample, autograph=False, jit_compile=True)
  states, trace = compiled(tf.constant([0, seed]))
  kept = slice(_NUM_WARMUP_STEPS, None)
  # Chains move together, and wait for the longest trajectory of a step.
  taken = np.max(trace['n_steps'], axis=-1)
  return Outcome(
    {name: part[kept] for name, part in _numpy(states).items()},
    {
      name: trace[name][kept].numpy()
      for name in ('target_log_prob', 'diverging')
    },
    float(np.sum(taken)),
    float(np.sum(taken[:_NUM_WARMUP_STEPS])),
  )


# Name -> function (model, seed, progress) -> `Outcome` without its cost.
SAMPLERS = {OURS: _sample_posterior, NUTS: _windowed_nuts}


def _numpy(states):
  parts = states if isinstance(states, Mapping) else states._asdict()
  return {name: np.asarray(x) for name, x in parts.items()}


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
  """Hides warnings and TensorFlow's logs.

  The verdict, which is shown, says more about the draws.
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


def run_theirs(
  sampler: str,
  model: str | os.PathLike,
  data: Mapping[str, np.ndarray],
  seed: int,
  python: str | None,
) -> Outcome:
  """Returns the outcome of a sampler in another interpreter.

  Args:
    python: Path of the interpreter, or `None`.

  Raises:
    Refused: If there is no interpreter.
    RuntimeError: If the process failed; the message has its last output.
  """
  task = {
    'model': str(model),
    'sampler': sampler,
    'seed': seed,
    'num_chains': NUM_CHAINS,
    'num_draws': _NUM_LONG_DRAWS if is_long(sampler) else NUM_DRAWS,
  }
  found = execute(task, python, data=data)
  sampling, warmup = found['gradients'], found['warmup_gradients']
  parts = [name for name in found if name.startswith('states/')]
  compilation = [name for name in found if name.startswith('compile_')]
  return Outcome(
    {name.partition('/')[2]: found[name] for name in parts},
    {name: found[name] for name in _TRACED if name in found},
    float(warmup + sampling),
    float(warmup),
    cost={
      name: float(found[name])
      for name in ('seconds', 'cpu_seconds', 'peak_bytes')
    },
    more={
      **{name: float(found[name]) for name in compilation},
      'versions': json.loads(str(found['versions'])),
    },
  )


def is_long(sampler: str) -> bool:
  """Returns whether a sampler draws five times as much as the others."""
  return sampler.endswith(('long', '5000 draws'))


def execute(
  task: Mapping[str, Any], python: str | None, **inputs: Mapping
) -> dict[str, np.ndarray]:
  """Returns the arrays that `theirs.py` writes for a task.

  Args:
    python: Path of the interpreter, or `None`.
    **inputs: Arrays by name: `data`, and `points` for densities.

  Raises:
    Refused: If there is no interpreter.
    RuntimeError: If the process failed; the message has its last output.
  """
  if python is None:
    raise Refused(
      f'{task["sampler"]} runs in its own environment. Write `make '
      'peers`, then `--python .peers/bin/python --redo refused`. For Stan, '
      'name a Python that has pystan, or nutpie[stan].'
    )
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    (folder / 'task.json').write_text(json.dumps(task))
    for name, arrays in inputs.items():
      np.savez(folder / f'{name}.npz', **arrays)
    # Caches are empty, because the first compilation is timed. For densities at
    # a few points, compiling C would take too long.
    flags = 'cxx=' if 'points' in inputs else f'compiledir={folder}/compiled'
    environment = {
      **os.environ,
      'PYTENSOR_FLAGS': flags,
      'XDG_CACHE_HOME': str(folder),
    }
    environment.pop('PYTHONPATH', None)
    result = subprocess.run(
      [python, theirs.__file__, str(folder)],
      env=environment,
      capture_output=True,
      text=True,
    )
    if result.returncode:
      raise RuntimeError(result.stderr[-_MOST_ERROR:])
    written = 'densities' if 'points' in inputs else 'draws'
    with np.load(folder / f'{written}.npz') as file:
      return dict(file)


def record(
  outcome: Outcome, exact_means: Mapping[str, float] | None = None
) -> dict[str, Any]:
  """Returns the JSON values of an outcome for its record."""
  names, values = coordinates(outcome.states)
  # All libraries are judged alike, and the others record no first proposals.
  trace = dict(outcome.trace)
  trace.pop('least_first_ratio', None)
  verdict = verdict_lib.judge(names, values, trace, convergence.LEAST_ESS)
  means = np.mean(values, axis=(0, 1), dtype=np.float64)
  deviations = np.std(values, axis=(0, 1), dtype=np.float64)
  errors = deviations / np.sqrt(verdict.diagnosis.ess_moments[:-1])
  moments = dict(zip(names, np.stack([means, errors], -1).tolist()))
  known = [
    ((moments[name][0] - exact) / moments[name][1], name)
    for name, exact in (exact_means or {}).items()
  ]
  sizes = {name: verdict.worst(name) for name in ('ess_bulk', 'ess_tail')}
  return {
    'converged': not verdict.failed,
    'own_converged': outcome.own_converged,
    'verdict': repr(verdict),
    'found': outcome.found,
    **{name: worst and worst[0] for name, worst in sizes.items()},
    'num_gradients': outcome.num_gradients,
    'num_warmup_gradients': outcome.num_warmup_gradients,
    **outcome.cost,
    # Means and their standard errors.
    'means': moments,
    'worst_error': max(known, key=lambda pair: abs(pair[0]), default=None),
    **outcome.more,
  }


def coordinates(
  states: Mapping[str, np.ndarray],
) -> tuple[list[str], np.ndarray]:
  """Returns names [d] and values [draws, chains, d] of all unknowns."""
  return verdict_lib.coordinates(list(states), list(states.values()))
