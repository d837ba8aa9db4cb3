"""What a run costs before its first draw, and the ways around it.

  python -m experiments.studies.bench_compilation [--only LABEL]

Each row is a process of its own: a standard normal of ten coordinates, or a
logistic regression, four chains, 500 adapting steps and 500 draws. Seconds
are those of a processor, all threads together, so that others who share the
machine change them little: those before the first step, tracing and XLA's
work, and those of the steps; of `sample_posterior` all, and the seconds that
pass until it prints something. Rows that are not measured again stay.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

__all__ = ['ROWS', 'measure']

_SIZE, _NUM_ROWS, _NUM_CHAINS, _NUM_STEPS = 10, 300, 4, 500
_RESULTS_FILE = pathlib.Path('docs/results/compilation.json')
# label -> (kernel, density, options).
ROWS = {
  'MALA': ('langevin', 'normal', {}),
  'MALA, without XLA': ('langevin', 'normal', dict(jit_compile=False)),
  'MALA, another seed in the same process': (
    'langevin',
    'normal',
    dict(repeat='seed'),
  ),
  'MALA, built anew in the same process': (
    'langevin',
    'normal',
    dict(repeat='kernel'),
  ),
  'MALA, from the cache of an earlier process': (
    'langevin',
    'normal',
    dict(is_cached=True),
  ),
  'kernel HMC': ('kernel', 'normal', {}),
  'HMC by entropy, L = 3': ('entropy', 'normal', {}),
  'HMC by Fisher divergence, learned lengths': ('fisher', 'normal', {}),
  'the same, from the cache of an earlier process': (
    'fisher',
    'normal',
    dict(is_cached=True),
  ),
  'HMC behind a conditional Gaussian': ('conditional', 'normal', {}),
  'sample_posterior': ('posterior', 'normal', {}),
  'sample_posterior, without XLA': (
    'posterior',
    'normal',
    dict(jit_compile=False),
  ),
  'sample_posterior, another seed in the same process': (
    'posterior',
    'normal',
    dict(repeat='seed'),
  ),
  'sample_posterior, from the cache of an earlier process': (
    'posterior',
    'normal',
    dict(is_cached=True),
  ),
  'MALA, a regression of 300 rows at once': ('langevin', 'at once', {}),
  'MALA, the same row by row in a Python loop': ('langevin', 'loop', {}),
}


def measure(label):
  """Returns the row of a label, measured here and now.

  Args:
    label: of `ROWS`.
  """
  kernel, density, options = ROWS[label]
  import tfp_adaptive as tfpa

  if options.get('is_cached'):
    tfpa.cache_compilations(os.environ['COMPILATION_CACHE'])
  if kernel == 'posterior':
    return _of_posterior(label, _density(density), **options)
  import tensorflow as tf

  density = _density(density)
  built = _kernel(kernel, density)
  jit_compile = options.get('jit_compile', True)
  repeat = options.get('repeat')
  if repeat:
    _sample(built, 0, jit_compile)
    built = _kernel(kernel, density) if repeat == 'kernel' else built
  tf.zeros([1]).numpy()
  begin, whole = time.process_time(), time.monotonic()
  result = _sample(built, 1, jit_compile)
  seconds, wall = time.process_time() - begin, time.monotonic() - whole
  # What is compiled is here now: these are the seconds of the steps alone.
  begin = time.process_time()
  _sample(built, 2, jit_compile)
  steps = time.process_time() - begin
  return dict(
    label=label,
    before=round(max(0.0, seconds - steps), 2),
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


def _of_posterior(label, density, jit_compile=True, repeat=None, **_):
  """Returns a row of `sample_posterior`, whose steps are not told apart."""
  import tensorflow as tf

  import tfp_adaptive as tfpa

  tf.zeros([1]).numpy()
  for seed in (1, 0) if repeat else (0,):
    begin, whole = time.process_time(), time.monotonic()
    with contextlib.redirect_stderr(_Listener()) as told:
      tfpa.sample_posterior(
        density,
        init=tf.TensorSpec([_SIZE]),
        seed=seed,
        num_chains=_NUM_CHAINS,
        jit_compile=jit_compile,
      )
  return dict(
    label=label,
    whole=round(time.process_time() - begin, 2),
    wall=round(time.monotonic() - whole, 2),
    first_line=round(told.first - whole, 2),
  )


def _sample(kernel, seed, jit_compile):
  import tensorflow as tf

  import tfp_adaptive as tfpa

  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # Of so few draws.
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
  import numpy as np
  import tensorflow as tf

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


def _kernel(name, density):
  import tfp_adaptive as tfpa

  build = dict(
    langevin=tfpa.gradient_adaptive_langevin,
    kernel=tfpa.kernel_hamiltonian,
    fisher=tfpa.fisher_divergence_hamiltonian,
    entropy=lambda f, n: tfpa.entropy_adaptive_hamiltonian(
      f, num_leapfrog_steps=3, num_adaptation_steps=n
    ),
    conditional=lambda f, n: tfpa.transport_adaptive_hamiltonian(
      f, n, transport=tfpa.transports.conditional_gaussian()
    ),
  )[name]
  return build(density, _NUM_STEPS)


def _in_new_process(label):
  """Returns the row of a label; of a cached one, that of the second process."""
  is_cached = ROWS[label][2].get('is_cached')
  with tempfile.TemporaryDirectory() as folder:
    for _ in range(2 if is_cached else 1):
      run = subprocess.run(
        [sys.executable, '-m', __spec__.name, '--measure', label],
        env=dict(
          os.environ, COMPILATION_CACHE=folder, TF_CPP_MIN_LOG_LEVEL='3'
        ),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
      )
  return json.loads(run.stdout.splitlines()[-1])


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--only', choices=ROWS, help='measure one row')
  parser.add_argument('--measure', choices=ROWS, help=argparse.SUPPRESS)
  parser.add_argument('--output', type=pathlib.Path, default=_RESULTS_FILE)
  arguments = parser.parse_args()
  if arguments.measure:
    print(json.dumps(measure(arguments.measure)))
    return
  rows = {}
  if arguments.output.exists():
    rows = {
      row['label']: row for row in json.loads(arguments.output.read_text())
    }
  for label in [arguments.only] if arguments.only else ROWS:
    rows[label] = _in_new_process(label)
    print(rows[label], flush=True)
    found = [rows[name] for name in ROWS if name in rows]
    arguments.output.write_text(json.dumps(found, indent=1) + '\n')


if __name__ == '__main__':
  main()
