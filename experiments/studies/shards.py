"""Chains in shards: their law, their bits, and their speed on several devices.

  python -m experiments.studies.shards

Every case is a process of its own, whose CPU is one, two or four logical
devices. **Law**: 20 rotated Gaussians of 10 coordinates, 16 chains, which adapt
in 1, 2 and 4 shards; of means and log variances of all coordinates the errors
in standard errors, whose root mean square is 1 where the law and its error are
right. **Bits**: digests of runs of 4 shards on 1, 2 and 4 devices. **Speed**:
MALA with a dense matrix on a logistic regression, 64 chains, frozen steps a
second of all chains: one program, two shards on two devices, and a process of
half of the chains for each core; three times each, in turn. Parts that the
record has are not measured again.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.framework import diagnostics
from experiments.targets.gaussians import rotated_covariance

__all__ = ['bits', 'law', 'speed']

_FILE = pathlib.Path('docs/results/shards.json')
_NUM_GAUSSIANS, _SIZE, _NUM_CHAINS = 20, 10, 16
_NUM_ROWS, _NUM_FEATURES, _NUM_FAST_CHAINS = 2000, 50, 64


def law(num_shards, num_gaussians=_NUM_GAUSSIANS):
  """Returns root mean squares of errors in standard errors, and the worst."""
  errors = {'mean': [], 'log variance': []}
  for seed in range(num_gaussians):
    covariance = rotated_covariance(np.geomspace(0.1, 10.0, _SIZE), seed)
    factor = tf.constant(np.linalg.cholesky(covariance))

    def log_prob(x, factor=factor):
      white = tf.linalg.triangular_solve(factor, tf.transpose(x))
      return -0.5 * tf.reduce_sum(white**2, axis=0)

    kernel = tfpa.gradient_adaptive_langevin(log_prob, 500)
    rng = np.random.default_rng(seed)
    start = tf.constant(rng.normal(size=[_NUM_CHAINS, _SIZE]))
    devices = ['CPU:0'] * num_shards
    run = tfpa.sample(
      kernel, start, 1000, seed=seed, devices=devices, progress=False
    )
    summary = diagnostics.summarize(run.states)
    variances = np.diag(covariance)
    found = run.states.reshape(-1, _SIZE)
    errors['mean'].extend(
      found.mean(0) / np.sqrt(variances / np.asarray(summary.ess))
    )
    squares = np.mean(found**2, axis=0) / variances
    errors['log variance'].extend(
      np.log(squares) / np.sqrt(2.0 / np.asarray(summary.ess_squared))
    )
  return {
    name: dict(
      root_mean_square=float(np.sqrt(np.mean(np.square(values)))),
      worst=float(np.max(np.abs(values))),
      number=len(values),
    )
    for name, values in errors.items()
  }


def bits(num_devices):
  """Returns the digest of the draws of four shards on so many devices."""
  devices = [f'CPU:{i % num_devices}' for i in range(4)]
  digest = hashlib.sha256()
  for builder in (
    tfpa.gradient_adaptive_langevin,
    tfpa.fisher_divergence_hamiltonian,
  ):
    kernel = builder(
      lambda x: -0.5 * tf.reduce_sum(x**2 / [0.1, 1.0, 10.0], axis=-1), 300
    )
    start = tf.ones([8, 3])
    run = tfpa.sample(
      kernel, start, 500, seed=2, devices=devices, progress=False
    )
    digest.update(np.ascontiguousarray(run.states).tobytes())
  return digest.hexdigest()


def speed(num_chains, devices, num_results=10_000):
  """Returns frozen steps a second of every chain."""
  rng = np.random.default_rng(0)
  features = rng.normal(size=[_NUM_ROWS, _NUM_FEATURES]).astype(np.float32)
  labels = (rng.random(_NUM_ROWS) < 0.5).astype(np.float32)

  def log_prob(x):
    logits = tf.matmul(x, features, transpose_b=True)
    fit = tf.reduce_sum(labels * logits - tf.nn.softplus(logits), axis=-1)
    return fit - 0.5 * tf.reduce_sum(x**2, axis=-1)

  kernel = tfpa.gradient_adaptive_langevin(log_prob, 300)
  start = tf.zeros([num_chains, _NUM_FEATURES])
  run = tfpa.sample(
    kernel, start, num_results, seed=1, devices=devices, progress=False
  )
  return num_results / run.seconds['sampling']


def _start(name, num_devices, *arguments, core=None):
  """Starts a case in a process of its own."""
  case = json.dumps([name, num_devices, *arguments])
  command = [sys.executable, '-m', __spec__.name, '--case', case]
  if core is not None:
    command = ['taskset', '-c', str(core), *command]
  return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _ended(process):
  out, _ = process.communicate()
  if process.returncode:
    raise RuntimeError(f'A case ended with exit code {process.returncode}.')
  return json.loads(out.splitlines()[-1])


def _one(*case):
  return _ended(_start(*case))


def _speeds():
  """Returns steps a second of all chains, by how they were divided."""
  half = _NUM_FAST_CHAINS // 2
  rows = {'one program': [], 'two devices': [], 'a process per core': []}
  for _ in range(3):
    rows['one program'].append(_one('speed', 1, _NUM_FAST_CHAINS, None))
    two = ['CPU:0', 'CPU:1']
    rows['two devices'].append(_one('speed', 2, _NUM_FAST_CHAINS, two))
    both = [_start('speed', 1, half, None, core=core) for core in (0, 1)]
    # All chains have as many steps when the slower one has.
    rows['a process per core'].append(min(_ended(process) for process in both))
  return rows


def _run_case(case):
  name, num_devices, *arguments = json.loads(case)
  tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices('CPU')[0],
    [tf.config.LogicalDeviceConfiguration()] * num_devices,
  )
  print(json.dumps(dict(law=law, bits=bits, speed=speed)[name](*arguments)))


def main():
  """Writes the record, or runs one case and prints it."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--output', type=pathlib.Path, default=_FILE)
  parser.add_argument('--case')
  options = parser.parse_args()
  if options.case:
    _run_case(options.case)
    return
  record = {'cores': os.cpu_count()}
  if options.output.exists():
    record = json.loads(options.output.read_text())
  parts = {
    'bits': lambda: {str(n): _one('bits', n, n) for n in (1, 2, 4)},
    'law': lambda: {str(n): _one('law', 1, n) for n in (1, 2, 4)},
    'speed': _speeds,
  }
  for name, measure in parts.items():
    if name not in record:  # What is there is not measured again.
      record[name] = measure()
      options.output.write_text(json.dumps(record, indent=1) + '\n')


if __name__ == '__main__':
  main()
