"""The adaptation of pairs: when it fits, what it learns, what it refuses."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tests.transport import funnels
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results


def _kernel(num_adaptation_steps, **options):
  return tfpa.transport_adaptive_hamiltonian(
    targets.standard_normal,
    num_adaptation_steps,
    num_leapfrog_steps=(1, 3),
    transport=tfpa.transports.conditional_gaussian(init_scale=0.5),
    **options,
  )


def _proposal(num_leapfrog_steps=3):
  return tfpa.proposals.UncalibratedTransportedHamiltonian(
    targets.standard_normal, tfpa.transports.real_nvp(), num_leapfrog_steps
  )


@pytest.mark.full
def test_short_adaptations_are_fitted_and_can_be_frozen():
  # Two coordinates leave one driver; the first fit is the last.
  kernel = _kernel(30)
  start = tf.constant(np.random.default_rng(0).normal(size=(8, 2)), tf.float32)
  run = tfpa.sample(kernel, start, 3, progress=False, jit_compile=False)
  statistics = run.final_kernel_results.statistics
  assert (statistics.num_fits, statistics.last_fit) == (1, 24)
  assert statistics.num_failed_fits == 0
  frozen = tfpa.frozen(kernel, run.final_kernel_results)
  state = tf.constant(run.states[-1])
  seed = tf.constant([1, 2])
  there, _ = kernel.one_step(state, run.final_kernel_results, seed=seed)
  also, _ = frozen.one_step(state, frozen.bootstrap_results(state), seed=seed)
  np.testing.assert_allclose(also, there, rtol=1e-5)
  assert np.any(also != state)


def test_the_step_size_starts_anew_behind_the_first_map():
  transport = funnels.fixed()._replace(fit=lambda params, *_: params)
  kernel = tfpa.transport_adaptive_hamiltonian(
    targets.standard_normal, 3, num_leapfrog_steps=(1, 2), transport=transport
  )
  start = tf.constant(np.random.default_rng(0).normal(size=(20, funnels.SIZE)))
  _, results = targets.run_steps(
    targets.stepper(kernel, 'eager'), start, kernel.bootstrap_results(start), 3
  )
  # The first fit is the last: at 0.8 of the steps.
  fits = [int(result.statistics.num_fits) for result in results]
  assert fits == [0, 1, 1]
  excess = np.array([float(r.mean_accept_prob) - 0.8 for r in results])
  assert np.all(np.abs(excess) > 0.01)
  logs = [np.log(mh_results(r).accepted_results.step_size) for r in results]
  # The step that fits was taken before, of a rate as of late ones.
  first = -0.25 * np.log(funnels.SIZE) + 0.0075 * excess[1]
  np.testing.assert_allclose(logs[1], first, rtol=1e-9)
  rate = 0.5 * 2.0**-0.6
  np.testing.assert_allclose(logs[2] - logs[1], rate * excess[2], rtol=1e-9)


def test_random_lengths_are_for_maps_that_are_fitted():
  with pytest.raises(ValueError, match='`real_nvp` learns by gradient'):
    _proposal((1, 3))


def test_a_map_that_is_fitted_is_not_learned_by_gradient():
  with pytest.raises(ValueError, match='FisherTransportAdaptation'):
    tfpa.adaptation.GradientBasedAdaptation(
      _kernel(10).inner_kernel,
      tfpa.criteria.expected_squared_jump_distance(0.6),
      tfpa.optimizers.adam(1e-3),
      10,
    )


def test_a_map_that_is_fitted_takes_no_optimizer():
  with pytest.raises(ValueError, match='Leave them out'):
    _kernel(10, optimizer=tfpa.optimizers.adam(1e-3))


def test_a_map_without_a_fit_is_refused():
  with pytest.raises(ValueError, match="fitted to pairs, but got 'real_nvp'"):
    tfpa.adaptation.FisherTransportAdaptation(
      tfpa.MetropolisHastings(_proposal()), 10
    )


@pytest.mark.parametrize('num_pairs', [0, -1, 2.5])
def test_a_history_of_no_pairs_is_refused(num_pairs):
  with pytest.raises(ValueError, match='`num_pairs` must be a positive int'):
    tfpa.adaptation.FisherTransportAdaptation(
      _kernel(10).inner_kernel, 10, num_pairs=num_pairs
    )
