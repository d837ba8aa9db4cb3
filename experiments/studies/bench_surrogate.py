"""Cost of learning a surrogate against the cost of following it.

  taskset -c 0 python -m experiments.studies.bench_surrogate [--num-steps 5000]

The 8-dimensional banana, n = 1000 draws, 500 features and 1000. Seconds of the
adapting steps, of as many steps of the learned kernel, and the seconds that
fits alone took: the difference. Then the memory of the process before and after
100000 steps.
"""

import argparse
import json
import resource

import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.targets.banana import banana_target

__all__ = ['measure', 'memory_growth']


def measure(num_steps, num_features, num_chains):
  """Returns a dict of seconds: learning, and following what was learned."""
  target = banana_target(8, 0.03, 'float32')
  kernel = tfpa.kernel_hamiltonian(
    target.target_log_prob_fn,
    num_steps,
    tfpa.surrogates.kernel_exponential_family_finite(1000, num_features),
  )
  start = tf.constant(target.exact_draws_fn(num_chains, 0), target.dtype)
  result = tfpa.sample(kernel, start, num_steps, progress=False)
  learning = result.seconds['adaptation']
  following = result.seconds['sampling']
  return dict(
    num_chains=num_chains,
    num_features=num_features,
    learning=learning,
    following=following,
    num_fits=int(result.final_kernel_results.num_fits),
    fits_over_steps=(learning - following) / following,
    compile=result.seconds['compile'],
  )


def memory_growth(num_steps=100_000):
  """Returns the peak memory, MiB, after a tenth of a run and after all."""
  target = banana_target(8, 0.03, 'float32')
  kernel = tfpa.kernel_hamiltonian(target.target_log_prob_fn, num_steps)
  step = tf.function(
    lambda state, results, seed, count: _run(
      kernel, state, results, seed, count
    ),
    jit_compile=True,
  )
  state = tf.constant(target.exact_draws_fn(10, 0), target.dtype)
  results = kernel.bootstrap_results(state)
  peaks = []
  for block in range(10):
    state, results = step(
      state, results, tf.constant([0, block]), tf.constant(num_steps // 10)
    )
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
  return dict(num_steps=num_steps, peak_after_tenth=peaks[0], peak=peaks[-1])


def _run(kernel, state, results, seed, count):
  """Makes `count` steps and keeps nothing."""

  def step(i, state, results):
    folded = tf.random.experimental.stateless_fold_in(seed, i)
    return i + 1, *kernel.one_step(state, results, seed=folded)

  _, state, results = tf.while_loop(
    lambda i, *_: i < count, step, (tf.constant(0), state, results)
  )
  return state, results


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--num-steps', type=int, default=5000)
  num_steps = parser.parse_args().num_steps
  for num_chains in (1, 10):
    for num_features in (500, 1000):
      row = measure(num_steps, num_features, num_chains)
      print(json.dumps(row), flush=True)
  print(json.dumps(memory_growth()), flush=True)


if __name__ == '__main__':
  main()
