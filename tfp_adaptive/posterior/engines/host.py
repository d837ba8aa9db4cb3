"""Hamiltonian Monte Carlo whose adaptation runs in NumPy, on the host.

Compiling a kernel with its adaptation takes longer than sampling most
posteriors. Here only the steps are compiled, see `program`. All that NumPy
learns is an argument of this program. The sampler is that of
`fisher_divergence_hamiltonian` and `transport_adaptive_hamiltonian`.

The noise of a step depends only on the seed, the number of the step, and the
share of steps that may be tried again. So after the adaptation it does not
matter how steps are divided into calls. While chains adapt, the division does
not depend on time.
"""

import pathlib
import time
from typing import NamedTuple

import numpy as np

from tfp_adaptive.core import step_sizes
from tfp_adaptive.driver import checkpoint
from tfp_adaptive.driver import progress as progress_lib
from tfp_adaptive.posterior.engines import kept
from tfp_adaptive.posterior.engines import lengths as lengths_lib
from tfp_adaptive.posterior.engines import program as program_lib
from tfp_adaptive.posterior.engines import recorded
from tfp_adaptive.posterior.engines import retries

_DIVERGENCE = -1000.0  # Largest log acceptance ratio of a divergence.
_MOST_TRIALS = 100  # The search changes the first scale by at most 2^100.
_RATE, _FIRST_RATE = 0.0075, 0.5  # Rates of the step size, see `_learn`.
# An adaptation is saved after this many steps or seconds, whichever is sooner.
_STEPS_TO_SAVE, _SECONDS_TO_SAVE = 250, 10.0
# Calls after the adaptation take about this long at most, or one step.
_SECONDS_OF_CALL = 0.25
_STEPS_OF_ONE = 16  # After n adapting steps, a call takes at most n / 16.


class _Drawn(NamedTuple):
  """Draws [n, chains, ...], and the steps that led to them."""

  states: np.ndarray
  values: np.ndarray
  is_accepted: np.ndarray
  energies: np.ndarray
  # The steps between draws are included here.
  log_accept_ratio: np.ndarray  # [num_steps, chains].
  first_ratio: np.ndarray  # First proposals alone, [num_steps, chains].
  lengths: np.ndarray  # Numbers of leapfrog steps, [num_steps].


class HostEngine(kept.Kept):
  """Chains that adapt, and then draw.

  Attributes:
    seed: Two words, int.
    part: `parts.LearnedMatrix` or `parts.LearnedMap`.
    step_size: Step size of the leapfrog in z.
    num_steps: Steps so far, adapting ones included.
  """

  name = 'host'
  # Target acceptance if proposals diverge. Steps that are tried again reach
  # narrow regions, so it is lower than that of the compiled engine.
  careful_accept_prob = 0.95
  fields = (
    'part',
    'lengths',
    'step_size',
    'num_steps',
    '_direction',
    '_num_trials',
    '_num_updates',
    '_leaps_per_step',
  )

  def __init__(
    self, density, part, starts, seed, num_adaptation_steps, target_accept_prob
  ):
    """Evaluates the density at starts [chains, d]; `part` has not adapted."""
    self.seed, self.num_adaptation_steps = seed, num_adaptation_steps
    self.with_xla = density.is_compiled
    self._dtype, self._target = density.dtype, target_accept_prob
    self._program = density.steps()
    self.part = part
    starts = np.asarray(starts, self._dtype.as_numpy_dtype)
    values, gradients = density.evaluate(starts)
    self._point = program_lib.at_starts(starts, values, gradients)
    self.num_steps = self._num_updates = self._direction = 0
    self.step_size, self._num_trials = 1.0, _MOST_TRIALS
    part.scale_by(self._first_scale(), starts, gradients)
    self._turn()
    self.lengths = lengths_lib.Lengths(getattr(self._point, part.coordinates))
    # Mean number of leapfrog steps of a step in the last block of draws.
    self._leaps_per_step = 0.0
    self._last = None  # The steps of the last call, `program.Taken`.
    self._reports, self._saved_at = progress_lib.SILENT, time.monotonic()
    self._seconds_per_step, self._has_compiled = np.inf, False

  @property
  def states(self):
    """Last states of the chains, [chains, d]."""
    return self._point.states

  @property
  def factor(self):
    """The learned matrix C, [d, d], or `None` for a map."""
    return self.part.factor if self.part.is_matrix else None

  @property
  def is_settled(self):
    """Whether the adaptation has ended."""
    return self.num_steps >= self.num_adaptation_steps

  @property
  def cost(self):
    """Mean number of gradients between two draws that are not thinned."""
    lengths = self.lengths
    of_step = self._leaps_per_step or float(np.mean(lengths.settled))
    return lengths.steps_of_draw * of_step

  @property
  def cost_of_adapting(self):
    """Mean number of gradients of the adapting steps so far."""
    return self.lengths.num_taken / max(1, self.lengths.num_steps)

  @property
  def steps_of_draw(self):
    """Number of steps between two draws that are not thinned."""
    return self.lengths.steps_of_draw

  def start(self, num_draws, run):
    """Adapts, then draws; returns the `Recorded` draws of each chain."""
    state = None
    if run.folder is not None:
      with checkpoint.writing(run.folder):
        pathlib.Path(run.folder).mkdir(parents=True, exist_ok=True)
      state = checkpoint.State(run.folder, run.identity(), 'checkpoint_dir')
      self._resume(state)
    self._reports = run.reports
    count, done = self.num_adaptation_steps, 0
    taken, cut_by = [], ''
    try:
      with progress_lib.Progress(
        count, run.reports, num_discarded=count
      ) as progress:
        while done < num_draws * self.lengths.steps_of_draw:
          if run.seconds_left is not None and run.seconds_left() <= 0.0:
            cut_by = '`max_seconds`'
            break
          if not self.is_settled:
            before = self.num_steps
            self._adapt()
            self._save(state, before)
            step, phase = self.num_steps, 'adapt'
          else:
            every = self.lengths.steps_of_draw
            left = num_draws * every - done
            taken.append(self._take(left, done, every, run.share_tried))
            done += len(taken[-1].lengths)
            step, phase = count + done, 'sample'
          # The adaptation also learns how many steps make a draw.
          progress.num_steps = count + num_draws * self.lengths.steps_of_draw
          progress.update(step, phase, self._accept_rate)
    except KeyboardInterrupt:
      cut_by = 'the user'
    every = self.lengths.steps_of_draw
    return self._recorded(taken, every, self._seconds_per_step * every, cut_by)

  def draw(self, num_draws, steps_per_draw, number):
    """Continues the chains; returns the `Recorded` draws."""
    del number  # The noise depends on the numbers of the steps.
    every = steps_per_draw * self.lengths.steps_of_draw
    total, done, taken = num_draws * every, 0, []
    with progress_lib.Progress(total, self._reports, is_kept=False) as progress:
      while done < total:
        taken.append(self._take(total - done, done, every))
        done += len(taken[-1].lengths)
        progress.update(done, 'sample', self._accept_rate)
    return self._recorded(taken, every)

  def to_saved(self):
    """Returns JSON values and arrays, for `load`."""
    return dict(name=self.name), self.to_arrays()

  def load(self, header, arrays, reports=progress_lib.SILENT):
    """Restores the state that `to_saved` returned."""
    del header
    self.load_arrays(arrays)
    self._reports = reports

  def to_arrays(self, prefix=''):
    found = super().to_arrays(prefix)
    for name, rows in self._point._asdict().items():
      found[f'{prefix}point.{name}'] = rows
    return found

  def load_arrays(self, arrays, prefix=''):
    super().load_arrays(arrays, prefix)
    names = program_lib.Point._fields
    rows = [arrays[f'{prefix}point.{name}'] for name in names]
    self._point = program_lib.Point(*rows)
    self._data = self._program.as_data(self.part.params)

  def _resume(self, state):
    found = state.load()
    if found is not None:
      leaves, header = found
      self.load_arrays(dict(zip(header['names'], leaves, strict=True)))

  def _save(self, state, before):
    """Writes the adaptation at its end, and earlier at intervals."""
    if state is None:
      return
    is_due = before // _STEPS_TO_SAVE < self.num_steps // _STEPS_TO_SAVE
    is_due |= self.is_settled
    is_due |= time.monotonic() - self._saved_at > _SECONDS_TO_SAVE
    if is_due:
      arrays = self.to_arrays()
      state.save(list(arrays.values()), names=list(arrays))
      self._saved_at = time.monotonic()

  def _recorded(self, taken, every, seconds=0.0, cut_by=''):
    """Returns the `Recorded` draws, one for each `every` steps of `taken`."""
    drawn = _Drawn(*map(np.concatenate, zip(*taken))) if taken else None
    are_draws = drawn is not None and len(drawn.states) > 0
    if not are_draws:
      drawn, every, seconds = self._now(), 1, 0.0
    count = len(drawn.states)
    of_steps = drawn.log_accept_ratio[: count * every]
    of_steps = of_steps.reshape(count, every, -1)
    ratios = of_steps[:, -1]
    # A draw diverges if one of its steps does. Thinned draws count the last
    # steps only, so that thinning does not change the share that diverges.
    of_draw = slice(-self.lengths.steps_of_draw, None)
    least = np.min(of_steps[:, of_draw], axis=1)
    first = drawn.first_ratio[: count * every].reshape(of_steps.shape)
    # All chains take equally many leapfrog steps.
    num_leaps = drawn.lengths[: count * every].reshape(count, every).sum(axis=1)
    if are_draws:
      self._leaps_per_step = float(np.sum(num_leaps)) / (count * every)
    trace = dict(
      target_log_prob=drawn.values,
      log_accept_ratio=ratios,
      least_log_accept_ratio=least,
      least_first_ratio=np.min(first[:, of_draw], axis=1),
      is_accepted=drawn.is_accepted,
      diverging=least <= _DIVERGENCE,
      n_steps=np.broadcast_to(num_leaps[:, np.newaxis], ratios.shape),
      step_size=np.full(ratios.shape, self.step_size),
      energy=drawn.energies,
    )
    return recorded.Recorded(drawn.states, trace, seconds, cut_by, are_draws)

  def _now(self):
    """Returns the last states as `_Drawn`, for a run without draws."""
    point = self._point
    unknown = np.full([1, len(point.values)], np.nan)
    return _Drawn(
      point.states[np.newaxis],
      point.values[np.newaxis],
      is_accepted=np.zeros(unknown.shape, bool),
      energies=unknown,
      log_accept_ratio=unknown,
      first_ratio=unknown,
      lengths=np.zeros([1], int),
    )

  @property
  def _accept_rate(self):
    return float(np.mean(self._last.is_accepted)) if self._last else None

  def _adapt(self):
    """Takes one or more steps and learns from them."""
    before, first = self._point, self.num_steps
    steps = range(first, first + self._num_together())
    generators = [self._generator(step) for step in steps]
    drawn = self._drawn(generators)
    taken = self._steps(drawn)
    is_searching, is_new = self._num_trials > 0, False
    name = self.part.coordinates
    now = taken.visited(name, before)
    places = np.concatenate([getattr(before, name)[np.newaxis], now])
    known = self._known(
      taken.visited('states', before), taken.visited('gradients', before)
    )
    accept_prob = np.exp(np.minimum(taken.log_accept_ratio, 0.0))
    with np.errstate(all='ignore'):
      for turn, count in enumerate(drawn.lengths.tolist()):
        mean, pairs = np.mean(accept_prob[turn]), [x[turn] for x in known]
        if is_searching:
          self._search(mean, *pairs)
        else:
          is_new |= self._learn(mean, *pairs, generators[turn])
        self.lengths.add(
          count,
          places[turn],
          getattr(taken, name)[turn],
          places[turn + 1],
          accept_prob[turn],
          is_searching,
        )
        self.lengths.review(first + turn + 1, self.num_adaptation_steps)
    if is_new or is_searching:
      self._turn()
    if is_new and not self.part.is_matrix:
      self.lengths.restart(self._point.rows)

  def _num_together(self):
    """Returns how many steps one call takes before the engine learns from them.

    The number does not depend on the seconds of a step, so that the same seed
    gives the same draws.
    """
    if self._num_trials or not self.with_xla:
      return 1  # Without XLA a density is slow, and calls add little time.
    left = self.num_adaptation_steps - self.num_steps
    most = min(self._program.most_steps, self.num_steps // _STEPS_OF_ONE)
    return int(max(1, min(most, left, self.part.steps_to_fit)))

  def _take(self, num_steps, done, every, share_tried=1.0):
    """Takes up to `num_steps` steps without learning; returns `_Drawn`.

    Every `every` steps make a draw, and `done` steps were taken before. They
    tell which of the next steps are draws. `share_tried` is the share of the
    steps that may be tried again.
    """
    fitting = _SECONDS_OF_CALL / max(self._seconds_per_step, 1e-9)
    most = min(num_steps, self._program.most_steps, max(1.0, fitting))
    steps = range(self.num_steps, self.num_steps + int(most))
    begin = self._point
    generators = [self._generator(step) for step in steps]
    taken = self._steps(self._drawn(generators, share_tried))
    # An accepted proposal has changed the energy by -log ratio.
    change = np.where(taken.is_accepted, taken.log_accept_ratio, 0.0)
    each_step = (
      taken.visited('states', begin),
      taken.visited('values', begin),
      taken.is_accepted,
      taken.energies - change,
    )
    first = (-done - 1) % every
    # Copies, because a slice would keep all steps in memory.
    draws = (rows[first::every].copy() for rows in each_step)
    return _Drawn(
      *draws, taken.log_accept_ratio, taken.first_ratio, taken.lengths
    )

  def _generator(self, step):
    """Returns the generator of a step."""
    key = np.array(self.seed, np.uint64)
    return np.random.Generator(
      np.random.Philox(key=key, counter=[0, 0, 0, step])
    )

  def _drawn(self, generators, share_tried=1.0):
    """Returns the `program.Noise` of the next steps, one generator for each.

    A random share `share_tried` of the steps may be tried again.
    """
    shape, drawn = self.states.shape, []
    for step, generator in enumerate(generators, self.num_steps):
      fewest, most = self.lengths.range_at(step, self.num_adaptation_steps)
      length = int(generator.integers(fewest, most + 1))
      share = self.lengths.share_kept(length, step, self.num_adaptation_steps)
      momenta = generator.standard_normal(shape)
      uniforms = generator.random(shape[0])
      again = np.full(shape[:1], retries.NEVER)
      # The acceptance of single proposals is what the adaptation learns from.
      if step >= self.num_adaptation_steps:
        numbers = generator.random(shape[0])
        # Chains decide together, because all of them pay for the try of one.
        again = numbers if generator.random() < share_tried else again
      drawn.append((length, share, momenta, uniforms, again))
    return program_lib.Noise(*map(np.stack, zip(*drawn)))

  def _steps(self, noise):
    """Moves the chains by steps with the given noise; returns `Taken`."""
    begin, count = time.monotonic(), len(noise.lengths)
    point, taken = self._program.run(
      self._data, self._point, self.step_size, noise
    )
    # One statement changes all fields, so after an interrupt either all are new
    # or all are old.
    self.__dict__.update(
      _point=point, _last=taken, num_steps=self.num_steps + count
    )
    if self._has_compiled:
      self._seconds_per_step = (time.monotonic() - begin) / count
    self._has_compiled = True
    return taken

  def _turn(self):
    """Computes z and the forces of the chains again for the present part."""
    params, point = self.part.params, self._point
    rows = params.inverse(point.states)
    _, log_det, pull = params.forward(rows)
    arrays = rows, *point[1:4], log_det, pull(point.gradients), *point[6:]
    dtype = self._dtype.as_numpy_dtype
    self._point = program_lib.Point(*(np.asarray(x, dtype) for x in arrays))
    self._data = self._program.as_data(params)

  def _known(self, states, gradients):
    """Returns states and gradients, with NaN where their squares overflow."""
    pairs = [x.astype(np.float64) for x in (states, gradients)]
    with np.errstate(all='ignore'):
      squares = np.sum(pairs[0] ** 2 + pairs[1] ** 2, axis=-1, keepdims=True)
      is_known = np.isfinite(squares.shape[-2] * squares)
    return [np.where(is_known, rows, np.nan) for rows in pairs]

  def _first_scale(self):
    """Returns the scale that gradients suggest, see `linear.scale_search`."""
    with np.errstate(all='ignore'):
      squares = np.mean(self._point.gradients.astype(np.float64) ** 2, axis=1)
      square = np.mean(squares[np.isfinite(squares)])
    is_usable = np.isfinite(square) and square > 0.0
    scale = square**-0.5 if is_usable else 1.0
    return float(scale) / lengths_lib.FIRST[1]

  def _search(self, accept_prob, states, gradients):
    """Doubles or halves the scale until the acceptance crosses its target."""
    direction = 1 if accept_prob > self._target else -1
    has_crossed = self._direction not in (0, direction)
    self._num_trials = 0 if has_crossed else self._num_trials - 1
    by = 1.0 if has_crossed else 2.0**direction
    self._direction = direction
    self.part.scale_by(by, states, gradients)

  def _learn(self, accept_prob, states, gradients, generator):
    """Updates part and step size; returns whether the part has changed.

    The log of the step size moves by rate_t (acceptance - target), with rate_t
    = max(_RATE, _FIRST_RATE (1 + t)^-0.6). Here t is what `num_steps_followed`
    of the part returns; see `linear.closed_form`.
    """
    learned = self.part.learn(states, gradients, generator)
    followed = self.part.num_steps_followed(self._num_updates)
    rate = max(_RATE, _FIRST_RATE * (1.0 + followed) ** -0.6)
    size = learned.step_size or self.step_size
    size = size * np.exp(rate * (accept_prob - self._target))
    largest = step_sizes.largest(self._dtype)
    self.step_size = float(np.clip(size, 1.0 / largest, largest))
    self._num_updates += 1
    return learned.is_new
