"""The law that surrogate trajectories keep, however poor the surrogate."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import pseudo_marginal
from tests.contracts import registry
from tests.contracts import targets
from tests.surrogate import surrogates

_NUM_CHAINS, _NUM_DRAWS = 50_000, 100
_TARGET = targets.Banana(2, bend=0.5)
_FACTOR = np.array([[1.0, 0.0], [0.3, 0.8]])


@functools.cache
def _fitted(name):
  """Returns a surrogate frozen at a fit to few draws."""
  if name == 'gaussian':
    surrogate = surrogates.gaussian(_NUM_DRAWS)
  else:
    surrogate = tfpa.surrogates.kernel_exponential_family_finite(
      _NUM_DRAWS, num_features=50
    )
  params = surrogate.fit(
    surrogate.init(2, tf.float64, (1, 2)),
    tf.constant(_TARGET.draw(_NUM_DRAWS, seed=11)),
    tf.fill([_NUM_DRAWS], tf.constant(1.0 / _NUM_DRAWS, tf.float64)),
    tf.constant([1, 2]),
  )
  return surrogates.starting_with(surrogate, params)


class _WithoutCorrection(tfpa.proposals.UncalibratedSurrogateHamiltonian):
  """The wrong proposal: it forgets the kinetic energy."""

  def one_step(self, current_state, previous_kernel_results, seed=None):
    state, results = super().one_step(
      current_state, previous_kernel_results, seed
    )
    return state, results._replace(
      log_acceptance_correction=tf.zeros_like(results.target_log_prob)
    )


def _one_step(surrogate='gaussian', temper=1.0, wrong=False, **options):
  """Returns the smallest p-value after a step, and the acceptance."""
  target = targets.Banana(2, bend=0.5, temper=temper)
  build = (
    _WithoutCorrection
    if wrong
    else tfpa.proposals.UncalibratedSurrogateHamiltonian
  )
  arguments = dict(num_leapfrog_steps=4, step_size=0.6) | options
  kernel = tfpa.MetropolisHastings(
    build(
      target.log_prob,
      _fitted(surrogate),
      registry.fixed(_FACTOR),
      **arguments,
    )
  )
  starts = tf.constant(_TARGET.draw(_NUM_CHAINS, seed=12))
  state, results = targets.stepper(kernel, 'graph')(
    starts, kernel.bootstrap_results(starts), tf.constant([3, 4])
  )
  p_value = targets.smallest_p_value(_TARGET, starts, state)
  return p_value, float(np.mean(results.is_accepted))


@pytest.mark.parametrize(
  'options',
  [
    dict(),
    dict(num_leapfrog_steps=(1, 10), step_size_jitter=(0.5, 1.5)),
    dict(trajectory_length=2.0, walk_share=0.2),
    dict(walk_share=0.999),
    pytest.param(dict(surrogate='finite'), marks=pytest.mark.full),
  ],
  ids=['gaussian', 'drawn_lengths', 'lengths', 'walk', 'finite'],
)
def test_one_step_leaves_a_banana_invariant(options):
  p_value, accepted = _one_step(**options)
  assert 0.2 < accepted < 0.9  # Else there is no power.
  # Fails by chance for one seed in 1000; the seed is fixed.
  assert p_value > 1e-3


@pytest.mark.parametrize(
  'wrong', [dict(temper=1.1), dict(wrong=True)], ids=['tempered', 'correction']
)
@pytest.mark.parametrize(
  'surrogate',
  ['gaussian', pytest.param('finite', marks=pytest.mark.full)],
)
def test_a_wrong_target_and_a_missing_correction_are_detected(surrogate, wrong):
  assert _one_step(surrogate, **wrong)[0] < 1e-6


def _after_a_stochastic_step(metropolis_hastings):
  target = pseudo_marginal.NoisyGaussian()
  kernel = metropolis_hastings(
    tfpa.proposals.UncalibratedSurrogateHamiltonian(
      target.estimate,
      surrogates.known(lambda x: -0.5 * x),  # Of another Gaussian.
      registry.fixed(_FACTOR),
      num_leapfrog_steps=(2, 4),
      step_size=0.5,
      target_is_stochastic=True,
    )
  )
  starts = target.start(kernel, _NUM_CHAINS, seed=1)
  state, results = targets.stepper(kernel, 'graph')(
    *starts, tf.constant([3, 4])
  )
  assert target.num_calls in (2, 3)  # The start, the step; the wrong kernel's.
  assert 0.2 < np.mean(results.is_accepted) < 0.8
  return pseudo_marginal.smallest_p_value(target.p_values(state, results))


def test_a_stochastic_target_keeps_states_and_held_estimates_invariant():
  assert _after_a_stochastic_step(tfpa.MetropolisHastings) > 1e-3


@pytest.mark.full
def test_a_kernel_that_recomputes_the_current_estimate_is_detected():
  assert _after_a_stochastic_step(pseudo_marginal.Recomputing) < 1e-6


def test_noise_of_an_estimate_is_independent_of_the_velocity():
  pseudo_marginal.assert_noises_are_independent(
    lambda target: tfpa.proposals.UncalibratedSurrogateHamiltonian(
      target,
      surrogates.known(lambda x: -x),
      registry.fixed(_FACTOR),
      walk_share=0.2,
      target_is_stochastic=True,
    )
  )
