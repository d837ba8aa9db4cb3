"""What was learned, taken out of a run: frozen, or refused."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tests.surrogate import learning
from tests.surrogate import surrogates


@pytest.mark.full
def test_frozen_is_the_kernel_at_its_end():
  kernel = learning.kernel(60)
  states, results = learning.run(kernel, 70)
  assert int(results[-1].num_fits) > 0
  fixed = tfpa.frozen(kernel, results[-1])
  assert isinstance(fixed, tfpa.MetropolisHastings)
  state = states[-1]
  expected, _ = kernel.one_step(state, results[-1], seed=(5, 6))
  moved, _ = fixed.one_step(state, fixed.bootstrap_results(state), seed=(5, 6))
  np.testing.assert_allclose(moved, expected, rtol=1e-12)
  assert np.any(moved != state)


@pytest.mark.full
def test_frozen_walks_as_often_as_was_learned():
  kernel = tfpa.kernel_hamiltonian(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1),
    60,
    surrogate=surrogates.misleading(),
  )
  for num_steps, is_learned in ((0, False), (60, True)):
    _, results = learning.run(kernel, max(num_steps, 1))
    share = results[-1].inner_results.accepted_results.walk_params.share
    # All of them, of what no fit was made of.
    assert share > 0.3 if is_learned else share == 1.0
    fixed = tfpa.frozen(kernel, results[-1])
    assert fixed.inner_kernel.walk_share == share
    after = fixed.bootstrap_results(learning.start())
    assert after.accepted_results.walk_params.share == share


def test_a_kernel_that_shall_walk_alone_is_refused_for_another():
  # What was learned, where no fit was made, may be that all the same.
  with pytest.raises(ValueError, match='`tfpa.adaptive_metropolis`'):
    tfpa.kernel_hamiltonian(lambda x: x[..., 0], 100, walk_share=1.0)


@pytest.mark.full
def test_frozen_keeps_tensors_that_are_not_of_the_dtype_of_the_state():
  kernel = learning.kernel(12)
  _, results = learning.run(kernel, 12, learning.start(dtype=np.float32))
  fixed = tfpa.frozen(kernel, results[-1])
  params = learning.params_of(
    fixed.bootstrap_results(learning.start(dtype=np.float32))
  )
  assert params.num_fits.dtype == tf.int32 and params.mean.dtype == tf.float32
  assert int(params.num_fits) == int(results[-1].num_fits) > 0


def test_a_surrogate_kernel_is_no_kernel_of_tfp():
  kernel = learning.kernel(0)
  results = kernel.bootstrap_results(learning.start())
  with pytest.raises(ValueError, match='score of a surrogate'):
    tfpa.as_tfp_kernel(kernel, results)
  np.testing.assert_allclose(
    tfpa.learned_factor(kernel, results), 0.5 * np.eye(learning.SIZE)
  )


@pytest.mark.full
def test_a_step_that_walked_counts_as_one_accepted_as_wanted():
  kernel = tfpa.kernel_hamiltonian(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1),
    10,
    num_leapfrog_steps=2,
    walk_share=0.5,
    target_accept_prob=0.65,
  )
  get = kernel.parameters['log_accept_prob_getter_fn']
  state = learning.start()
  results = kernel.inner_kernel.bootstrap_results(state)
  one_step = tf.function(kernel.inner_kernel.one_step, autograph=False)
  kinds = set()
  for seed in targets.seeds(20):
    _, stepped = one_step(state, results, seed=seed)
    step = stepped.inner_results
    has_walked = bool(step.proposed_results.trajectory.has_walked)
    kinds.add(has_walked)
    expected = np.minimum(step.log_accept_ratio, 0.0)
    if has_walked:
      expected = np.full_like(expected, np.log(0.65))
    np.testing.assert_allclose(get(stepped), expected)
  assert kinds == {True, False}
