"""Chains of one learned kernel: run on and on, their draws kept in bounds."""

import time
import warnings

import numpy as np

from tfp_adaptive import learned
from tfp_adaptive.core import random
from tfp_adaptive.driver import sample as driver

__all__ = ['Chains', 'start']

_BLOCK = 250  # Draws of one compiled block: between two looks at the clock.


def start(kernel, choice, starts, seed, num_draws, jit_compile, progress):
  """Returns `Chains` that have adapted and hold one block of draws."""
  begin = time.monotonic()
  block_size = _block_size(num_draws)
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', UserWarning)  # The verdict tells.
    result = driver.sample(
      kernel,
      starts,
      block_size,
      seed=seed,
      block_size=block_size,
      jit_compile=jit_compile,
      progress=progress,
    )
  chains = Chains(kernel, choice, seed, num_draws, jit_compile, progress)
  chains.add(result)
  cost = learned.cost_per_step(kernel, True, result.final_kernel_results)
  chains.gradients_per_adapting_step = cost.gradient
  chains.num_gradients += kernel.num_adaptation_steps * cost.gradient
  chains.seconds = time.monotonic() - begin
  return chains


def _block_size(num_draws):
  """Returns the draws of a block, half of what is wanted at most."""
  return min(_BLOCK, -(-num_draws // 2))


class Chains:
  """Draws of a frozen kernel, every `thinning`-th step, and what they cost.

  Attributes:
    choice: `structure.Choice` of the kernel.
    draws: [n, chains, d], unconstrained.
    trace: dict of [n, chains].
    thinning: Steps between two draws.
    num_gradients: Spent so far by each chain, adaptation included.
  """

  def __init__(self, kernel, choice, seed, num_draws, jit_compile, progress):
    self.kernel, self.choice = kernel, choice
    self._seed = seed
    self._options = dict(jit_compile=jit_compile, progress=progress)
    self._num_draws = num_draws
    # For good: a program is compiled for its size.
    self._block_size = _block_size(num_draws)
    self._num_blocks = 0
    self.draws, self.trace = None, {}
    self.thinning = 1
    self.num_gradients = 0.0
    self.gradients_per_adapting_step = 0.0
    self.seconds = 0.0

  @property
  def is_full(self):
    return len(self.draws) >= self._num_draws

  @property
  def num_kept(self):
    """Draws to show: a last block may hold more than were asked for."""
    return min(len(self.draws), self._num_draws)

  @property
  def gradients_to_go_on(self):
    """What each chain spends at least to gain: a block; full, half anew."""
    if not self.is_full:
      return self._block_size * self.thinning * self._gradients_per_step()
    missing = self._num_draws - len(self.draws) // 2
    num_blocks = -(-missing // self._block_size)
    steps = num_blocks * self._block_size * 2 * self.thinning
    return steps * self._gradients_per_step()

  def add(self, result):
    """Appends what a block recorded."""
    self._num_blocks += 1
    self.state, self.results = (
      result.final_state,
      result.final_kernel_results,
    )
    trace = {name: rows for name, rows in result.trace.items() if rows.ndim > 1}
    if self.draws is None:
      self.draws, self.trace = result.states, trace
    else:
      self.draws = np.concatenate([self.draws, result.states])
      self.trace = {
        name: np.concatenate([self.trace[name], trace[name]]) for name in trace
      }
    steps = len(result.states) * self.thinning
    self.num_gradients += steps * self._gradients_per_step()

  def run_block(self):
    """Runs one block; of full chains every second draw goes then."""
    begin = time.monotonic()
    is_full = self.is_full
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', UserWarning)
      result = driver.sample_more(
        self.kernel,
        self.state,
        self.results,
        self._block_size,
        self.thinning * (2 if is_full else 1) - 1,
        # Negative: other numbers than those of the steps before.
        random.fold_in(self._seed, -self._num_blocks),
        self._block_size,
        **self._options,
      )
    if is_full:  # Not before there are others.
      self._forget_every_second()
    self.add(result)
    self.seconds += time.monotonic() - begin

  def extend_to(self, num_draws):
    """Lets the chains hold more draws from now on."""
    self._num_draws = num_draws

  def _forget_every_second(self):
    self.draws = self.draws[1::2]
    self.trace = {name: rows[1::2] for name, rows in self.trace.items()}
    self.thinning *= 2

  def _gradients_per_step(self):
    cost = learned.cost_per_step(self.kernel, False, self.results)
    return cost.gradient
