"""Hamiltonian ABC: HMC on gradients that are estimated by simulation.

Each leapfrog step simulates on both sides of the state, in the same random
directions and with the same random numbers. No step is rejected:

  g = D [l(x + c D) - l(x - c D)] / (2 c),  D uniform on {+-1}^d
  p <- p + h (g - A p) + (2 h A)^(1/2) N(0, I);   x <- x + h p

l is the log of the synthetic likelihood under a flat prior, and c is the
perturbation. The friction A absorbs the heat of the noise in g. Random numbers
are sticky: they are a part of the state, which a Metropolis move at fixed x
refreshes once a step. The result is biased by the remaining heat and by the
Gaussian shape of the synthetic likelihood. Use this method only for comparison.

References: Meeds, Leenders and Welling (2015), 4.3 and 4.4,
https://arxiv.org/abs/1503.01916; Spall (1992); Chen, Fox and Guestrin (2014).
"""

import collections
from typing import ClassVar

import tensorflow as tf
import tensorflow_probability as tfp

from experiments.samplers.base import Cost
from experiments.samplers.base import Method
from experiments.samplers.base import MethodParameters
from experiments.targets.random_draws import standard_normals
from experiments.targets.random_draws import uniforms
from experiments.targets.registry import METHODS
from experiments.targets.simulator import synthetic_log_likelihood
from tfp_adaptive.core import random


class HamiltonianAbcResults(
  collections.namedtuple(
    'HamiltonianAbcResults', ['noise', 'is_refreshed', 'num_simulations']
  )
):
  """Results of `HamiltonianAbc`.

  Attributes:
    noise: The sticky random numbers, [S, chains..., noise_size].
    is_refreshed: Whether new random numbers were accepted, [chains...].
    num_simulations: Data sets that one chain has simulated so far, [] int64.
  """

  __slots__ = ()


def perturbation_gradient(log_prob_fn, states, signs, perturbation):
  """Returns the gradient by simultaneous perturbations, [chains..., d].

  Args:
    log_prob_fn: Function of [..., chains..., d] that returns [..., chains...],
      with any leading dimensions.
    states: [chains..., d].
    signs: Signs of the directions, +-1, [num_directions, chains..., d].
    perturbation: c, in units of the state.
  """
  shift = perturbation * signs
  sides = log_prob_fn(tf.stack([states + shift, states - shift]))
  slopes = (sides[0] - sides[1]) / (2.0 * perturbation)
  return tf.reduce_mean(slopes[..., tf.newaxis] * signs, axis=0)


class HamiltonianAbc(tfp.mcmc.TransitionKernel):
  """Stochastic-gradient HMC on a synthetic likelihood, without correction."""

  is_calibrated = False

  def __init__(
    self,
    simulator,
    step_size,
    num_leapfrog_steps,
    num_simulations,
    perturbation=0.1,
    friction=1.0,
  ):
    """Builds the kernel; no Tensor is created here.

    Args:
      step_size: h, in units of the state.
      num_simulations: Data sets for one synthetic likelihood, at least 2.
      perturbation: c, in units of the state.
      friction: A, per unit of time; 0 for no friction.
    """
    self._parameters = dict(
      simulator=simulator,
      step_size=step_size,
      num_leapfrog_steps=num_leapfrog_steps,
      num_simulations=num_simulations,
      perturbation=perturbation,
      friction=friction,
    )

  @property
  def parameters(self):
    return self._parameters

  @property
  def num_estimates(self):
    """Returns how many synthetic likelihoods a step of a chain estimates."""
    # The move of the random numbers estimates two more.
    return 2 * self._parameters['num_leapfrog_steps'] + 2

  def bootstrap_results(self, init_state):
    states = tf.convert_to_tensor(init_state)
    return HamiltonianAbcResults(
      noise=self._draw_noise(states, tf.constant([0, 0])),
      is_refreshed=tf.zeros(tf.shape(states)[:-1], tf.bool),
      num_simulations=tf.zeros([], tf.int64),
    )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    states = tf.convert_to_tensor(current_state)
    refresh_seed, momentum_seed, step_seed = random.split(seed, 3)
    # 1. The random numbers move, at the fixed state.
    noise, is_refreshed = self._refreshed(
      states, previous_kernel_results.noise, refresh_seed
    )
    # 2. The state moves, with these random numbers.
    momentum = _normals_like(states, momentum_seed)
    states = self._trajectory(states, momentum, noise, step_seed)
    spent = self.num_estimates * self._parameters['num_simulations']
    return states, HamiltonianAbcResults(
      noise=noise,
      is_refreshed=is_refreshed,
      num_simulations=previous_kernel_results.num_simulations + spent,
    )

  def _draw_noise(self, states, seed):
    simulator = self._parameters['simulator']
    shape = tf.concat(
      [
        [self._parameters['num_simulations']],
        tf.shape(states)[:-1],
        [simulator.noise_size],
      ],
      axis=0,
    )
    return tf.cast(standard_normals(shape, seed), states.dtype)

  def _log_prob(self, states, noise):
    simulator = self._parameters['simulator']
    return synthetic_log_likelihood(simulator, states, noise)

  def _refreshed(self, states, noise, seed):
    noise_seed, accept_seed = random.split(seed, 2)
    proposed = self._draw_noise(states, noise_seed)
    log_ratio = self._log_prob(states, proposed) - self._log_prob(states, noise)
    threshold = tf.math.log(uniforms(tf.shape(log_ratio), accept_seed))
    is_accepted = tf.cast(threshold, states.dtype) < log_ratio
    chosen = tf.where(is_accepted[..., tf.newaxis], proposed, noise)
    return chosen, is_accepted

  def _trajectory(self, states, momentum, noise, seed):
    p = self._parameters
    step_size = tf.cast(p['step_size'], states.dtype)
    friction = tf.cast(p['friction'], states.dtype)

    def log_prob(points):
      # Both sides and all directions share one set of random numbers.
      return self._log_prob(points, noise[:, tf.newaxis, tf.newaxis])

    def body(step, states, momentum):
      folded = tf.random.experimental.stateless_fold_in(
        seed, step, alg='philox'
      )
      sign_seed, heat_seed = random.split(folded & 0x7FFFFFFF, 2)
      is_up = uniforms(tf.concat([[1], tf.shape(states)], 0), sign_seed) < 0.5
      signs = 2.0 * tf.cast(is_up, states.dtype) - 1.0
      gradient = perturbation_gradient(
        log_prob, states, signs, tf.cast(p['perturbation'], states.dtype)
      )
      heat = _normals_like(states, heat_seed)
      momentum += step_size * (gradient - friction * momentum)
      momentum += tf.sqrt(2.0 * step_size * friction) * heat
      return step + 1, states + step_size * momentum, momentum

    _, states, _ = tf.while_loop(
      lambda step, *_: step < p['num_leapfrog_steps'],
      body,
      (0, states, momentum),
      maximum_iterations=p['num_leapfrog_steps'],
    )
    return states


def _normals_like(states, seed):
  return tf.cast(standard_normals(tf.shape(states), seed), states.dtype)


@METHODS.register('hamiltonian_abc')
class HamiltonianAbcMethod(MethodParameters):
  """Uncorrected HMC on simulated gradients, sticky random numbers."""

  takes_stochastic: ClassVar[bool] = True

  def default_label(self):
    return 'HABC'

  def check_target(self, target):
    if target.simulator is None:
      raise ValueError(
        f'the method simulates data, but {target.name} has no simulator. Write '
        'the target skew_normal_abc.'
      )

  def build(self, target, options):
    del options
    num_simulations = max(2, target.num_simulations)
    kernel = HamiltonianAbc(
      target.simulator,
      step_size=0.1,
      num_leapfrog_steps=50,
      num_simulations=num_simulations,
    )
    # Costs are in units of the target's own estimates, so that they compare.
    per_estimate = num_simulations / max(1, target.num_simulations)
    cost = Cost(target=kernel.num_estimates * per_estimate)
    return Method(kernel, cost, cost)
