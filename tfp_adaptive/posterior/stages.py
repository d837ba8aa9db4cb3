"""The stages of `sample_posterior`, and how a call resumes them."""

import contextlib
import time

import numpy as np

from tfp_adaptive.core import random
from tfp_adaptive.core import run_warnings
from tfp_adaptive.driver import checkpoint
from tfp_adaptive.driver import folder_lock
from tfp_adaptive.driver import progress
from tfp_adaptive.posterior import chains as chains_lib
from tfp_adaptive.posterior import compilation
from tfp_adaptive.posterior import density as density_lib
from tfp_adaptive.posterior import plan
from tfp_adaptive.posterior import run_file
from tfp_adaptive.posterior.engines import recorded
from tfp_adaptive.posterior.judge import rounding
from tfp_adaptive.posterior.posterior import Posterior
from tfp_adaptive.posterior.posterior import Stage
from tfp_adaptive.posterior.starts import arrival
from tfp_adaptive.posterior.starts import starts as starts_lib
from tfp_adaptive.posterior.structures import modes
from tfp_adaptive.posterior.structures import structure

_LOOK = 'look'  # The stage of the first warm-up.
_LOOKS_AGAIN = (11, 21)  # Seed numbers of repeated first warm-ups.
# Only this share of the steps of the first draws may be tried again. These
# draws show whether proposals diverge. For that, few tries suffice, see
# docs/results/second_tries.md, and tries of all steps can cost as much as the
# first warm-up.
_SHARE_TRIED_FIRST = 0.1
_NOTABLE_NOISE = 0.01  # Least rounding noise in nats that is reported.


class Run:
  """One run of `sample_posterior`: its report, its place and its budget."""

  def __init__(self, problem, settings):
    """Takes a `problem.Problem` and `Settings`; runs nothing yet."""
    self._problem, self._settings = problem, settings
    self._begin = time.monotonic()
    self._report = []
    self._ended_by = ''
    self._place = plan.Place()
    self._sampling = None  # Gradients and time at the start of 'sample'.
    # Whether the file stays as it is, because a shorter block was drawn.
    self._is_file_final = False
    self._is_unjudged = False  # Whether loaded chains are full and not judged.
    self._with_xla = None  # (Whether XLA compiles, why not), or `None`.
    self._file = run_file.RunFile(problem, settings)
    self._density = None  # `Density`, once it is traced.
    self._engine = None  # The engine that adapted last.

  def __call__(self):
    """Runs the stages; returns the `Posterior`."""
    folder = self._settings.checkpoint_dir
    with folder_lock.held(folder) if folder else contextlib.nullcontext():
      return self._run()

  def _run(self):
    settings, problem = self._settings, self._problem
    self._say(
      f'{settings.num_chains} chains x {problem.event_size} coordinates '
      f'({problem.dtype.name}): {", ".join(problem.names[:8])}'
      f'{", ..." if len(problem.names) > 8 else ""}'
    )
    chains = self._resumed() or self._look()
    posterior = None
    while self._place.phase != 'done' and not self._ended_by:
      try:
        if self._place.phase == 'improve':
          posterior = None
          chains = self._placed(chains)
        if self._place.phase == 'sample':
          posterior = self._sample(chains, self._place.may_adapt)
          self._place, self._ended_by = plan.after_sampling(
            self._place,
            posterior.converged,
            self._is_far(chains, posterior),
            self._spent,
            self._ended_by,
          )
          if chains.is_too_noisy:  # Another call would end as well.
            self._place = self._place._replace(phase='done')
        # Nothing is saved if an adaptation was cut off: another call plans it.
        if not (self._ended_by and self._place.phase == 'improve'):
          self._save(chains)
      except KeyboardInterrupt:
        self._ended_by = self._ended_by or 'the user'
    posterior = posterior or self._posterior(chains)
    if chains.is_too_noisy:
      self._ended_by = self._ended_by or 'rounding noise'
    posterior.ended_by = self._ended_by
    return posterior

  def _look(self):
    """Returns `Chains` that made the first warm-up from drawn starts."""
    starts = self._starts()
    name, matrix = structure.default_matrix(self._problem.event_size)
    choice = structure.Choice(name, matrix)
    num_steps = plan.look(self._budget(1))
    chains = self._adapt(_LOOK, choice, starts, num_steps, 1)
    try:
      for number in _LOOKS_AGAIN:
        is_lost = chains.is_lost
        is_paid = plan.may_look_again(self._budget(number), num_steps)
        if not np.any(is_lost) or not is_paid or self._ended_by:
          break
        self._say(f'{self._words(is_lost)}: they start again where others are')
        again = self._adapted(chains, _LOOK, choice, num_steps, number)
        chains = again if again.is_settled else chains
      if not self._ended_by:
        self._save(chains)
    except KeyboardInterrupt:  # Keep the chains.
      self._ended_by = self._ended_by or 'the user'
    return chains

  def _starts(self):
    """Traces the density and returns starts, [chains, d]."""
    settings, begin = self._settings, time.monotonic()
    density = self._density = density_lib.Density(
      self._problem, settings.num_chains, settings.dtype
    )
    density.use_xla(self._compilation()[0])
    starts = starts_lib.draw(
      self._problem,
      density,
      settings.num_chains,
      self._seed(0),
      lambda: self._is_late,
    )
    found = f'{starts}, {density.dtype.name}{self._compilation()[1]}'
    if density.note:
      found += f'; not in float64: {density.note}'
    if settings.dtype and density.dtype != settings.dtype:
      run_warnings.warn(
        f'The density is computed in {density.dtype.name}, not in '
        f'{settings.dtype.name}: {density.note}.',
      )
    wrong = rounding.wrong_gradient(density, starts.rows)
    if wrong:
      run_warnings.warn(wrong)
      found += '; its gradient is not that of the density'
    self._note('starts', found, density.num_calls, begin)
    return starts.rows

  def _words(self, is_lost):
    return f'{np.sum(is_lost)} of {len(is_lost)} chains had not arrived'

  def _compilation(self):
    """Returns whether XLA compiles steps, and words for the report."""
    if self._with_xla is None:
      self._with_xla = compilation.choose(
        self._settings.jit_compile, self._density
      )
    return self._with_xla

  def _placed(self, chains):
    """Returns chains to sample with, and sets the next place of the run."""
    found, lacking = self._improved(chains, self._place.attempt)
    if self._is_late and found is chains:
      self._ended_by = '`max_seconds`'
    if self._ended_by:
      return chains  # Another call chooses again, or adapts to the end.
    if lacking:
      words = 'left out: `max_gradients` does not pay for it'
      self._note('adapt', words, 0, time.monotonic())
    self._place = self._place.sampling(lacking)
    return found

  def _improved(self, chains, attempt):
    """Returns (chains, lacking).

    The chains have adapted as `plan.adaptation` asks, or are the given chains
    if no adaptation is needed or affordable, or if it fails. `lacking` is 0, or
    the number of gradients that must be left for an adaptation that was not
    affordable.
    """
    if self._is_late or chains.is_too_noisy:
      return chains, 0.0
    begin = time.monotonic()
    unnoted = self._density.num_calls - self._spent
    try:
      asked = self._choice(chains)
    except Exception as error:  # Keep the sampler and the draws so far.
      unnoted = self._density.num_calls - self._spent - unnoted
      self._note_failure('structure', error, unnoted, begin)
      return chains, 0.0
    evidence = plan.Evidence(
      chains.choice,
      asked,
      chains.diverge,
      chains.engine.careful_accept_prob,
      chains.gradients_per_adapting_step,
      attempt,
    )
    planned = plan.adaptation(evidence, self._budget(2 + attempt))
    if planned is None or self._is_late:
      return chains, 0.0
    if not planned.num_steps:
      return chains, planned.lacking
    return self._adapted(chains, 'adapt', *planned[:2], 2 + attempt), 0.0

  def _adapted(self, chains, stage, choice, num_steps, number):
    """Returns chains that have adapted again, or those given on failure.

    A file that cannot be written is such a failure. Files of another run are
    refused.
    """
    begin = time.monotonic()
    state = arrival.replaced(chains.state, chains.is_lost)
    try:
      return self._adapt(stage, choice, state, num_steps, number)
    except Exception as error:  # Keep the draws so far.
      is_refused = isinstance(error, checkpoint.CheckpointError)
      if is_refused and not isinstance(error, checkpoint.NotWritten):
        raise
      spent = chains_lib.spent_by(self._engine) if self._engine else 0.0
      self._note_failure(stage, error, spent, begin)
      return chains

  def _note_failure(self, stage, error, num_gradients, begin):
    progress.log_failure(f'The stage {stage!r} failed.')
    found = f'failed: {run_file.message_of(error)}'
    self._note(stage, found, num_gradients, begin)

  def _budget(self, number):
    """Returns the `plan.Budget` for the adaptation of this number."""
    settings = self._settings
    most = self._file.budget(number)
    return plan.Budget(
      most, self._spent, settings.num_draws, settings.num_chains
    )

  def _seconds_left(self):
    return self._settings.max_seconds - (time.monotonic() - self._begin)

  @property
  def _is_late(self):
    return self._seconds_left() < 0.0

  @property
  def _spent(self):
    """Gradients that each chain spent in the stages that have ended."""
    return sum(stage.num_gradients for stage in self._report)

  def _adapt(self, stage, choice, starts, num_steps, number):
    """Returns `Chains` of a new kernel that has adapted."""
    settings, begin = self._settings, time.monotonic()
    before = self._density.num_calls
    most, self._engine = self._budget(number).max_gradients, None
    self._file.begin(number)
    self._say(f'{stage}: {choice.name}')
    density = self._density
    self._engine = engine = chains_lib.engine_of(
      density,
      choice,
      starts,
      self._seed(number),
      num_steps,
      self._compilation()[0],
    )
    run = recorded.Options(
      self._file.folder(f'adaptation_{number}'),
      lambda: self._file.identity_of_stage(choice, num_steps, starts),
      self._seconds_left,
      settings.reports,
      _SHARE_TRIED_FIRST if stage == _LOOK else 1.0,
    )
    chains = chains_lib.start(
      engine,
      choice,
      density,
      settings.num_draws,
      run,
      most,
    )
    self._ended_by = self._ended_by or chains.cut_by
    found = f'{choice.name}, {num_steps} steps'
    try:
      found += self._seen(chains)
    except KeyboardInterrupt:  # Keep the chains, and the steps in the report.
      self._ended_by = self._ended_by or 'the user'
    # Steps are not calls of the density; starts and measurements are.
    num_calls = self._density.num_calls - before
    self._note(stage, found, chains.num_gradients + num_calls, begin)
    return chains

  def _seen(self, chains):
    """Measures the noise of the density; returns words on adapted chains."""
    choice, found = chains.choice, ''
    if modes.is_exchange(choice.part):
      found += f', {choice.part.num_replicas} temperatures: chains disagree'
    if choice.target_accept_prob != structure.ACCEPT_PROB:
      found += f', acceptance {choice.target_accept_prob}'
    is_lost = chains.is_lost
    if np.any(is_lost):
      found += f'; {self._words(is_lost)}'
    if chains.is_settled:
      chains.noise = rounding.measured(
        self._density, chains.draws, chains.trace['target_log_prob']
      )
      if chains.noise.nats > _NOTABLE_NOISE:
        found += f'; rounding noise of {chains.noise.nats:.2g} nats'
    if chains.cut_by:
      found += f'; cut off by {chains.cut_by}'
    return found

  def _choice(self, chains):
    """Returns the best structure, or an exchange if chains disagree.

    Chains that disagree may be in different modes, or only be slow. In few
    coordinates an exchange helps slow chains too, see
    docs/results/front_door.md. But a map that was not tried yet may bring the
    chains together, and is cheaper. Chains that have not arrived are left out.
    """
    before = chains.choice
    if modes.is_exchange(before.part):
      return before._replace(
        part=before.part.after(chains.engine.results.barrier)
      )
    choice = self._choose(chains)
    is_new_map = not choice.is_matrix and choice.name != before.name
    draws = chains.draws[:, ~chains.is_lost]
    if is_new_map or not modes.may_be_helped(draws):
      return choice
    return structure.Choice(modes.NAME, modes.around(draws), choice.losses)

  def _choose(self, chains):
    """Chooses the structure from draws and the gradients at these draws."""
    begin, before = time.monotonic(), self._density.num_calls
    by_chain = np.swapaxes(chains.draws, 0, 1)[~chains.is_lost]
    # All chains have equal shares. Some of very many chains have none.
    by_chain = by_chain[:: -(-len(by_chain) // plan.NUM_PAIRS)]
    num_chains, num_draws, size = by_chain.shape
    by_chain = by_chain[:, :: -(-num_chains * num_draws // plan.NUM_PAIRS)]
    chain = np.repeat(np.arange(num_chains), by_chain.shape[1])
    rows = by_chain.reshape(-1, size)
    _, gradients = self._density.evaluate(rows)
    is_finite = np.all(np.isfinite(gradients), axis=-1)
    choice = structure.choose(
      rows[is_finite],
      gradients[is_finite],
      chains.matrix,
      chains.diverge,
      chain[is_finite],
    )
    found = choice.words(self._problem.coordinates)
    if not np.all(is_finite):
      found += f'; {np.sum(~is_finite)} of {len(rows)} pairs have no gradient'
    self._note('structure', found, self._density.num_calls - before, begin)
    return choice

  def _sample(self, chains, may_adapt):
    """Returns the `Posterior` when no check asks for draws or the run ends.

    If `may_adapt`, the method also returns when the draws are far from enough.
    """
    if self._sampling is None:
      self._sampling = chains.num_gradients, time.monotonic()
    while True:
      try:
        if not self._is_unjudged:
          self._fill_or_keep(chains)
        self._is_unjudged = False
        stage = self._stage(chains)
        # Judging a small model takes longer than drawing.
        runs_on = self._place.runs_on and self._draws_are_few(chains, stage)
        if runs_on and not self._ended_by:
          continue
        posterior = self._posterior(chains, stage)
      except KeyboardInterrupt:  # Ctrl-C may come while draws are judged.
        self._ended_by = 'the user'
        stage = self._stage(chains)
        posterior = self._posterior(chains, stage)
      verdict, min_ess = posterior.verdict, self._settings.min_ess
      runs_on = posterior.converged and self._draws_are_few(chains, stage)
      self._place = self._place._replace(runs_on=runs_on)
      is_far = may_adapt and self._is_far(chains, posterior)
      # Few draws can look worse than their sampler is.
      is_early = (
        is_far
        and chains.cost_less_than_adapting
        and verdict.worst('rhat') is not None
        and not np.any(chains.is_lost)
        and not self._lacks_exchange(chains)
      )
      is_done = is_far or not (verdict.asks_for_draws(min_ess) or runs_on)
      is_done &= not is_early
      is_done |= bool(self._ended_by) or chains.is_too_noisy
      if is_done:
        self._report.append(stage)
        self._sampling = None
        return posterior
      self._say(
        'all checks passed, but draws took less than half of the gradients'
        if runs_on
        else 'not enough: ' + '; '.join(posterior.failed)
      )

  def _is_far(self, chains, posterior):
    """Whether another adaptation pays."""
    if posterior.converged:
      return False
    return chains.may_be_more_careful or posterior.verdict.is_far_from_enough(
      self._settings.min_ess
    )

  def _lacks_exchange(self, chains):
    """Whether another round may try an exchange for the first time."""
    is_exchange = modes.is_exchange(chains.choice.part)
    return not is_exchange and modes.may_be_helped(chains.draws)

  def _stage(self, chains):
    """Returns the stage 'sample' so far."""
    before, begin = self._sampling
    every = f'{chains.thinning}. ' if chains.thinning > 1 else ''
    return Stage(
      'sample',
      f'every {every}step',
      chains.num_gradients - before,
      time.monotonic() - begin,
    )

  def _posterior(self, chains, *stages):
    return Posterior(
      self._problem,
      chains,
      [*self._report, *stages],
      self._settings.min_ess,
      self._ended_by,
    )

  def _fill_or_keep(self, chains):
    """Fills the chains; if a block fails, they keep their draws so far."""
    try:
      self._fill(chains)
    except Exception as error:
      progress.log_failure('A block of draws failed.')
      chains.error = run_file.message_of(error)
      self._ended_by = 'an error'

  def _fill(self, chains):
    """Runs blocks until the chains are full again, or the budget is spent."""
    while True:
      spent = self._spent + self._stage(chains).num_gradients
      left = self._settings.max_gradients - spent
      if chains.gradients_of_a_block > left:
        self._ended_by = '`max_gradients`'
      elif self._is_late:
        self._ended_by = '`max_seconds`'
      if self._ended_by:
        return
      if chains.gradients_to_go_on > left:
        # The budget does not pay for refilling thinned chains, so they grow.
        chains.extend_by_a_block()
      if chains.fitting(self._seconds_left()) < chains.block_size:
        # The file keeps the draws before this shorter block. A call that
        # resumes can then draw the whole block, as without a limit.
        self._save(chains, self._stage(chains))
        self._is_file_final = True
      chains.run_block(self._seconds_left())
      if self._file.is_due:
        self._save(chains, self._stage(chains))
      if chains.is_full:
        return

  def _draws_are_few(self, chains, stage):
    """Returns `plan.draws_are_few` for the chains as they are."""
    settings, more = self._settings, chains.gradients_to_go_on
    spent = self._spent + stage.num_gradients
    seconds = more * stage.seconds / max(stage.num_gradients, 1.0)
    seconds += time.monotonic() - self._begin
    is_in_time = seconds < settings.max_seconds
    return plan.draws_are_few(
      chains.gradients_of_draws, spent, more, is_in_time, settings.max_gradients
    )

  def _seed(self, number):
    return random.fold_in(self._settings.seed, number)

  def _save(self, chains, *stages):
    """Writes the file from which a call with the same arguments resumes."""
    if self._is_file_final:
      return
    report = [*self._report, *stages]
    self._file.write(chains, report, self._place, self._ended_by)

  def _resumed(self):
    """Returns the `Chains` of an earlier call, or `None`."""
    kept = self._file.read()
    if kept is None:
      return None
    chains, self._report, self._place, is_richer = kept
    self._density = chains.density
    if is_richer:
      self._place = self._place.with_a_larger_budget()
    if self._place.phase == 'sample':
      self._is_unjudged = chains.is_full
      stage = self._report.pop()
      self._sampling = (
        chains.num_gradients - stage.num_gradients,
        time.monotonic() - stage.seconds,
      )
    self._say(
      f'continued from {self._settings.checkpoint_dir}: {self._place.phase}'
    )
    return chains

  def _note(self, name, found, num_gradients, begin):
    stage = Stage(name, found, num_gradients, time.monotonic() - begin)
    self._report.append(stage)
    self._say(str(stage))

  def _say(self, line):
    if self._settings.reports.is_shown:
      progress.say(line)
