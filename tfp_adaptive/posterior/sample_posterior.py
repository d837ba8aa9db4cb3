"""sample_posterior(): a model in, a verdict and named draws out.

starts     drawn, until all have a finite density
look       HMC by Fisher divergence, one matrix, its lengths learned
structure  matrices and conditional maps, on pairs of states and gradients
adapt      the winner, where it is another
sample     until it is enough; chains that disagree adapt again, longer
"""

import inspect
import numbers
import sys
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import arguments
from tfp_adaptive.core import random
from tfp_adaptive.driver import convergence
from tfp_adaptive.linear.fisher_divergence import fisher_divergence_hamiltonian
from tfp_adaptive.posterior import chains as chains_lib
from tfp_adaptive.posterior import problem as problem_lib
from tfp_adaptive.posterior import starts as starts_lib
from tfp_adaptive.posterior import structure
from tfp_adaptive.posterior import verdict as verdict_lib
from tfp_adaptive.posterior.posterior import Posterior
from tfp_adaptive.posterior.posterior import Stage
from tfp_adaptive.transport.hamiltonian import transport_adaptive_hamiltonian

__all__ = ['sample_posterior']

_FIRST_STEPS = 1000  # Of the first adaptation; of later ones ...
_FEWEST_STEPS = 50
_FIRST_COST = 12.0  # Gradients of a step of a structure not yet tried, about.
_COST_OF_A_BLOCK = 1000.0  # The same, about.
_LARGEST_SHARE = 0.3  # Of the budget left, for one adaptation.
_GROWTH = 4  # ... that many times those before, at most so often:
_NUM_ATTEMPTS = 3
_NUM_PAIRS = 1000  # Looked at to choose a structure.
# Where more than that many times the draws are needed, adapting pays.
_FAR_FROM_ENOUGH = 16.0


def sample_posterior(
  model,
  num_draws=1000,
  num_chains=8,
  seed=0,
  *,
  init=None,
  bijectors=None,
  min_ess=400,
  max_gradients=100_000,
  max_seconds=None,
  jit_compile=True,
  progress=True,
  **pins,
):
  """Samples a posterior; nothing has to be chosen.

  Starts, scales, the structure of the sampler (a matrix, or a map where scales
  change from place to place), trajectory lengths and the number of steps are
  found, on pairs of states and gradients that the chains have anyway. It stops
  when every coordinate has R-hat below 1.01 and `min_ess` effective draws in
  bulk and tails, or says why not.

  Args:
    model: `tfd.JointDistribution` with its data given by name, as keywords or
      by `experimental_pin`; or a log density, differentiable, called as TFP
      calls it with parts [chains, event...], which returns [chains].
    num_draws: Draws of each chain to return. Where that is not enough steps,
      chains run on and every second, fourth, ... is kept.
    num_chains: At least 4 for R-hat to tell.
    seed: Int, pair of ints or [2] int Tensor: same seed, same draws.
    init: Of a density: what its unknowns are, a structure of `tf.TensorSpec`
      of an event, or of starts [chains, event...].
    bijectors: Of a density: onto the supports, in the structure of `init`, or a
      dict with some of its names; the others are real.
    min_ess: Effective draws of every coordinate that are enough.
    max_gradients: What every chain may spend, warm-up included, about: an
      adaptation of another structure is planned before its cost is known.
    max_seconds: The same in seconds, looked at between stages and blocks of
      draws; `None`: any.
    jit_compile: Whether XLA compiles the steps.
    progress: Whether to tell on stderr what is going on.
    **pins: Observed values of a joint distribution.

  Returns:
    A `Posterior`: print it for the verdict; `states`, `draws`, `converged`,
    `report`, `kernel` and `more`. An interrupt (Ctrl-C) ends sampling, not the
    call: what was drawn so far is returned.

  Raises:
    TypeError: If the model is none of these kinds.
    ValueError: If an argument is not allowed, a latent variable is discrete,
      the density is none of each chain, or no start has a finite one.
  """
  _check_sizes(num_draws, num_chains, min_ess, max_gradients, max_seconds)
  arguments.check_seed(seed)
  settings = _Settings(
    int(num_draws),
    int(num_chains),
    random.sanitize(seed),
    float(min_ess),
    float(max_gradients),
    float('inf') if max_seconds is None else float(max_seconds),
    jit_compile,
    progress,
  )
  problem = _problem(model, init, bijectors, num_chains, pins)
  return _Run(problem, settings)()


def _check_sizes(num_draws, num_chains, min_ess, max_gradients, max_seconds):
  """Refuses numbers with which nothing could be drawn, or judged."""
  counts = dict(num_draws=(num_draws, 100), num_chains=(num_chains, 2))
  for name, (given, least) in counts.items():
    if not isinstance(given, (int, np.integer)) or given < least:
      raise ValueError(
        f'`{name}` must be an int of at least {least}, but got {given!r}. Data '
        'are given by the name of their part, `sample_posterior(model, y=y)`.'
      )
  for name, given in (
    ('min_ess', min_ess),
    ('max_gradients', max_gradients),
    ('max_seconds', max_seconds),
  ):
    is_number = isinstance(given, numbers.Real)
    if given is not None and not (is_number and given > 0):
      raise ValueError(
        f'`{name}` must be a positive number, but got {given!r}.'
      )
  if num_draws * num_chains < 2 * min_ess:
    raise ValueError(
      f'{num_draws} draws of {num_chains} chains cannot be worth '
      f'`min_ess={min_ess}` effective ones: write `num_draws='
      f'{-(-2 * int(min_ess) // num_chains)}` or more, or a smaller `min_ess`.'
    )


class _Settings(NamedTuple):
  num_draws: int
  num_chains: int
  seed: tf.Tensor
  min_ess: float
  max_gradients: float
  max_seconds: float
  jit_compile: bool
  progress: bool


def _problem(model, init, bijectors, num_chains, pins):
  """Returns the `Problem` of what the user gave."""
  if isinstance(model, tfp.distributions.JointDistribution) or isinstance(
    model, tfp.experimental.distributions.JointDistributionPinned
  ):
    if init is not None or bijectors is not None:
      raise ValueError(
        '`init` and `bijectors` belong to a density: a joint distribution '
        'knows its unknowns and their supports. Leave them out; data of that '
        'name are given by `model.experimental_pin`.'
      )
    return problem_lib.of_joint(model, pins)
  if inspect.isgeneratorfunction(model):
    raise TypeError(
      f'`model` is the function {model.__name__} with a `yield`, but must be a '
      '`tfd.JointDistribution` or a log density. Write '
      '`@tfd.JointDistributionCoroutineAutoBatched` above its `def`.'
    )
  if isinstance(model, (type, tfp.distributions.Distribution)) or not callable(
    model
  ):
    raise TypeError(
      '`model` must be a `tfd.JointDistribution`, with its data given by name, '
      f'or a log density, a function, but got {type(model).__name__}. Of one '
      'distribution pass `log_prob`, without calling it, and '
      '`init=tf.TensorSpec(event shape)`.'
    )
  if pins:
    raise ValueError(
      f'{", ".join(map(repr, pins))}: no argument of this name, and a density '
      'has no values to pin. Bind its data before, `lambda x: log_prob(x, '
      'data)`; of a joint distribution pass itself, not its `log_prob`.'
    )
  return problem_lib.of_density(model, init, bijectors, num_chains)


class _Run:
  """The stages, and what is left of the budget."""

  def __init__(self, problem, settings):
    self._problem, self._settings = problem, settings
    self._begin = time.monotonic()
    self._report = []
    self._ended_by = ''
    self._evaluate = starts_lib.Evaluate(
      problem.target_log_prob_fn, settings.num_chains
    )

  def __call__(self):
    settings, problem = self._settings, self._problem
    self._say(
      f'{settings.num_chains} chains x {problem.event_size} coordinates '
      f'({problem.dtype.name}): {", ".join(problem.names[:8])}'
      f'{", ..." if len(problem.names) > 8 else ""}'
    )
    begin = time.monotonic()
    starts, num_redrawn = starts_lib.draw(
      problem, self._evaluate, settings.num_chains, self._seed(0)
    )
    found = f'drawn, {num_redrawn} of them again'
    self._note('starts', found, self._evaluate.num_calls, begin)
    name, matrix = structure.default_matrix(problem.event_size)
    choice = structure.Choice(name, matrix)
    num_steps = self._affordable(_FIRST_STEPS, _FIRST_COST)
    if num_steps < _FEWEST_STEPS:
      raise ValueError(
        f'`max_gradients={settings.max_gradients:.0f}` is too few to adapt '
        'and to draw with. Write `max_gradients=10_000` or more.'
      )
    chains = self._adapt('look', choice, starts, num_steps, 1)
    for attempt in range(_NUM_ATTEMPTS):
      before = chains
      try:
        chains = self._improved(chains, attempt)
      except KeyboardInterrupt:
        self._ended_by = 'the user'
        return self._posterior(chains)
      may_adapt = attempt + 1 < _NUM_ATTEMPTS
      may_adapt &= attempt == 0 or chains is not before
      posterior = self._sample(chains, may_adapt)
      if self._ended_by or not self._is_far(posterior) or not may_adapt:
        return posterior

  def _improved(self, chains, attempt):
    """Returns chains of the structure that their draws ask for.

    The same ones where it is theirs at the first attempt, or where too little
    is left to adapt longer than before.
    """
    if time.monotonic() - self._begin > self._settings.max_seconds:
      return chains
    choice = self._choose(chains)
    if choice.name == chains.choice.name and not attempt:
      return chains
    cost = chains.gradients_per_adapting_step
    if choice.name != chains.choice.name:
      cost = max(cost, _FIRST_COST)
    num_steps = self._affordable(_GROWTH**attempt * _FIRST_STEPS, cost)
    if num_steps < (_FIRST_STEPS if attempt else _FEWEST_STEPS):
      return chains
    return self._adapt('adapt', choice, chains.state, num_steps, 2 + attempt)

  def _affordable(self, num_steps, cost):
    """Returns the steps of an adaptation, at most a share of what is left."""
    spent = sum(stage.num_gradients for stage in self._report)
    left = self._settings.max_gradients - spent - _COST_OF_A_BLOCK
    return min(num_steps, int(_LARGEST_SHARE * left / cost))

  def _adapt(self, stage, choice, starts, num_steps, number):
    """Returns `Chains` of a new kernel that has adapted."""
    settings, begin = self._settings, time.monotonic()
    self._say(f'{stage}: {choice.name}, compiling')
    chains = chains_lib.start(
      _kernel(self._problem.target_log_prob_fn, choice, num_steps),
      choice,
      tf.constant(starts),
      self._seed(number),
      settings.num_draws,
      settings.jit_compile,
      settings.progress,
    )
    found = f'{choice.name}, {num_steps} steps'
    self._note(stage, found, chains.num_gradients, begin)
    return chains

  def _choose(self, chains):
    """Returns the `Choice` by pairs of the chains' draws."""
    begin, before = time.monotonic(), self._evaluate.num_calls
    by_chain = np.swapaxes(chains.draws, 0, 1).reshape(
      -1, chains.draws.shape[-1]
    )
    rows = by_chain[:: -(-len(by_chain) // _NUM_PAIRS)]
    _, gradients = self._evaluate(rows)
    is_finite = np.all(np.isfinite(gradients), axis=-1)
    choice = structure.choose(rows[is_finite], gradients[is_finite])
    drivers = ''
    if choice.drivers:
      drivers = f' driven by {self._names(choice.drivers)}'
    found = choice.name + drivers
    if choice.losses:
      losses = ', '.join(
        f'{loss:.2g} {"" if name == choice.name else f"of a {name}"}'.strip()
        for name, loss in reversed(choice.losses.items())
        if name in (choice.name, next(iter(choice.losses)))
      )
      found += f'; loss held out {losses}'
    self._note('structure', found, self._evaluate.num_calls - before, begin)
    return choice

  def _sample(self, chains, may_adapt):
    """Returns the `Posterior` when it is enough, or no more can be had."""
    begin, before = time.monotonic(), chains.num_gradients
    spent = sum(stage.num_gradients for stage in self._report)
    while True:
      try:
        self._fill(chains, spent - before)
      except KeyboardInterrupt:
        self._ended_by = 'the user'
      stage = Stage(
        'sample',
        f'every {chains.thinning}. step'
        if chains.thinning > 1
        else 'every step',
        chains.num_gradients - before,
        time.monotonic() - begin,
      )
      posterior = self._posterior(chains, stage)
      is_done = not self._is_short(posterior) or self._ended_by
      if is_done or (may_adapt and self._is_far(posterior)):
        self._report.append(stage)
        return posterior
      self._say('not enough: ' + '; '.join(posterior.failed))

  def _posterior(self, chains, *stages):
    return Posterior(
      self._problem,
      chains,
      [*self._report, *stages],
      self._settings.min_ess,
      self._ended_by,
    )

  def _fill(self, chains, spent_before):
    """Runs blocks until the chains are full anew, or the budget is spent."""
    is_more = chains.is_full
    while is_more or not chains.is_full:
      is_more = False
      cost = spent_before + chains.num_gradients + chains.gradients_to_go_on
      if cost > self._settings.max_gradients:
        self._ended_by = '`max_gradients`'
      elif time.monotonic() - self._begin > self._settings.max_seconds:
        self._ended_by = '`max_seconds`'
      if self._ended_by:
        return
      chains.run_block()

  def _is_short(self, posterior):
    """Whether a gate fails that more draws may open."""
    rhat = posterior.verdict.worst('rhat')
    size = verdict_lib.smallest_size(posterior.verdict)
    return rhat is not None and (
      rhat[0] > convergence.LARGEST_RHAT or size < self._settings.min_ess
    )

  def _is_far(self, posterior):
    """Whether draws are so far from enough that to adapt longer pays."""
    rhat = posterior.verdict.worst('rhat')
    if rhat is None or rhat[0] > verdict_lib.DISAGREEING_RHAT:
      return True
    size = verdict_lib.smallest_size(posterior.verdict)
    return size * _FAR_FROM_ENOUGH < self._settings.min_ess

  def _names(self, indices):
    """Returns names of unconstrained coordinates."""
    return ', '.join(self._problem.coordinates[i] for i in indices)

  def _seed(self, number):
    return random.fold_in(self._settings.seed, number)

  def _note(self, name, found, num_gradients, begin):
    stage = Stage(name, found, num_gradients, time.monotonic() - begin)
    self._report.append(stage)
    self._say(str(stage))

  def _say(self, line):
    if self._settings.progress:
      print(line, file=sys.stderr, flush=True)


def _kernel(target_log_prob_fn, choice, num_steps):
  """Returns the kernel of a choice."""
  if hasattr(choice.part, 'operator'):
    return fisher_divergence_hamiltonian(
      target_log_prob_fn, num_steps, preconditioner=choice.part
    )
  return transport_adaptive_hamiltonian(
    target_log_prob_fn, num_steps, transport=choice.part
  )
