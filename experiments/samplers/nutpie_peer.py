"""nutpie: NUTS whose mass matrix is learned from draws and gradients.

nutpie calls the density from its own threads. JAX therefore compiles the
density, and Python calls it for every gradient. This overhead is a part of
nutpie's seconds, but not of its gradients. Chains adapt separately and run one
after another. The first step size comes from a short search. nutpie does not
report the gradients of the search, a few per chain.

References: Seyboldt, Carlson and Carpenter (2025).
"""

import itertools
import time
from typing import ClassVar
from typing import Literal

import numpy as np

from experiments.samplers.base import Method
from experiments.samplers.jax_peers import Peer
from experiments.samplers.jax_peers import peer_result
from experiments.targets import jax_density
from experiments.targets.jax_density import import_peer
from experiments.targets.registry import METHODS


@METHODS.register('nutpie')
class Nutpie(Peer):
  """nutpie's NUTS with a low-rank modified or a diagonal mass matrix."""

  mass_matrix: Literal['low_rank', 'diagonal'] = 'low_rank'

  package: ClassVar[str] = 'nutpie'
  least_adaptation: ClassVar[int] = 20

  def default_label(self):
    return f'nutpie ({self.mass_matrix.replace("_", " ")})'

  def build(self, target, options):
    self.check(options)
    compiled = {}

    def sample_fn(init_state, num_results, seed, **unused):
      del unused  # `tfpa.sample` takes them.
      begin = time.perf_counter()
      if not compiled:
        compiled['density'] = _compiled_density(target)
      seconds = {'compile': time.perf_counter() - begin}
      clock = _PhaseClock(options.num_adaptation_steps)
      model = _model(compiled['density'], np.asarray(init_state), clock)
      begin = time.perf_counter()
      trace = import_peer('nutpie').sample(
        model,
        draws=num_results,
        tune=options.num_adaptation_steps,
        chains=len(init_state),
        cores=1,
        seed=int(np.random.SeedSequence(np.asarray(seed)).generate_state(1)[0]),
        progress_bar=False,
        low_rank_modified_mass_matrix=self.mass_matrix == 'low_rank',
      )
      elapsed = time.perf_counter() - begin
      # Chains run in turns, so their seconds add up.
      seconds['sampling'] = clock.sampling_seconds()
      seconds['adaptation'] = elapsed - seconds['sampling']
      return _result(trace, target, seconds)

    return Method(None, None, None, sample_fn=sample_fn)


class _PhaseClock:
  """Separates sampling from adapting by the draws that nutpie returns."""

  def __init__(self, num_adaptation_steps):
    self._num_adaptation_steps = num_adaptation_steps
    self._chains = []

  def start_chain(self):
    """Returns a function to call at every draw of the chain."""
    times = {}
    self._chains.append(times)
    count = itertools.count(1)

    def tick():
      now = time.perf_counter()
      if next(count) == self._num_adaptation_steps:
        times['adapted'] = now
      times['last'] = now

    return tick

  def sampling_seconds(self):
    """Returns the seconds of sampling, summed over chains."""
    # nutpie also makes functions that it never calls.
    return sum(
      times['last'] - times['adapted']
      for times in self._chains
      if 'adapted' in times
    )


def _compiled_density(target):
  """Returns (x [d] float64) -> (log density, gradient), compiled."""
  jax = import_peer('jax')

  def packed(x):
    value, grad = jax.value_and_grad(target.jax_log_prob_fn())(x)
    return jax.numpy.append(grad, value)

  program = jax.jit(packed)

  def log_prob_and_grad(x):
    # A precision is set for one thread, and nutpie calls from other threads.
    with jax_density.precision(target.dtype):
      values = np.asarray(program(x.astype(target.dtype)), np.float64)
    return values[-1], values[:-1]

  log_prob_and_grad(np.zeros(target.event_size))  # This call compiles.
  return log_prob_and_grad


def _model(log_prob_and_grad, starts, clock):
  """Returns nutpie's model of a density over one vector."""
  size = starts.shape[-1]
  first_points = itertools.cycle(starts.astype(np.float64))

  def make_expand(*seeds):
    del seeds
    tick = clock.start_chain()

    def expand(x):
      tick()
      return {'x': x}

    return expand

  compiled_pyfunc = import_peer('nutpie.compiled_pyfunc')
  return compiled_pyfunc.from_pyfunc(
    size,
    lambda: log_prob_and_grad,
    make_expand,
    [np.dtype('float64')],
    [(size,)],
    ['x'],
    make_initial_point_fn=lambda seed: next(first_points),
  )


def _result(trace, target, seconds):
  """Returns the `Result` of nutpie's trace, whose first axis is chains."""

  def by_draw(values):
    return np.swapaxes(np.asarray(values), 0, 1)

  stats = trace.sample_stats
  drawn = {
    'states': by_draw(trace.posterior['x']).astype(target.dtype),
    'target_log_prob': by_draw(stats['logp']),
    'diverging': by_draw(stats['diverging']),
    'leapfrogs_taken': by_draw(stats['n_steps']),
  }
  adapting = by_draw(trace.warmup_sample_stats['n_steps'])
  return peer_result(drawn, adapting, seconds)
