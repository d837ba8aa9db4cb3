"""Hamiltonian Monte Carlo in NumPy: only the density is compiled.

A program of steps takes XLA longer to build than most posteriors take to
sample. Here the density and its gradient are the one compiled function; steps,
and all that is learned, are NumPy. The sampler is that of
`fisher_divergence_hamiltonian` and `transport_adaptive_hamiltonian`: first a
scale is searched, then steps follow the acceptance, trajectories get the
lengths with most effective draws per gradient, and a matrix or a map is fitted
now and then.

The noise of a step depends on the seed and the number of the step alone, so
that steps in one go and in several calls are the same.
"""

import numpy as np

from tfp_adaptive.core import step_sizes
from tfp_adaptive.posterior.engines import kept
from tfp_adaptive.posterior.engines import lengths as lengths_lib

__all__ = ['HostEngine']

_DIVERGENCE = -1000.0  # Log ratio below which a step counts as diverging.
_MOST_TRIALS = 100  # Of the first scale: 2^100 either way.
_RATE, _FIRST_RATE = 0.0075, 0.5  # Of log s.


class HostEngine(kept.Kept):
  """Chains that adapt, and then draw.

  Attributes:
    states: Where the chains are, [chains, d].
    num_steps: Steps so far, adapting ones among them.
    num_adaptation_steps: How many of them adapt.
    step_size: Of the leapfrog behind the part.
    part: `parts.LearnedMatrix` or `parts.LearnedMap`.
    lengths: `lengths.Lengths`.
  """

  fields = (
    'states',
    'num_steps',
    'step_size',
    'part',
    'lengths',
    '_values',
    '_gradients',
    '_scale',
    '_direction',
    '_num_trials',
    '_num_updates',
  )

  def __init__(
    self, density, part, starts, seed, num_adaptation_steps, target_accept_prob
  ):
    """Evaluates the density at the starts; takes no step.

    Args:
      density: Function of rows [chains, d] to values [chains] and gradients
        [chains, d], numpy.
      part: `parts.LearnedMatrix` or `parts.LearnedMap`, as it starts.
      starts: [chains, d], in the dtype of the density.
      seed: Two words, int.
      num_adaptation_steps: Steps that adapt, int.
      target_accept_prob: Wanted mean acceptance.
    """
    self.part, self.num_adaptation_steps = part, num_adaptation_steps
    self._density, self._dtype = density, np.asarray(starts).dtype
    self._target = target_accept_prob
    # Bounds as of compiled kernels, float64 here.
    self._largest = step_sizes.largest('float64')
    self._key = np.array(seed, np.uint64)
    self.states = np.asarray(starts, np.float64)
    self._values, self._gradients = self._evaluated(self.states)
    self.num_steps = self._num_updates = self._direction = 0
    self.step_size, self._num_trials = 1.0, _MOST_TRIALS
    self._scale = self._first_scale()
    part.scale_by(self._scale, self.states, self._gradients)
    self.lengths = lengths_lib.Lengths(part.turning(self.states))

  @property
  def is_settled(self):
    """Whether nothing adapts any more."""
    return self.num_steps >= self.num_adaptation_steps

  @property
  def cost(self):
    """Gradients of a step on average, by the range that was learned."""
    return float(np.mean(self.lengths.best))

  @property
  def cost_of_adapting(self):
    """Gradients of an adapting step, on average of those taken."""
    return self.lengths.num_taken / max(1, self.lengths.num_steps)

  def adapt(self):
    """Takes one adapting step; returns the mean acceptance."""
    noise = self._noise()
    before = self.states
    step = self._step(noise)
    accept_prob = float(np.mean(step.accept_prob))
    is_searching = self._num_trials > 0
    states, gradients = self._known()
    with np.errstate(all='ignore'):
      if is_searching:
        self._search(accept_prob, states, gradients)
        has_new_map = False
      else:
        has_new_map = self._learn(accept_prob, states, gradients, noise)
      self._learn_length(step, before, is_searching)
    if has_new_map:
      self.lengths.restart(self.part.turning(self.states))
    return accept_prob

  def step(self):
    """Takes one step that adapts nothing; returns its trace, [chains] each."""
    step = self._step(self._noise())
    ratio = step.log_accept_ratio
    return dict(
      target_log_prob=self._values,
      log_accept_ratio=ratio,
      is_accepted=step.is_accepted,
      diverging=ratio <= _DIVERGENCE,
    )

  def _noise(self):
    """Returns the generator of the next step."""
    counter = [0, 0, 0, self.num_steps]
    return np.random.Generator(np.random.Philox(key=self._key, counter=counter))

  def _step(self, noise):
    """Moves the chains by one Hamiltonian step; returns the `_Step`."""
    fewest, most = (self.lengths.best if self.is_settled else self.lengths.drawn)
    num_steps = int(noise.integers(fewest, most + 1))
    momentum = noise.standard_normal(self.states.shape)
    with np.errstate(all='ignore'):
      end, values, gradients, change = self._trajectory(momentum, num_steps)
      ratio = values - self._values + change
    ratio = np.where(np.isfinite(ratio), ratio, -np.inf)
    accept_prob = np.exp(np.minimum(ratio, 0.0))
    is_accepted = noise.random(len(ratio)) < accept_prob
    # One statement, so that an interrupt leaves no half of a step.
    where = is_accepted[:, np.newaxis]
    self.__dict__.update(
      states=np.where(where, end, self.states),
      _values=np.where(is_accepted, values, self._values),
      _gradients=np.where(where, gradients, self._gradients),
      num_steps=self.num_steps + 1,
    )
    return _Step(num_steps, end, ratio, accept_prob, is_accepted)

  def _trajectory(self, momentum, num_steps):
    """Returns the end, its values and gradients, and what adds to the ratio."""
    part, size = self.part, self.step_size
    rows, log_det = part.begin(self.states)
    *_, pull = part.forward(rows)
    velocity = momentum + 0.5 * size * pull(self._gradients)
    for turn in range(num_steps):
      rows = rows + size * velocity
      states, end_log_det, pull = part.forward(rows)
      states = states.astype(self._dtype).astype(np.float64)
      values, gradients = self._evaluated(states)
      last = turn == num_steps - 1
      velocity = velocity + (0.5 if last else 1.0) * size * pull(gradients)
    kinetic = 0.5 * np.sum(momentum**2 - velocity**2, axis=1)
    return states, values, gradients, end_log_det - log_det + kinetic

  def _evaluated(self, states):
    values, gradients = self._density(states.astype(self._dtype))
    return values.astype(np.float64), gradients.astype(np.float64)

  def _known(self):
    """Returns states and gradients, NaN where squares overflow."""
    squares = np.sum(self.states**2 + self._gradients**2, axis=1)
    is_known = np.isfinite(len(squares) * squares)[:, np.newaxis]
    return (
      np.where(is_known, self.states, np.nan),
      np.where(is_known, self._gradients, np.nan),
    )

  def _first_scale(self):
    """Returns the scale that gradients suggest, see `linear.scale_search`."""
    with np.errstate(all='ignore'):
      squares = np.mean(self._gradients**2, axis=1)
      square = np.mean(squares[np.isfinite(squares)])
    is_usable = np.isfinite(square) and square > 0.0
    scale = square**-0.5 if is_usable else 1.0
    return float(scale) / lengths_lib.FIRST[1]

  def _search(self, accept_prob, states, gradients):
    """Doubles or halves the scale; ends the search at the first crossing."""
    direction = 1 if accept_prob > self._target else -1
    has_crossed = self._direction not in (0, direction)
    self._num_trials = 0 if has_crossed else self._num_trials - 1
    by = 1.0 if has_crossed else 2.0**direction
    self._direction = direction
    self._scale *= by
    is_known = np.isfinite(states[:, 0])
    if np.any(is_known):
      states, gradients = states[is_known], gradients[is_known]
    self.part.scale_by(by, states, gradients)

  def _learn(self, accept_prob, states, gradients, noise):
    """Moves part and step size; returns whether there is another map."""
    size, has_new_map = self.part.learn(states, gradients, noise)
    followed = self.part.num_steps_followed(self._num_updates)
    rate = max(_RATE, _FIRST_RATE * (1.0 + followed) ** -0.6)
    size = self.step_size if size is None else size
    size = size * np.exp(rate * (accept_prob - self._target))
    self.step_size = float(np.clip(size, 1.0 / self._largest, self._largest))
    self._num_updates += 1
    return has_new_map

  def _learn_length(self, step, before, is_searching):
    """Learns from the ends of trajectories which lengths are best."""
    places = np.concatenate([before, step.end, self.states])
    # What is not finite has no place in a map.
    is_finite = np.all(np.isfinite(places), axis=1, keepdims=True)
    turned = self.part.turning(np.where(is_finite, places, 0.0))
    places = np.split(np.where(is_finite, turned, np.nan), 3)
    self.lengths.add(
      step.num_steps, *places, step.accept_prob, is_searching
    )
    self.lengths.choose(self.num_steps, self.num_adaptation_steps)


class _Step:
  """A step that was taken: its number of leapfrog steps, end, acceptance."""

  def __init__(self, num_steps, end, log_accept_ratio, accept_prob, is_accepted):
    self.num_steps, self.end = num_steps, end
    self.log_accept_ratio, self.accept_prob = log_accept_ratio, accept_prob
    self.is_accepted = is_accepted
