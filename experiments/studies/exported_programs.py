"""Every kernel's programs as files that a GPU runs without TensorFlow.

  python -m experiments.studies.exported_programs DIRECTORY [--only TEXT]

TensorFlow hands XLA a program as HLO; so does JAX. What is written here runs
where JAX is and TensorFlow is not, by `exported_run`. For each case of
`kernel_cases`: a program of the adapting kernel, one of what it learned here,
and one of a kernel of another law, tempered. Larger targets have what was
learned alone, of three numbers of chains. The number of steps and the seed are
arguments, the number of chains is not. Cases that are there are kept.
"""

import argparse
import functools
import json
import lzma
import pathlib
import re

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.studies import bench_devices
from experiments.studies import kernel_cases
from experiments.studies import large_targets
from experiments.studies.kernel_cases import Case
from experiments.studies.kernel_cases import Law
from experiments.studies.placement import as_if_there
from experiments.targets import log_gaussian_cox
from experiments.targets.logistic_regression import logistic_regression_target
from tfp_adaptive.core import random

__all__ = ['LARGE', 'PROGRAMS', 'large_cases', 'lowered', 'programs', 'write']

PROTOCOL = bench_devices.FULL
# Name -> law's temper, None while it adapts; and number of chains.
PROGRAMS = {
  'adapting': (None, PROTOCOL.num_judges),
  'frozen': (1.0, PROTOCOL.num_judges),
  'frozen, few chains': (1.0, 100),
  'other law': (bench_devices.TEMPER, PROTOCOL.num_judges),
}
LARGE = {
  f'frozen, {num_chains} chains': (1.0, num_chains)
  for num_chains in (100, 1000, 10_000)
}
_NUM_ROWS, _NUM_FEATURES = 2000, 99  # Of a regression, and a constant.
_PATH, _COUPLING, _SIDE = 1000, 0.9, 64  # Lengths; of the grid of counts.


def large_cases():
  """Yields cases whose laws are not judged, whose sizes users have."""
  rng = np.random.default_rng(0)
  inputs = rng.normal(size=(_NUM_ROWS, _NUM_FEATURES))
  inputs = np.concatenate([inputs, np.ones([_NUM_ROWS, 1])], axis=1)
  weights = 0.5 * rng.normal(size=_NUM_FEATURES + 1)
  chances = 1.0 / (1.0 + np.exp(-inputs @ weights))
  target = logistic_regression_target(
    'logistic', inputs, rng.random(_NUM_ROWS) < chances, 'float32'
  )
  yield _large(
    f'logistic regression, d = {_NUM_FEATURES + 1}: '
    'fisher_divergence_hamiltonian',
    lambda steps: tfpa.fisher_divergence_hamiltonian(
      target.target_log_prob_fn, steps, num_leapfrog_steps=5
    ),
    lambda count, seed: weights + 0.05 * _normal(count, len(weights), seed),
  )
  path = large_targets.path(
    *('entropy_adaptive_hamiltonian', 'tridiagonal', _COUPLING, _PATH),
    PROTOCOL.num_adaptation_steps,
  )
  yield _large(
    f'path, d = {_PATH}: entropy_adaptive_hamiltonian, tridiagonal',
    lambda steps: tfpa.entropy_adaptive_hamiltonian(
      path.target_log_prob_fn, steps, num_leapfrog_steps=5, **path.options
    ),
    path.draw,
  )
  yield _cox()


def _cox():
  """Returns the case of counts on a grid, with the prior on its torus."""
  counts = log_gaussian_cox.simulate_counts(_SIDE, 'cells', 0)
  prior = log_gaussian_cox.stationary_prior(_SIDE, 'cells', 'float32')
  target = log_gaussian_cox.log_gaussian_cox_target(counts, prior)
  latent = target.latent
  return _large(
    f'Cox process, {_SIDE} x {_SIDE}: marginal_gradient, stationary',
    lambda steps: tfpa.marginal_gradient(
      latent.log_likelihood_fn, latent.prior, num_adaptation_steps=steps
    ),
    target.sample_prior,
  )


def _large(name, build, draw):
  law = Law(mean=[], variances=[], draw=draw)
  return Case(name, lambda steps, temper=1.0: build(steps), law, tf.identity)


def _normal(count, size, seed):
  return np.random.default_rng(seed).normal(size=(count, size))


def lowered(kernel, start):
  """Returns serialized HLO for a GPU, and what it takes beside its arguments.

  The program is (state, steps, seed, *constants) -> state.

  Args:
    kernel: A `tfp.mcmc.TransitionKernel`; its results are made in the program.
    start: State, whose shapes and dtypes are those of the program.
  """

  @tf.function(jit_compile=True, autograph=False)
  def run(flat, num_steps, seed):
    state = tf.nest.pack_sequence_as(start, flat)

    def body(step, state, results):
      seeds = random.fold_in(seed, step)
      return step + 1, *kernel.one_step(state, results, seed=seeds)

    _, state, _ = tf.while_loop(
      lambda step, *_: step < num_steps,
      body,
      (0, state, kernel.bootstrap_results(state)),
    )
    return tf.nest.flatten(state)

  arguments = tf.nest.flatten(start), tf.constant(1), tf.constant([7, 8])
  captured = run.get_concrete_function(*arguments).captured_inputs
  ir = run.experimental_get_compiler_ir(*arguments)
  hlo = ir(stage='hlo_serialized', platform_name='GPU')
  return hlo, [np.asarray(constant) for constant in captured]


def programs(case, names=PROGRAMS):
  """Yields each program's name, what `lowered` gives, and a start.

  Args:
    case: A `kernel_cases.Case`.
    names: {name: (temper or None, number of chains)}.
  """
  learned = functools.cache(
    lambda temper: bench_devices.learned(case, PROTOCOL, temper)[0]
  )
  for name, (temper, num_chains) in names.items():
    start = bench_devices.draws(case, num_chains, 2)
    if temper is None:
      kernel = case.build(PROTOCOL.num_adaptation_steps)
    else:
      kernel = learned(temper)
    yield name, *lowered(kernel, start), tf.nest.flatten(start)


def write(case, directory, names=PROGRAMS):
  """Writes a case's programs, its start and what its law is."""
  stem = _stem(case.name)
  manifest = directory / f'{stem}.json'
  if manifest.exists():
    return
  starts, files, sizes = directory / f'{stem}.npz', {}, {}
  for name, hlo, constants, start in programs(case, names):
    files[name] = f'{stem}-{_stem(name)}'
    sizes[name] = names[name][1]
    (directory / f'{files[name]}.hlo.xz').write_bytes(lzma.compress(hlo))
    np.savez_compressed(directory / f'{files[name]}.npz', *constants)
    if name.startswith('frozen') and not starts.exists():
      np.savez_compressed(starts, *(np.asarray(part) for part in start))
  row = dict(
    name=case.name,
    stem=stem,
    files=files,
    num_chains=sizes,
    mean=np.asarray(case.law.mean).tolist(),
    variances=np.asarray(case.law.variances).tolist(),
  )
  manifest.write_text(json.dumps(row))


def _stem(name):
  return re.sub(r'\W+', '-', name)


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('directory', type=pathlib.Path)
  parser.add_argument('--only', default='', help='cases whose name holds it')
  arguments = parser.parse_args()
  arguments.directory.mkdir(parents=True, exist_ok=True)
  for found, names in (
    (large_cases(), LARGE),
    (kernel_cases.cases(), PROGRAMS),
  ):
    for case in found:
      if arguments.only in case.name:
        with as_if_there('GPU'):
          write(case, arguments.directory, names)
        print(case.name, flush=True)


if __name__ == '__main__':
  main()
