"""What a learned number of leapfrog steps costs against a given one.

  python -m experiments.studies.bench_lengths --data-dir data

Frozen steps of HMC by Fisher divergence at one factor and step size, timed in
pairs: the range is data, the same range is an argument of the builder, and all
seeds are the same, so that both make the same steps. And what it takes to
compile a block of the default kernel, against that of a given number.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.studies.bench import calibrate
from experiments.studies.bench import kernel_program
from experiments.studies.bench import time_steps
from experiments.studies.length_targets import TARGETS
from experiments.targets.gaussians import gaussian_target
from tfp_adaptive.core import tfp_private

__all__ = ['CASES', 'measure']

_OUTPUT = (
  pathlib.Path(__file__).resolve().parents[2]
  / 'docs'
  / 'results'
  / 'trajectory_length'
  / 'cost.json'
)
_NUM_CHAINS, _NUM_ADAPTATION_STEPS = 8, 500
_RANGES = ((2, 3), (5, 5), (4, 8))
_SECONDS_PER_REPEAT, _NUM_REPEATS = 0.3, 21
_COMPILED = dict(learned={}, given=dict(num_leapfrog_steps=5))


def _normal(event_size):
  def build(data_dir):
    del data_dir
    target = gaussian_target('iid', np.ones(event_size), 'float64')
    return target.target_log_prob_fn, event_size

  return build


CASES = {
  'Gaussian, d = 10': _normal(10),
  'Gaussian, d = 100': _normal(100),
  'heart': TARGETS['heart'],
  'item response': TARGETS['item response'],
}


def measure(build, data_dir, seconds, num_repeats):
  """Returns the record of one target.

  Args:
    build: (folder of data) -> (log density, event size).
    data_dir: Folder or `None`.
    seconds: That each timed run should take.
    num_repeats: Of every pair, and of every compilation.
  """
  log_prob, event_size = build(data_dir)
  rng = np.random.default_rng(0)
  state = tf.constant(rng.normal(size=(_NUM_CHAINS, event_size)))
  kernel = _kernel(log_prob)
  run = kernel_program(kernel, state, _NUM_ADAPTATION_STEPS)
  state, results = run.args
  ratios = {}
  for law in _RANGES:
    learned = tfp_private.replace_innermost(
      results, num_leapfrog_steps=tf.constant(law)
    )
    programs = (
      lambda n, learned=learned: run.func(state, learned, n),
      _given(log_prob, law, state, results),
    )
    ratios[str(list(law))] = _ratio(programs, seconds, num_repeats)
  compiling = [
    _compile_seconds(log_prob, state) for _ in range(num_repeats // 4)
  ]
  compiling = {
    name: float(np.median([one[name] for one in compiling]))
    for name in _COMPILED
  }
  return {
    'learned_over_given': ratios,
    'compile_seconds': compiling,
    'compile_ratio': compiling['learned'] / compiling['given'],
  }


def _kernel(log_prob, **options):
  return tfpa.fisher_divergence_hamiltonian(
    log_prob, _NUM_ADAPTATION_STEPS, **options
  )


def _given(log_prob, law, state, results):
  """Returns a program of frozen steps, its range an argument."""
  kernel = _kernel(log_prob, num_leapfrog_steps=law, randomize_num_steps=False)
  learned = {
    field: tfp_private.get_innermost(results, field)
    for field in ('preconditioner_params', 'step_size')
  }
  program = kernel_program(kernel, state, 1)
  fixed = tfp_private.replace_innermost(
    kernel.bootstrap_results(state), **learned
  )._replace(step=results.step)
  return lambda n: program.func(state, fixed, n)


def _ratio(programs, seconds, num_repeats):
  """Returns the median of time ratios of pairs, and their quartiles."""
  first = [program(tf.constant(50))[1].numpy() for program in programs]
  np.testing.assert_allclose(*first, rtol=1e-6)  # The same steps.
  num_steps = calibrate(programs[1], seconds)
  ratios = []
  for repeat in range(num_repeats):
    order = (0, 1) if repeat % 2 else (1, 0)
    times = {i: time_steps(programs[i], num_steps) for i in order}
    ratios.append(times[0] / times[1])
  quartiles = np.quantile(ratios, [0.25, 0.5, 0.75])
  return dict(zip(('lower', 'median', 'upper'), map(float, quartiles)))


def _compile_seconds(log_prob, state):
  """Returns processor seconds from no program to a first step, by kind."""
  seconds = {}
  for name, options in _COMPILED.items():
    began = time.process_time()
    kernel_program(_kernel(log_prob, **options), state, 1)
    seconds[name] = time.process_time() - began
  return seconds


def main():
  """Writes one record of all cases."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--output', type=pathlib.Path, default=_OUTPUT)
  parser.add_argument('--data-dir', type=pathlib.Path, default=None)
  parser.add_argument('--smoke', action='store_true')
  options = parser.parse_args()
  scale = (0.001, 4) if options.smoke else (_SECONDS_PER_REPEAT, _NUM_REPEATS)
  records = {}
  for name, build in list(CASES.items())[: 1 if options.smoke else None]:
    records[name] = measure(build, options.data_dir, *scale)
    print(name, json.dumps(records[name]), flush=True)
  options.output.parent.mkdir(parents=True, exist_ok=True)
  options.output.write_text(json.dumps(records, indent=1) + '\n')


if __name__ == '__main__':
  main()
