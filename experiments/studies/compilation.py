"""What a run costs before its first draw, and the ways around it.

The target is a standard normal in ten dimensions or a logistic regression, with
four chains, 500 adapting steps and 500 draws. Seconds are those of the
processor, summed over threads, so that other work on the machine changes them
little: `before` the first step (tracing and XLA) and for the `steps`. For
`sample_posterior`, `whole` is everything, and `first_line` is the wall time
until it prints.
"""

import contextlib
import io
import multiprocessing
import time
import warnings
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.run.study import Settings
from experiments.run.study import Study
from experiments.run.study import Work

_SIZE, _NUM_ROWS, _NUM_CHAINS, _NUM_STEPS = 10, 300, 4, 500


class Case(NamedTuple):
  """A sampler, a density, and what there is before the seconds count.

  Attributes:
    sampler: Key of `_KERNELS`, or 'posterior' for `sample_posterior`.
    density: 'normal', 'at once' or 'loop'.
    jit_compile: Whether XLA compiles.
    before: Nothing, or what the same process has run ('seed', 'kernel'), or
      that an earlier process has filled the cache ('process').
  """

  sampler: str
  density: str = 'normal'
  jit_compile: bool = True
  before: str | None = None


_CASES = {
  'MALA': Case('langevin'),
  'MALA, without XLA': Case('langevin', jit_compile=False),
  'MALA, another seed in the same process': Case('langevin', before='seed'),
  'MALA, built again in the same process': Case('langevin', before='kernel'),
  'MALA, from the cache of an earlier process': Case(
    'langevin', before='process'
  ),
  'kernel HMC': Case('kernel'),
  'HMC by entropy, L = 3': Case('entropy'),
  'HMC by Fisher divergence, learned lengths': Case('fisher'),
  'HMC by Fisher divergence, L = 5': Case('fisher, given'),
  'the same, from the cache of an earlier process': Case(
    'fisher', before='process'
  ),
  'HMC behind a conditional Gaussian': Case('conditional'),
  'sample_posterior': Case('posterior'),
  'sample_posterior, without XLA': Case('posterior', jit_compile=False),
  'sample_posterior, another seed in the same process': Case(
    'posterior', before='seed'
  ),
  'sample_posterior, from the cache of an earlier process': Case(
    'posterior', before='process'
  ),
  'MALA, a regression of 300 rows at once': Case('langevin', 'at once'),
  'MALA, the same row by row in a Python loop': Case('langevin', 'loop'),
}
_KERNELS: dict[str, Callable] = {
  'langevin': tfpa.gradient_adaptive_langevin,
  'kernel': tfpa.kernel_hamiltonian,
  'fisher': tfpa.fisher_divergence_hamiltonian,
  'fisher, given': lambda f, n: tfpa.fisher_divergence_hamiltonian(
    f, n, num_leapfrog_steps=(1, 5)
  ),
  'entropy': lambda f, n: tfpa.entropy_adaptive_hamiltonian(
    f, num_leapfrog_steps=3, num_adaptation_steps=n
  ),
  'conditional': lambda f, n: tfpa.transport_adaptive_hamiltonian(
    f, n, transport=tfpa.transports.conditional_gaussian()
  ),
}


def cases(settings: Settings) -> dict[str, Case]:
  """Returns all cases by name."""
  del settings
  return _CASES


def run(case: Case, seed: int, work: Work) -> dict[str, Any]:
  """Returns the seconds of a case. The process must have run nothing before."""
  del seed
  if case.before == 'process':
    folder = str(work.checkpoints)
    # The program must come from a process that has ended.
    earlier = multiprocessing.get_context('spawn').Process(
      target=_fill_cache, args=(case, folder)
    )
    earlier.start()
    earlier.join()
    if earlier.exitcode:
      raise RuntimeError(f'The earlier process ended with {earlier.exitcode}.')
    tfpa.cache_compilations(folder)
  return _measure(case)


STUDY = Study(cases, run, process='cell')


def _fill_cache(case, folder):
  tfpa.cache_compilations(folder)
  _measure(case)


def _measure(case):
  tf.zeros([1]).numpy()  # TensorFlow starts its devices.
  density = _density(case.density)
  if case.sampler == 'posterior':
    return _measure_posterior(case, density)
  kernel = _KERNELS[case.sampler](density, _NUM_STEPS)
  if case.before in ('seed', 'kernel'):
    _sample(kernel, 0, case.jit_compile)
  if case.before == 'kernel':
    kernel = _KERNELS[case.sampler](density, _NUM_STEPS)
  begin, wall = time.process_time(), time.monotonic()
  result = _sample(kernel, 1, case.jit_compile)
  whole, wall = time.process_time() - begin, time.monotonic() - wall
  # The program is compiled now: a second run takes the seconds of its steps.
  begin = time.process_time()
  _sample(kernel, 2, case.jit_compile)
  steps = time.process_time() - begin
  return dict(
    before=round(max(0.0, whole - steps), 2),
    steps=round(steps, 2),
    wall=round(wall, 2),
    wall_compiling=round(result.seconds['compile'], 2),
  )


class _Listener(io.StringIO):
  """Text that knows when its first line came."""

  first = None

  def write(self, text):
    if self.first is None:
      self.first = time.monotonic()
    return super().write(text)


def _measure_posterior(case, density):
  for seed in (1, 0) if case.before == 'seed' else (0,):
    begin, wall = time.process_time(), time.monotonic()
    with contextlib.redirect_stderr(_Listener()) as told:
      tfpa.sample_posterior(
        density,
        init=tf.TensorSpec([_SIZE]),
        seed=seed,
        num_chains=_NUM_CHAINS,
        jit_compile=case.jit_compile,
      )
  return dict(
    whole=round(time.process_time() - begin, 2),
    wall=round(time.monotonic() - wall, 2),
    first_line=round(told.first - wall, 2),
  )


def _sample(kernel, seed, jit_compile):
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # So few draws are worth a warning.
    return tfpa.sample(
      kernel,
      tf.zeros([_NUM_CHAINS, _SIZE]),
      _NUM_STEPS,
      seed=seed,
      jit_compile=jit_compile,
      progress=False,
    )


def _density(name):
  """Returns a log density of states [chains, 10]."""
  rng = np.random.default_rng(0)
  inputs = rng.normal(size=(_NUM_ROWS, _SIZE)).astype(np.float32)
  labels = rng.integers(2, size=_NUM_ROWS).astype(np.float32)

  def normal(x):
    return -0.5 * tf.reduce_sum(x**2, axis=-1)

  def at_once(x):
    logits = tf.matmul(x, inputs, transpose_b=True)
    fit = labels * logits - tf.math.softplus(logits)
    return normal(x) + tf.reduce_sum(fit, axis=-1)

  def loop(x):
    total = normal(x)
    for row, label in zip(inputs, labels):
      logit = tf.reduce_sum(x * row, axis=-1)
      total += label * logit - tf.math.softplus(logit)
    return total

  return {'normal': normal, 'at once': at_once, 'loop': loop}[name]
