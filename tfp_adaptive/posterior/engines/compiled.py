"""An engine that compiles a kernel of the library and runs it in blocks."""

import warnings

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive import learned
from tfp_adaptive.core import block_fits
from tfp_adaptive.core import random
from tfp_adaptive.core import stack
from tfp_adaptive.driver import progress
from tfp_adaptive.driver import sample as driver
from tfp_adaptive.posterior.engines import recorded


class CompiledEngine:
  """Runs a kernel of the library by functions of `driver.sample`."""

  name = 'compiled'
  careful_accept_prob = 0.99  # Target acceptance if proposals diverge.
  steps_of_draw = 1

  def __init__(self, kernel, starts, seed, jit_compile):
    """Takes a kernel that adapts, starts [chains, d] and a seed, [2] int32."""
    self.kernel, self.states, self.results = kernel, tf.constant(starts), None
    self.seed, self.with_xla = seed, jit_compile
    self._block_size, self._reports = None, progress.SILENT
    self.num_adaptation_steps = kernel.num_adaptation_steps
    self.num_steps, self.is_settled = 0, False

  @property
  def cost(self):
    """Mean number of gradients of a step after the adaptation."""
    return learned.cost_per_step(self.kernel, False, self.results).gradient

  @property
  def cost_of_adapting(self):
    """Mean number of gradients of an adapting step."""
    return learned.cost_per_step(self.kernel, True, self.results).gradient

  @property
  def factor(self):
    """The learned matrix C, [d, d], or `None` for a map."""
    results = self._proposal_results()
    part = stack.first_with(self.kernel, 'preconditioner').preconditioner
    if not isinstance(part, interfaces.Preconditioner):
      return None
    operator = part.operator(results.preconditioner_params)
    return operator.to_dense().numpy()

  @property
  def frozen(self):
    """The learned kernel, fixed."""
    return learned.frozen(self.kernel, self.results)

  def start(self, num_draws, run):
    """Adapts, then draws; returns the `Recorded` draws."""
    # No later block is larger.
    self._block_size, self._reports = num_draws, run.reports
    with warnings.catch_warnings():
      # The verdict reports what these warnings would say.
      warnings.simplefilter('ignore', UserWarning)
      try:
        given = self._arguments(num_draws, self.seed)
        given = given._replace(checkpoint_dir=run.folder)
        found = driver.sample_until(run.seconds_left, given)
        seconds, cut_by = found.seconds['sampling'] / num_draws, ''
        are_draws = True
        self.num_steps = self.num_adaptation_steps
      except driver.Cut as cut:
        found, seconds = cut, 0.0
        are_draws = cut.step > self.num_adaptation_steps
        cut_by = 'the user' if cut.by_user else '`max_seconds`'
        self.num_steps = min(cut.step, self.num_adaptation_steps)
    self.is_settled = self.num_steps >= self.num_adaptation_steps
    return self._taken(found, seconds, cut_by, are_draws)

  def draw(self, num_draws, steps_per_draw, number):
    """Continues the chains; returns the `Recorded` draws."""
    # Calls have numbers from 1. Negative numbers give noise that differs from
    # that of `start`.
    given = self._arguments(num_draws, random.fold_in(self.seed, -number))
    given = given._replace(num_steps_between_results=steps_per_draw - 1)
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', UserWarning)
      found = driver.sample_more(given, self.results)
    return self._taken(found)

  def _arguments(self, num_draws, seed):
    return driver.Arguments(
      self.kernel,
      self.states,
      num_draws,
      seed=seed,
      block_size=self._block_size,
      jit_compile=self.with_xla,
      reports=self._reports,
    )

  def to_saved(self):
    """Returns JSON values and arrays, for `load`."""
    leaves = tf.nest.flatten(
      (self.states, self.results), expand_composites=True
    )
    header = dict(
      name=self.name,
      block_size=self._block_size,
      num_steps=self.num_steps,
      is_settled=self.is_settled,
    )
    return header, {str(i): np.asarray(leaf) for i, leaf in enumerate(leaves)}

  def load(self, header, arrays, reports=progress.SILENT):
    """Restores the state that `to_saved` returned."""
    leaves = [tf.constant(arrays[str(i)]) for i in range(len(arrays))]
    # The first leaf is the state. The others are the kernel results, which have
    # the structure of `bootstrap_results`.
    self.states = leaves[0]
    with block_fits.promised(self.kernel):
      like = self.kernel.bootstrap_results(self.states)
    self.results = tf.nest.pack_sequence_as(
      like, leaves[1:], expand_composites=True
    )
    self._block_size, self._reports = header['block_size'], reports
    self.num_steps = header['num_steps']
    self.is_settled = header['is_settled']

  def _taken(self, found, seconds=0.0, cut_by='', are_draws=True):
    self.states, self.results = found.final_state, found.final_kernel_results
    trace = {name: rows for name, rows in found.trace.items() if rows.ndim > 1}
    return recorded.Recorded(found.states, trace, seconds, cut_by, are_draws)

  def _proposal_results(self):
    return stack.proposal_results(self.results)
