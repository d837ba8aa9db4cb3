"""One adaptation, and what goes on from it at a wanted acceptance.

Ways to go on differ in lengths, factors and what is kept of the momentum; they
share the factor that HMC by Fisher divergence has learned, the states where it
ended and one compiled program.
"""

from typing import Any
from typing import NamedTuple

import numpy as np
import scipy.special
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.framework import diagnostics
from experiments.samplers.base import find_field
from experiments.studies import persistent_momentum
from experiments.studies.trajectory_lengths import effective_sizes
from experiments.studies.trajectory_lengths import Sampler

__all__ = ['Learned', 'Problem', 'Runs', 'Setting']

_NUM_CHAINS, _BLOCK = 8, 125
_NUM_ADAPTATION_STEPS, _NUM_GRADIENTS = 3125, 12_500
_TUNING_BLOCKS = 10
_WORST = 12  # Coordinates that a grid looks at, of means and of squares.


class Setting(NamedTuple):
  """A way to go on from what was learned; plain enough for JSON."""

  # Fewest and most leapfrog steps of each component; 'most': as learned.
  lengths: tuple
  accept: float = 0.8  # The library's.
  # Damping in units of the slowest direction; None: no momentum is kept.
  damping: Any = None
  # Whether the uniform moves by half of what the momentum loses.
  is_moved: bool = False
  # 'fisher', or 'speed': a factor for each component, or all that of the last.
  factor: str = 'fisher'
  is_shared: bool = True


class Learned(NamedTuple):
  """What one adaptation found."""

  factor: Any  # [d, d], without its step size.
  step_size: float
  range: list  # Fewest and most leapfrog steps.
  states: Any  # Last ones, [chains, d].
  slowest: float  # Largest eigenvalue of the covariance of C^-1 x.


class Problem:
  """A target with the programs that its runs share."""

  def __init__(self, log_prob, event_size):
    self.log_prob, self.event_size = log_prob, event_size
    self._samplers = {}
    self._block = tf.function(
      lambda law, state, seed: persistent_momentum.block(
        log_prob, law, state, seed, _BLOCK
      ),
      autograph=False,
      jit_compile=True,
    )

  def learn(self, num_steps, seed):
    """Returns what HMC of a length learns by the speed measure; None: Fisher.

    Args:
      num_steps: L, or None for the default.
      seed: Int.
    """
    amount = _NUM_GRADIENTS // num_steps if num_steps else _NUM_ADAPTATION_STEPS
    if num_steps not in self._samplers:
      if num_steps:
        kernel = tfpa.entropy_adaptive_hamiltonian(
          self.log_prob, amount, num_leapfrog_steps=num_steps
        )
      else:
        kernel = tfpa.fisher_divergence_hamiltonian(self.log_prob, amount)
      self._samplers[num_steps] = kernel, Sampler(kernel)
    kernel, sampler = self._samplers[num_steps]
    normals = np.random.default_rng(seed).normal(
      size=(_NUM_CHAINS, self.event_size)
    )
    state = tf.constant(normals)
    states, _, _, results = sampler.advance(
      state, sampler.start(state, None), (seed, 1), np.inf, amount
    )
    params = find_field(results, 'preconditioner_params')
    factor = kernel.preconditioner.operator(params).to_dense().numpy()
    late = states[len(states) // 2 :].reshape(-1, self.event_size)
    white = np.linalg.solve(factor, late.T)
    return Learned(
      factor,
      float(find_field(results, 'step_size')),
      find_field(results, 'num_leapfrog_steps').numpy().tolist()
      if num_steps is None
      else [num_steps, num_steps],
      states[-1],
      float(np.linalg.eigvalsh(np.cov(white))[-1]),
    )

  def advance(self, law, state, seed, num_gradients):
    """Returns the last state, positions, leapfrog steps and acceptance."""
    found = []
    while sum(np.sum(f[1]) for f in found) < num_gradients:
      state, *numbers = self._block(
        law, state, tf.constant([seed[0], 1000 * seed[1] + len(found)])
      )
      found.append([n.numpy() for n in numbers])
    return state, *map(np.concatenate, zip(*found))

  def step_size(self, state, learned, lengths, accept, seed):
    """Returns the step size of an acceptance, by the law of large dimensions.

    accept = 2 Phi(-c s^p),   p about 2.5: 3 for one leapfrog step, else 2
    """
    size, sizes = learned.step_size, []
    for i in range(_TUNING_BLOCKS):
      law = _law([size * learned.factor] * 2, [lengths] * 2)
      state, _, _, found = self.advance(law, state, (seed, 10 + i), 1)
      found = np.clip(found.mean(), 0.05, 0.999)
      ratio = scipy.special.ndtri(accept / 2) / scipy.special.ndtri(found / 2)
      size *= np.clip(ratio**0.4, 0.5, 2.0)
      sizes.append(size)
    return float(np.exp(np.mean(np.log(sizes[_TUNING_BLOCKS // 2 :]))))


def _law(factors, lengths, persistence=0.0, is_moved=False):
  return persistent_momentum.Law(
    tf.constant(np.array(factors)),
    tf.constant(lengths, tf.int32),
    tf.constant(persistence, tf.float64),
    tf.constant(0.5 * (1.0 - persistence**2), tf.float64),
    tf.constant(not is_moved),
  )


class Runs:
  """What ways share in a run of one seed: factors and step sizes."""

  def __init__(self, problem, seed):
    self._problem, self._seed = problem, seed
    self._learned, self._sizes = {}, {}

  def measure(self, setting, is_quick=False):
    """Returns the numbers of a setting.

    Args:
      setting: A `Setting`.
      is_quick: Whether only the worst coordinates are ranked.
    """
    law, numbers = self._law(setting)
    _, states, taken, accepted = self._problem.advance(
      law, self._start(), (self._seed, 2), _NUM_GRADIENTS
    )
    if is_quick:
      states = _worst_coordinates(states)
    return {
      **numbers,
      'accepted': float(accepted.mean()),
      **effective_sizes(states, float(taken.sum())),
    }

  def _law(self, setting):
    """Returns the `Law` of a setting, and its numbers."""
    default = self._learn(None)
    fewest, most = default.range
    named = {'fewest': fewest, 'most': most, 'twice': 2 * most}
    lengths = [[named.get(n, n) for n in pair] for pair in setting.lengths]
    components = []
    for pair in lengths:
      of = lengths[-1][1] if setting.is_shared else pair[1]
      learned = self._learn(of if setting.factor == 'speed' else None)
      size = self._step_size(learned, pair, setting.accept)
      components.append((size * learned.factor, size))
    factors, sizes = zip(*components)
    persistence = 0.0
    if setting.damping is not None:
      rate = setting.damping / default.slowest**0.5
      persistence = np.exp(-rate * sizes[0] * np.mean(lengths[0]))
    # All programs have two components.
    law = _law(
      factors[:1] * 2 if len(factors) == 1 else factors,
      lengths * 2 if len(lengths) == 1 else lengths,
      persistence,
      setting.is_moved,
    )
    return law, {
      'components': lengths,
      'step_sizes': sizes,
      'persistence': float(persistence),
    }

  def _start(self):
    states = tf.constant(self._learn(None).states)
    return persistent_momentum.start(
      self._problem.log_prob, states, [self._seed, 3]
    )

  def _learn(self, num_steps):
    if num_steps not in self._learned:
      self._learned[num_steps] = self._problem.learn(num_steps, self._seed)
    return self._learned[num_steps]

  def _step_size(self, learned, pair, accept):
    key = id(learned), tuple(pair), accept
    if key not in self._sizes:
      self._sizes[key] = self._problem.step_size(
        self._start(), learned, pair, accept, self._seed
      )
    return self._sizes[key]


def _worst_coordinates(states):
  """Returns states [..., n] of the coordinates with least effective sizes."""
  sizes = [
    diagnostics.geyer_ess(states - states.mean((0, 1)), transform).sum(axis=0)
    for transform in (lambda x: x, np.square)
  ]
  worst = [np.argsort(size)[:_WORST] for size in sizes]
  return states[..., np.unique(np.concatenate(worst))]
