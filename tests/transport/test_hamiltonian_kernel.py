"""HMC behind a map as a kernel: its law, a run that learns, what it refuses."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tests.transport import transported
from tests.transport.maps import networks
from tfp_adaptive.core import block_fits
from tfp_adaptive.transport import transported_leapfrog as leapfrog


def _largest_z_score(target_log_prob_fn, draws, whiten, scale, num_steps=2):
  """Returns the largest z-score of moments after steps from exact draws."""
  params = networks.random_params(transported.NETWORK, 2, scale, seed=4)
  kernel = tfpa.MetropolisHastings(
    transported.Proposal(
      target_log_prob_fn,
      transported.fixed(transported.NETWORK, params),
      2,
      step_size=0.6,
    )
  )
  state = tf.constant(draws)
  step = targets.stepper(kernel, 'graph')
  states, results = targets.run_steps(
    step, state, kernel.bootstrap_results(state), num_steps
  )
  accepted = np.mean(results[-1].is_accepted)
  assert 0.1 < accepted < 0.95, accepted
  u = whiten(states[-1].numpy())
  # Each has mean zero under N(0, I).
  moments = np.stack(
    [u[:, 0], u[:, 1], u[:, 0] ** 2 - 1, u[:, 1] ** 2 - 1, u[:, 0] * u[:, 1]]
  )
  deviations = moments.std(axis=1) / moments.shape[1] ** 0.5
  return np.max(np.abs(moments.mean(axis=1) / deviations))


def _unbend(x):
  return np.stack(
    [x[:, 0], 2.0**0.5 * (x[:, 1] + 0.5 * (x[:, 0] ** 2 - 1.0))], axis=1
  )


_LAWS = {
  'banana': lambda: (
    transported.banana,
    transported.draws(100_000),
    _unbend,
    1.0,
  ),
  'gaussian': lambda: (
    targets.standard_normal,
    np.random.default_rng(1).normal(size=(100_000, 2)),
    lambda x: x,
    2.0,
  ),
}


@pytest.mark.full
@pytest.mark.parametrize('law', _LAWS)
def test_a_random_map_leaves_the_target_invariant(law):
  assert _largest_z_score(*_LAWS[law]()) < 4.0  # Five numbers, each N(0, 1).


@pytest.mark.full
@pytest.mark.parametrize('law', _LAWS)
def test_the_law_is_lost_without_the_log_det(law, monkeypatch):
  # The negative control of the test above.
  monkeypatch.setattr(
    leapfrog.End,
    'correction',
    property(lambda end: end.kinetic[1] - end.kinetic[0]),
  )
  assert _largest_z_score(*_LAWS[law]()) > 8.0


def _kernel(num_adaptation_steps, **options):
  return tfpa.transport_adaptive_hamiltonian(
    transported.banana,
    num_adaptation_steps,
    num_leapfrog_steps=2,
    transport=transported.NETWORK,
    **options,
  )


@pytest.mark.full
@pytest.mark.parametrize(
  'dtype', [tf.float32, pytest.param(tf.float64, marks=pytest.mark.nightly)]
)
def test_a_compiled_run_learns_then_stays_and_can_be_frozen(dtype):
  kernel = _kernel(300)
  start = tf.constant(transported.draws(5), dtype)
  result = tfpa.sample(kernel, start, 20, seed=3, progress=False)
  assert result.states.dtype == dtype.as_numpy_dtype
  assert np.all(np.isfinite(result.states))
  assert 0.2 < result.trace['is_accepted'].mean() <= 1.0
  learned = (
    result.final_kernel_results.inner_results.accepted_results
  ).preconditioner_params
  last = learned.network[0][-1][0]  # Zero at the start.
  assert np.abs(last).max() > 1e-3
  fixed = tfpa.frozen(kernel, result.final_kernel_results)
  assert not hasattr(fixed, 'num_adaptation_steps')
  got = fixed.bootstrap_results(result.final_state)
  for one, other in zip(
    tf.nest.flatten(got.accepted_results.preconditioner_params),
    tf.nest.flatten(learned),
    strict=True,
  ):
    np.testing.assert_array_equal(one, other)
  seed = tf.constant([1, 2])
  np.testing.assert_allclose(
    fixed.one_step(result.final_state, got, seed=seed)[0],
    kernel.one_step(result.final_state, result.final_kernel_results, seed=seed)[
      0
    ],
    rtol=1e-4 if dtype == tf.float32 else 1e-10,
  )


@pytest.mark.full
def test_states_of_several_parts_and_no_chains_are_mapped_together():
  def target(a, b):
    return transported.banana(tf.stack([a, b], axis=-1))

  kernel = tfpa.transport_adaptive_hamiltonian(
    target, 1, num_leapfrog_steps=2, transport=transported.NETWORK
  )
  state = [tf.constant(0.3, tf.float64), tf.constant(-0.2, tf.float64)]
  results = kernel.bootstrap_results(state)
  for i in range(2):
    state, results = kernel.one_step(state, results, seed=tf.constant([i, 1]))
  assert [part.shape for part in state] == [[], []]
  assert int(results.step) == 2


def test_a_map_is_not_reported_as_a_matrix():
  kernel = _kernel(0)
  results = kernel.bootstrap_results(tf.constant(transported.draws(2)))
  for function in (tfpa.as_tfp_kernel, tfpa.learned_covariance):
    with pytest.raises(ValueError, match='A transport is no matrix'):
      function(kernel, results)


def test_parameters_build_the_same_kernel_again():
  proposal = transported.Proposal(
    transported.banana, transported.NETWORK, 3, step_size=0.5
  )
  copied = proposal.copy(num_leapfrog_steps=4)
  assert copied.num_leapfrog_steps == 4
  assert copied.transport is transported.NETWORK
  assert copied.step_size == 0.5


@pytest.mark.full
@pytest.mark.parametrize(
  'transport',
  [tfpa.transports.real_nvp, tfpa.transports.conditional_gaussian],
)
def test_the_number_of_chains_may_be_unknown(transport):
  kernel = tfpa.transport_adaptive_hamiltonian(
    targets.standard_normal, 5, transport=transport(), num_leapfrog_steps=1
  )

  @tf.function(
    input_signature=[tf.TensorSpec([None, 3], tf.float64)], autograph=False
  )
  def one_step(start):
    with block_fits.promised(kernel):
      results = kernel.bootstrap_results(start)
    return kernel.one_step(start, results, seed=(1, 2))[0]

  assert one_step(tf.ones([4, 3], tf.float64)).shape == [4, 3]
