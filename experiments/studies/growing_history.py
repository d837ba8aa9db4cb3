"""How much past a surrogate needs: a bent Gaussian over growing histories.

A repeat draws n exact draws of the target and a start, fits once, and runs one
chain of 200 + 2000 steps, of which 200 are discarded. HMC and KMC take the
same step size, number of leapfrog steps and unit momenta; the scale of the
random walk and of KAMH is learned in the 200 steps. HMC and the random walk
know no history: their repeats are chains of one kernel, tuned together.
References: Strathmann et al. (2015), Figure 3,
https://arxiv.org/abs/1506.02564.
"""

import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.framework.diagnostics import geyer_ess
from experiments.samplers import baselines
from experiments.samplers.baselines.kernel_adaptive_metropolis import (
  UncalibratedKernelAdaptive,
)
from experiments.studies.mixed_moments import mean_error_norm
from experiments.targets.banana import banana_target

__all__ = ['Protocol', 'fitter', 'measure', 'to_markdown']

_WALK_ACCEPT_PROB = 0.23
_NUM_SWEEPS = 3
_QUANTILES = (0.1, 0.9)  # 80 % of the repeats are in between.


class Protocol(NamedTuple):
  """What is run."""

  event_size: int = 8
  bend: float = 0.03
  # n, and for KMC the number of features too.
  sizes: tuple = (100, 250, 500, 1000, 2000)
  num_repeats: int = 30
  num_burnin_steps: int = 200
  num_results: int = 2000
  step_size: float = 0.5
  num_leapfrog_steps: int = 20


def measure(protocol, report=print):
  """Returns rows, one dict for each method, size and repeat.

  Args:
    protocol: `Protocol`.
    report: called with one line of text for each method and size.
  """
  target = banana_target(protocol.event_size, protocol.bend, 'float64')
  rows = []
  for method in ('HMC', 'RW'):
    rows += _without_history(protocol, target, method)
    report(_line(rows, method, None))
  for size in protocol.sizes:
    for method in ('KMC', 'KAMH'):
      rows += _with_history(protocol, target, method, size)
      report(_line(rows, method, size))
  return rows


def _without_history(protocol, target, method):
  starts = target.exact_draws_fn(protocol.num_repeats, 0)
  if method == 'HMC':
    kernel = tfp.mcmc.HamiltonianMonteCarlo(
      target.target_log_prob_fn,
      step_size=np.float64(protocol.step_size),
      num_leapfrog_steps=protocol.num_leapfrog_steps,
    )
  else:
    walk = tfpa.proposals.UncalibratedPreconditionedRandomWalk(
      target.target_log_prob_fn,
      tfpa.preconditioners.diagonal(init_scale=1.0),
      step_size=0.5,
    )
    kernel = _tuned(protocol, tfpa.MetropolisHastings(walk))
  result = tfpa.sample(
    kernel,
    starts,
    protocol.num_results,
    num_burnin_steps=protocol.num_burnin_steps,
    seed=(1, 2),
    progress=False,
  )
  return [
    _row(
      method, None, repeat, result.states[:, repeat], result.trace, (0.0, 0.0)
    )
    for repeat in range(protocol.num_repeats)
  ]


def _with_history(protocol, target, method, size):
  """Compiles fit and chain once; every repeat comes with its own history."""
  surrogate = {
    'KMC': tfpa.surrogates.kernel_exponential_family_finite,
    'KAMH': lambda num_points, _: baselines.kernel_subsample(num_points),
  }[method](size, size)
  # The median that KAMH looks for costs nothing, compiling it seconds.
  fit = fitter(surrogate, jit_compile=method == 'KMC')
  run = _chain(protocol, _kernel(protocol, target, method, surrogate))
  rows = []
  for repeat in range(protocol.num_repeats):
    # The same starts as without a history; draws of another stream.
    start = tf.constant(target.exact_draws_fn(protocol.num_repeats, 0)[repeat])
    history = target.exact_draws_fn(size, [1, size, repeat])
    begun = time.perf_counter()
    params = fit(history)
    fitted = time.perf_counter()
    known = surrogate._replace(init=lambda *_, params=params: params)
    kernel = _kernel(protocol, target, method, known)
    states, accepted = run(
      start, kernel.bootstrap_results(start), tf.constant([size, repeat])
    )
    seconds = (fitted - begun, time.perf_counter() - fitted)
    trace = {'is_accepted': np.asarray(accepted)[:, np.newaxis]}
    rows.append(_row(method, size, repeat, np.asarray(states), trace, seconds))
  return rows


def fitter(surrogate, jit_compile=True):
  """Returns draws [n, d] -> params of the surrogate, compiled once.

  As the library does with draws that are given: each fit searches bandwidth
  and regularization around those of the last.
  """
  fit = tf.function(surrogate.fit, jit_compile=jit_compile, autograph=False)

  def run(draws):
    draws = tf.constant(draws)
    count, event_size = draws.shape
    weights = tf.fill([count], tf.constant(1.0 / count, draws.dtype))
    seed = tf.constant([0, 0])
    params = surrogate.init(event_size, draws.dtype, seed)
    for _ in range(_NUM_SWEEPS):
      params = fit(params, draws, weights, seed)
    tf.nest.map_structure(np.asarray, params)  # Waits for it.
    return params

  return run


def _kernel(protocol, target, method, surrogate):
  """Returns a kernel that learns no more."""
  if method == 'KMC':
    return tfpa.MetropolisHastings(
      tfpa.proposals.UncalibratedSurrogateHamiltonian(
        target.target_log_prob_fn,
        surrogate,
        tfpa.preconditioners.diagonal(init_scale=1.0),
        protocol.num_leapfrog_steps,
        protocol.step_size,
      )
    )
  proposal = UncalibratedKernelAdaptive(target.target_log_prob_fn, surrogate)
  return _tuned(protocol, tfpa.MetropolisHastings(proposal))


def _tuned(protocol, kernel):
  return tfp.mcmc.DualAveragingStepSizeAdaptation(
    kernel,
    num_adaptation_steps=protocol.num_burnin_steps,
    target_accept_prob=_WALK_ACCEPT_PROB,
  )


def _chain(protocol, kernel):
  """Returns a compiled (start, results, seed) -> states and acceptances."""

  def is_accepted(state, results):
    del state
    while not hasattr(results, 'is_accepted'):
      results = results.inner_results
    return results.is_accepted

  @tf.function(jit_compile=True, autograph=False)
  def run(start, results, seed):
    return tfp.mcmc.sample_chain(
      protocol.num_results,
      start,
      kernel=kernel,
      previous_kernel_results=results,
      num_burnin_steps=protocol.num_burnin_steps,
      trace_fn=is_accepted,
      seed=seed,
    )

  return run


def _row(method, size, repeat, states, trace, seconds):
  """Returns the numbers of one chain, states [num_results, d]."""
  accepted = np.asarray(trace['is_accepted'])
  chain = repeat if accepted.shape[1] > 1 else 0
  return {
    'method': method,
    'size': size,
    'repeat': repeat,
    'acceptance': float(accepted[:, chain].mean()),
    'mean_norm': mean_error_norm(states, np.zeros(states.shape[-1])),
    'min_ess': float(geyer_ess(states).min()),
    'fit_seconds': seconds[0],
    'chain_seconds': seconds[1],
  }


def _line(rows, method, size):
  chosen = _of(rows, method, size)
  return f'{method}, n = {size}: ' + ', '.join(
    f'{name} {_with_bar(chosen, name)}'
    for name in ('acceptance', 'mean_norm', 'min_ess')
  )


def _of(rows, method, size):
  return [r for r in rows if r['method'] == method and r['size'] == size]


def _with_bar(rows, name):
  """Returns 'mean (lower, upper)', 80 % of the repeats in between."""
  values = [row[name] for row in rows]
  low, high = np.quantile(values, _QUANTILES)
  digits = 1 if name == 'min_ess' else 2
  return f'{np.mean(values):.{digits}f} ({low:.{digits}f}, {high:.{digits}f})'


def to_markdown(rows):
  """Returns the table of means, with bars that hold 80 % of the repeats."""
  lines = [
    '| Method | n = m | Acceptance | Norm of the mean | Min ESS | Share of '
    "HMC's | Repeats | Fit, chain (s) |",
    '| --- | --- | --- | --- | --- | --- | --- | --- |',
  ]
  ceiling = np.mean([row['min_ess'] for row in _of(rows, 'HMC', None)])
  keys = dict.fromkeys((row['method'], row['size']) for row in rows)
  for method, size in keys:
    chosen = _of(rows, method, size)
    share = np.mean([row['min_ess'] for row in chosen]) / ceiling
    seconds = '-'
    if size is not None:
      seconds = ', '.join(
        f'{np.median([row[name] for row in chosen]):.1f}'
        for name in ('fit_seconds', 'chain_seconds')
      )
    cells = [_with_bar(chosen, n) for n in ('acceptance', 'mean_norm')]
    cells += [_with_bar(chosen, 'min_ess'), f'{share:.2f}', str(len(chosen))]
    names = [method, '-' if size is None else str(size)]
    lines.append(f'| {" | ".join([*names, *cells, seconds])} |')
  return '\n'.join(lines) + '\n'
