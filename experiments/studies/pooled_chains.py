"""What a surrogate knows after so many iterations of one chain, or of ten.

  python -m experiments.studies.pooled_chains [--num-seeds 5]

The 8-dimensional banana, starts drawn from it, default settings. After T
adapting steps the learned surrogate is asked for one trajectory of 20 steps of
size 0.5 with momenta of unit scale from each of 2000 exact draws: the mean
acceptance there does not depend on what else was tuned. Prints one line per
length and number of chains.
"""

import argparse
import json

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.targets.banana import banana_target

__all__ = ['hypothetical_acceptance', 'measure']

_LENGTHS = {1: (1000, 2500, 5000, 10000), 10: (200, 500, 1000, 2000, 5000)}


def measure(lengths, num_seeds):
  """Yields a dict for every number of chains and of adapting steps.

  Args:
    lengths: {number of chains: adapting steps to try}.
    num_seeds: runs of each.
  """
  target = banana_target(8, 0.03, 'float64')
  for num_chains, numbers in lengths.items():
    for num_steps in numbers:
      kernel = tfpa.kernel_hamiltonian(target.target_log_prob_fn, num_steps)
      rates = []
      for seed in range(num_seeds):
        result = tfpa.sample(
          kernel,
          tf.constant(target.exact_draws_fn(num_chains, seed)),
          num_results=1,
          seed=seed,
          progress=False,
        )
        learned = tfpa.frozen(kernel, result.final_kernel_results)
        rates.append(
          hypothetical_acceptance(
            target, learned.inner_kernel.surrogate, seed=1000 + seed
          )
        )
      yield dict(
        num_chains=num_chains,
        num_adaptation_steps=num_steps,
        accept_rate=float(np.mean(rates)),
        standard_error=float(np.std(rates, ddof=1) / len(rates) ** 0.5),
        accept_rates=rates,
      )


def hypothetical_acceptance(
  target, surrogate, num_draws=2000, step_size=0.5, num_steps=20, seed=0
):
  """Returns the mean acceptance of one trajectory from each of exact draws."""
  kernel = tfpa.MetropolisHastings(
    tfpa.proposals.UncalibratedSurrogateHamiltonian(
      target.target_log_prob_fn,
      surrogate,
      tfpa.preconditioners.diagonal(init_scale=1.0),
      num_steps,
      step_size,
    )
  )
  draws = tf.constant(
    target.exact_draws_fn(num_draws, seed), dtype=target.dtype
  )
  step = tf.function(
    lambda x, results: kernel.one_step(x, results, seed=[seed, 1])[1],
    jit_compile=True,
  )
  ratio = step(draws, kernel.bootstrap_results(draws)).log_accept_ratio
  return float(tf.reduce_mean(tf.exp(tf.minimum(ratio, 0.0))))


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--num-seeds', type=int, default=5)
  for row in measure(_LENGTHS, parser.parse_args().num_seeds):
    print(json.dumps(row), flush=True)


if __name__ == '__main__':
  main()
