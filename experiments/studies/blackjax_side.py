"""BlackJAX's `mgrad_gaussian` on a problem from a file; run by its own Python.

`experiments.studies.bench_blackjax` starts it in an environment that has
BlackJAX and not this library, writes the problem, and asks for one run after
another over standard input. It imports nothing of this repository.
"""

import sys
import time

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc.marginal_latent_gaussian import CovarianceSVD

__all__ = ['main']

_TUNING_STEPS = 500
_BISECTIONS = 14


def main(problem, output):
  """Tunes delta by hand, then runs once per line of standard input."""
  with np.load(problem) as arrays:
    given = dict(arrays)
  num_chains, num_results = int(given['num_chains']), int(given['num_results'])
  labels = jnp.asarray(given['labels'], given['covariance'].dtype)
  # The problem's own decomposition in float64, as on the other side.
  u, gamma, u_t = np.linalg.svd(
    given['covariance'].astype(np.float64), hermitian=True
  )
  parts = [jnp.asarray(a, labels.dtype) for a in (u, gamma, u_t)]

  def sampler(delta):
    return blackjax.mgrad_gaussian(
      lambda x: jnp.sum(labels * x - jax.nn.softplus(x)),
      cov_svd=CovarianceSVD(*parts),
      step_size=delta,
    )

  @jax.jit
  def short(key, states, delta):
    return _scan(sampler(delta), key, states, num_chains, _TUNING_STEPS)

  @jax.jit
  def run(key, states, delta):
    return _scan(sampler(delta), key, states, num_chains, num_results)

  start = jnp.zeros([num_chains, len(labels)], labels.dtype)
  states = jax.vmap(sampler(1.0).init)(start)
  key, tune_key, warm_key = jax.random.split(jax.random.PRNGKey(0), 3)
  delta, states = _tuned(short, tune_key, states, float(given['accept_rate']))
  jax.block_until_ready(run(warm_key, states, delta))
  print('ready', flush=True)
  for _ in sys.stdin:
    key, run_key = jax.random.split(key)
    begin = time.process_time()
    states, (draws, accepted) = run(run_key, states, delta)
    draws = np.asarray(draws)
    seconds = time.process_time() - begin
    np.savez(
      output,
      states=draws,
      seconds=seconds,
      accept_rate=np.mean(accepted),
      delta=delta,
    )
    print('done', flush=True)


def _scan(algorithm, key, states, num_chains, num_steps):
  """Returns final states and (positions, is_accepted) of every step."""

  def one_step(states, key):
    keys = jax.random.split(key, num_chains)
    states, info = jax.vmap(algorithm.step)(keys, states)
    return states, (states.position, info.is_accepted)

  return jax.lax.scan(one_step, states, jax.random.split(key, num_steps))


def _tuned(short, key, states, accept_rate):
  """Returns delta with this acceptance, by bisection, and states of it."""
  low, high = np.log(1e-4), np.log(1e2)
  for turn_key in jax.random.split(key, _BISECTIONS):
    middle = 0.5 * (low + high)
    states, (_, accepted) = short(turn_key, states, np.exp(middle))
    if float(accepted[_TUNING_STEPS // 4 :].mean()) > accept_rate:
      low = middle
    else:
      high = middle
  return np.exp(0.5 * (low + high)), states


if __name__ == '__main__':
  main(*sys.argv[1:])
