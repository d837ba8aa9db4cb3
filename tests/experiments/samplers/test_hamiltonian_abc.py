"""Hamiltonian ABC where its synthetic likelihood is exact, and where not."""

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import hamiltonian_abc
from experiments.targets import simulator as simulators
from experiments.targets import skew_normal_abc

_TOLERANCE = 0.5
_VARIANCE = 1 + _TOLERANCE**2
_NUM_CHAINS = 2000


def _gaussian_simulator(size):
  """Data whose sample mean is theta and whose covariance I, exactly."""

  def simulate_fn(states, noise):
    num = noise.shape[0]
    # +-e_j times a constant, in place of the noise.
    axes = np.concatenate([np.eye(size), -np.eye(size)])
    axes *= np.sqrt((num - 1) / 2)
    shape = [num] + [1] * (noise.shape.rank - 2) + [size]
    return states + tf.constant(axes.reshape(shape))

  return simulators.Simulator(
    simulate_fn=simulate_fn,
    noise_size=1,
    observed=np.arange(1.0, size + 1),
    tolerance=_TOLERANCE,
  )


def _sample(size, **options):
  """Returns last states [chains, size] after short chains from the target."""
  simulator = _gaussian_simulator(size)
  kernel = hamiltonian_abc.HamiltonianAbc(
    simulator, num_simulations=2 * size, **options
  )
  rng = np.random.default_rng(0)
  noise = rng.normal(size=(_NUM_CHAINS, size))
  init = simulator.observed + np.sqrt(_VARIANCE) * noise
  result = tfpa.sample(
    kernel, init, 6, seed=(1, 2), jit_compile=False, progress=False
  )
  return result.states[-1], result


def test_perturbations_estimate_the_gradient_without_bias():
  precision = np.array([[2.0, 0.6], [0.6, 1.0]])

  def log_prob(x):
    return -0.5 * tf.einsum('...i,ij,...j->...', x, precision, x)

  rng = np.random.default_rng(2)
  signs = tf.constant(rng.choice([-1.0, 1.0], size=(1, 4000, 2)))
  state = np.array([0.7, -1.2])
  states = tf.constant(np.tile(state, [4000, 1]))
  draws = hamiltonian_abc.perturbation_gradient(log_prob, states, signs, 0.3)
  error = np.std(draws, axis=0) / np.sqrt(4000)
  mean = np.mean(draws, axis=0)
  assert np.all(np.abs(mean + precision @ state) < 4 * error)
  # Control: the slope along the direction is not yet the gradient.
  assert np.any(np.abs(mean + 1.1 * precision @ state) > 4 * error)


def test_one_coordinate_has_an_exact_gradient_and_is_sampled_right():
  states, result = _sample(
    1, step_size=0.1, num_leapfrog_steps=10, friction=0.0
  )
  error = np.sqrt(_VARIANCE / _NUM_CHAINS)
  assert abs(states.mean() - 1.0) < 4 * error
  # The step's own error of the variance is of order (h / 2)^2 / 1.25.
  variance_error = _VARIANCE * np.sqrt(2 / _NUM_CHAINS)
  assert abs(states.var() - _VARIANCE) < 4 * variance_error + 0.01
  assert np.abs(np.corrcoef(states[:, 0], result.states[0, :, 0])[0, 1]) < 0.5
  # 6 steps, of 2 * 10 + 2 estimates, of 2 simulations each.
  assert int(result.final_kernel_results.num_simulations) == 6 * 22 * 2


def test_directions_heat_the_chain_and_friction_takes_heat_up():
  variance_error = _VARIANCE * np.sqrt(2 / (4 * _NUM_CHAINS))
  excess = []
  for friction in (0.0, 3.0):
    states, _ = _sample(
      4, step_size=0.3, num_leapfrog_steps=5, friction=friction
    )
    centered = states - np.arange(1.0, 5.0)
    excess.append(np.mean(centered**2) - _VARIANCE)
  # Without an accept step, nothing takes the bias away.
  assert excess[0] > 10 * variance_error
  assert excess[1] < 0.5 * excess[0]


def test_random_numbers_stick_until_new_ones_are_accepted():
  target = skew_normal_abc.skew_normal_abc_target(event_size=2)
  kernel = hamiltonian_abc.HamiltonianAbc(
    target.simulator, 0.1, num_leapfrog_steps=2, num_simulations=3
  )
  states = tf.constant(target.exact_draws_fn(50, 0))
  before = kernel.bootstrap_results(states)
  _, after = kernel.one_step(states, before, seed=tf.constant([1, 2]))
  is_same = np.all(before.noise == after.noise, axis=(0, 2))
  np.testing.assert_array_equal(is_same, ~after.is_refreshed.numpy())
  assert 5 < is_same.sum() < 45
