"""Resident memory of one process that samples many kernels, each once.

  python -m experiments.studies.bench_memory [--only LABEL] [--num-kernels 200]

Every kernel is new: its own target, its own programs, 20 adapting steps and 20
draws of two chains. Kernels go round all families of the library; after each
the garbage collector runs. A row is what the process holds after the tenth
kernel and after the last. Under XLA a process keeps what was compiled for as
long as it lives, whoever asked for it: TFP's own HMC is the measure of that.
Every row is measured in a process of its own; rows that are not measured again
stay in the file.
"""

import argparse
import concurrent.futures
import gc
import json
import multiprocessing
import pathlib
import time
import warnings

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow.python.framework.func_graph import FuncGraph

import tfp_adaptive as tfpa
from experiments.samplers import baselines

__all__ = ['FAMILIES', 'ROWS', 'measure']

_NUM_STEPS = 20
_SIZE = 6
_NUM_CHAINS = 2
_NUM_FIRST = 10  # Kernels whose memory does not count: TF loads what it needs.
_RESULTS_FILE = pathlib.Path('docs/results/memory.json')


def _target():
  """Returns a Gaussian density that no kernel has seen."""
  precision = np.eye(_SIZE, dtype=np.float32) + 0.1
  return lambda x: -0.5 * tf.reduce_sum(tf.matmul(x, precision) * x, axis=-1)


def _log_likelihood():
  return lambda x: -0.5 * tf.reduce_sum((x - 1.0) ** 2, axis=-1)


def _prior(length_scale=2.0, amplitude=1.0):
  return tfpa.gaussian_priors.spectral(
    kernel=tfp.math.psd_kernels.MaternThreeHalves(amplitude, length_scale),
    index_points=np.arange(_SIZE, dtype=np.float32)[:, np.newaxis],
  )


def _latent(builder, *args, **options):
  return lambda: builder(_log_likelihood(), _prior(), *args, **options)


def _on_target(builder, *args, **options):
  return lambda: builder(_target(), *args, **options)


def _hamiltonian(structure):
  return _on_target(
    tfpa.entropy_adaptive_hamiltonian,
    _NUM_STEPS,
    num_leapfrog_steps=3,
    preconditioner=structure,
  )


def _of_tfp():
  return tfp.mcmc.HamiltonianMonteCarlo(_target(), 0.3, 3)


def _families():
  structures = tfpa.preconditioners
  steps = _NUM_STEPS
  return {
    'random walk': _on_target(tfpa.gradient_adaptive_random_walk, steps),
    'Langevin': _on_target(tfpa.gradient_adaptive_langevin, steps),
    'Langevin, exact gradient': _on_target(
      tfpa.gradient_adaptive_langevin, steps, exact_gradient=True
    ),
    'HMC, dense': _hamiltonian(structures.cholesky()),
    'HMC, diagonal': _hamiltonian(structures.diagonal()),
    'HMC, tridiagonal': _hamiltonian(structures.tridiagonal()),
    'HMC, banded': _hamiltonian(structures.banded(2)),
    'HMC, arrow': _hamiltonian(structures.arrow(2)),
    'adaptive Metropolis': _on_target(tfpa.adaptive_metropolis, steps),
    'FisherMALA': _on_target(baselines.fisher_adaptive_langevin, steps),
    'Fisher-divergence MALA': _on_target(
      tfpa.fisher_divergence_langevin, steps
    ),
    'variance-ratio MALA': _on_target(baselines.variance_ratio_langevin, steps),
    'kernel HMC': _on_target(tfpa.kernel_hamiltonian, steps),
    'kernel adaptive Metropolis': _on_target(
      baselines.kernel_adaptive_metropolis, steps
    ),
    'transport HMC': _on_target(
      tfpa.transport_adaptive_hamiltonian, steps, num_leapfrog_steps=3
    ),
    'mGrad': _latent(tfpa.marginal_gradient, steps),
    'aGrad-z': _latent(tfpa.auxiliary_gradient, steps),
    'pCN': _latent(tfpa.crank_nicolson, steps),
    'elliptical slice': _latent(tfpa.elliptical_slice),
    'auxiliary Langevin': _on_target(tfpa.auxiliary_langevin, steps),
  }


FAMILIES = _families()
_SAMPLE = 'tfpa.sample, jit_compile='
# label -> (families, jit_compile, share of the kernels asked for).
ROWS = {
  f'all families, {_SAMPLE}False': (FAMILIES, False, 1.0),
  f'all families, {_SAMPLE}True': (FAMILIES, True, 0.2),
  f"TFP's HMC, {_SAMPLE}False": ({'HMC': _of_tfp}, False, 0.2),
  f"TFP's HMC, {_SAMPLE}True": ({'HMC': _of_tfp}, True, 0.2),
}


def measure(label, num_kernels):
  """Returns the row of a label.

  Args:
    label: of `ROWS`.
    num_kernels: of the rows that take their full share.
  """
  families, jit_compile, share = ROWS[label]
  num_kernels = max(_NUM_FIRST + 1, round(share * num_kernels))
  builders = list(families.values())
  start = tf.zeros([_NUM_CHAINS, _SIZE])
  megabytes, begin = [], time.monotonic()
  for i in range(num_kernels):
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      tfpa.sample(
        builders[i % len(builders)](),
        start,
        num_results=_NUM_STEPS,
        num_burnin_steps=_NUM_STEPS,
        seed=i,
        jit_compile=jit_compile,
        progress=False,
      )
    gc.collect()
    megabytes.append(_resident_megabytes())
  growth = megabytes[-1] - megabytes[_NUM_FIRST - 1]
  return {
    'label': label,
    'num_kernels': num_kernels,
    'megabytes_after_ten': round(megabytes[_NUM_FIRST - 1], 1),
    'megabytes_after_all': round(megabytes[-1], 1),
    'growth_megabytes': round(growth, 1),
    'growth_per_kernel': round(growth / (num_kernels - _NUM_FIRST), 2),
    'num_graphs': sum(isinstance(o, FuncGraph) for o in gc.get_objects()),
    'seconds': round(time.monotonic() - begin, 1),
  }


def _resident_megabytes():
  pages = int(pathlib.Path('/proc/self/statm').read_text().split()[1])
  return pages * 4096 / 2**20


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--only', choices=ROWS, help='measure one row')
  parser.add_argument('--num-kernels', type=int, default=200)
  parser.add_argument('--output', type=pathlib.Path, default=_RESULTS_FILE)
  arguments = parser.parse_args()
  rows = {}
  if arguments.output.exists():
    rows = {
      row['label']: row for row in json.loads(arguments.output.read_text())
    }
  for label in [arguments.only] if arguments.only else ROWS:
    with concurrent.futures.ProcessPoolExecutor(
      1, mp_context=multiprocessing.get_context('spawn')
    ) as pool:
      rows[label] = pool.submit(measure, label, arguments.num_kernels).result()
    print(json.dumps(rows[label]), flush=True)
    arguments.output.write_text(
      json.dumps(list(rows.values()), indent=1) + '\n'
    )


if __name__ == '__main__':
  main()
