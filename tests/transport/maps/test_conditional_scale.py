"""Conditional scales: the map, the fit to pairs, and the chains behind it."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.transport.maps import conditional
from tfp_adaptive.transport.maps import conditional_fit
from tfp_adaptive.transport.maps.conditional_scale import ConditionalScaleParams

_SIZE, _NUM_PAIRS = 5, 400


def _random_map(drivers, size=_SIZE, seed=0):
  """Returns a `Conditional` whose drivers depend on nothing."""
  rng = np.random.default_rng(seed)
  is_driver = np.isin(np.arange(size), drivers)
  keep = np.outer(~is_driver, np.array(drivers) >= 0)
  shift, slope = (keep * rng.normal(size=keep.shape) for _ in range(2))
  return conditional.Conditional(
    mean=tf.constant(rng.normal(size=size)),
    log_scale=tf.constant(0.5 * rng.normal(size=size)),
    drivers=tf.constant(drivers),
    shift=tf.constant(shift),
    slope=tf.constant(0.5 * slope),
  )


def _random_params(drivers, seed=0):
  rng = np.random.default_rng(seed + 100)
  factor = np.eye(_SIZE) + 0.3 * np.tril(rng.normal(size=[_SIZE] * 2))
  return ConditionalScaleParams(
    *_random_map(drivers, seed=seed), tf.constant(factor)
  )


def _funnel(x):
  """Neal's funnel: v = x_0 ~ N(0, 9), the rest N(0, exp v)."""
  neck = x[..., 0]
  rest = -0.5 * tf.reduce_sum(x[..., 1:] ** 2, axis=-1) * tf.exp(-neck)
  return -(neck**2) / 18.0 - 0.5 * (x.shape[-1] - 1) * neck + rest


def _pairs(target, states):
  """Returns states, gradients and equal weights."""
  point = tf.constant(states)
  with tf.GradientTape() as tape:
    tape.watch(point)
    log_prob = target(point)
  share = 1.0 / len(states)
  return point, tape.gradient(log_prob, point), tf.fill([len(states)], share)


# All of one shape: the search is compiled once.
_compiled_fit = tf.function(
  lambda *pairs: conditional_fit.fit(*pairs, num_drivers=2),
  jit_compile=True,
  autograph=False,
)


def _fit(pairs):
  return _compiled_fit(*(tf.cast(part, tf.float64) for part in pairs))


@pytest.mark.parametrize('drivers', [[1], [3, 0], [2, -1]])
def test_the_map_is_a_bijection_with_its_determinant(drivers):
  transport = tfpa.transports.conditional_scale(num_drivers=len(drivers))
  params = _random_params(drivers)
  rows = tf.constant(np.random.default_rng(1).normal(size=(4, _SIZE)))
  bijector = transport.bijector(params)
  back = transport.bijector(params).inverse(bijector.forward(rows) + 0.0)
  np.testing.assert_allclose(back, rows, rtol=1e-10)
  with tf.GradientTape() as tape:
    tape.watch(rows)
    mapped = transport.bijector(params).forward(rows)
  jacobian = tape.batch_jacobian(mapped, rows)
  np.testing.assert_allclose(
    transport.bijector(params).forward_log_det_jacobian(rows, event_ndims=1),
    np.linalg.slogdet(jacobian)[1],
    rtol=1e-10,
  )


@pytest.mark.parametrize('drivers', [[1], [3, 0], [2, -1]])
def test_scores_are_gradients_of_the_density_behind_the_map(drivers):
  target = targets.Banana(_SIZE)
  found = _random_map(drivers)
  states, gradients, _ = _pairs(target.log_prob, target.draw(6))
  z, scores = conditional.whitened(found, states, gradients)
  with tf.GradientTape() as tape:
    tape.watch(z)
    log_prob = target.log_prob(conditional.forward(found, z))
    log_prob += conditional.log_det(found, z)
  np.testing.assert_allclose(scores, tape.gradient(log_prob, z), rtol=1e-8)


def test_a_funnel_is_exact_from_few_states_of_its_mouth_alone():
  rng = np.random.default_rng(2)
  neck = 2.0 + rng.exponential(size=(_NUM_PAIRS, 1))
  states = np.concatenate(
    [neck, np.exp(neck / 2) * rng.normal(size=(_NUM_PAIRS, _SIZE - 1))], 1
  )
  pairs = _pairs(_funnel, states)
  found = _fit(pairs)
  np.testing.assert_array_equal(found.drivers, [0, -1])
  np.testing.assert_allclose(found.slope[1:, 0], 0.5, atol=1e-3)
  np.testing.assert_allclose(found.shift, 0.0, atol=1e-3)
  np.testing.assert_allclose(found.mean[0], 0.0, atol=0.02)
  np.testing.assert_allclose(tf.exp(found.log_scale[0]), 3.0, rtol=0.01)
  residuals = conditional.residuals(found, *pairs[:2])
  assert np.mean(residuals**2) < 1e-3
  # Power: without a driver much is left.
  none = conditional_fit.fit_with(
    *(tf.cast(part, tf.float64) for part in pairs), tf.constant([-1])
  )
  assert np.mean(conditional.residuals(none, *pairs[:2]) ** 2) > 0.1


def _with_empty_rows(pairs, num_pairs):
  """Returns the first pairs behind rows that hold none, as in a history."""
  num_empty = _NUM_PAIRS - num_pairs
  return (
    *(
      tf.concat([tf.zeros([num_empty, _SIZE], tf.float64), rows[:num_pairs]], 0)
      for rows in pairs[:2]
    ),
    tf.concat(
      [tf.zeros([num_empty]), tf.fill([num_pairs], 1.0 / num_pairs)], 0
    ),
  )


def test_a_history_that_is_half_empty_tells_what_it_holds():
  rng = np.random.default_rng(3)
  neck = 3.0 * rng.normal(size=(200, 1))
  rest = np.exp(neck / 2) * rng.normal(size=(200, _SIZE - 1))
  pairs = _pairs(_funnel, np.concatenate([neck, rest], axis=1))
  found = _fit(_with_empty_rows(pairs, 150))
  np.testing.assert_array_equal(found.drivers, [0, -1])
  np.testing.assert_allclose(found.slope[1:, 0], 0.5, atol=1e-3)
  # Too few to tell: none is looked for.
  found = _fit(_with_empty_rows(pairs, 50))
  np.testing.assert_array_equal(found.drivers, [-1, -1])


@pytest.mark.full
def test_a_normal_target_has_no_driver_in_any_of_ten_histories():
  rng = np.random.default_rng(11)
  for num_pairs in (110, 150, 200, 300, 400) * 2:
    pairs = _pairs(targets.standard_normal, rng.normal(size=(400, _SIZE)))
    found = _fit(_with_empty_rows(pairs, num_pairs))
    np.testing.assert_array_equal(found.drivers, [-1, -1])


def test_two_drivers_of_place_and_scale_are_found():
  truth = _random_map([4, 1], seed=3)

  def target(x):
    z = conditional.inverse(truth, x)
    return -0.5 * tf.reduce_sum(z**2, axis=-1) - conditional.log_det(truth, z)

  noise = np.random.default_rng(5).normal(size=(_NUM_PAIRS, _SIZE))
  states = conditional.forward(truth, tf.constant(noise)).numpy()
  pairs = _pairs(target, states)
  found = _fit(pairs)
  assert sorted(found.drivers.numpy()) == [1, 4]
  order = np.argsort(found.drivers)[np.argsort(np.argsort([4, 1]))]
  for name in ('shift', 'slope'):
    np.testing.assert_allclose(
      getattr(found, name).numpy()[:, order], getattr(truth, name), atol=2e-3
    )
  assert np.mean(conditional.residuals(found, *pairs[:2]) ** 2) < 1e-3


def test_a_normal_target_has_no_driver():
  factor = targets.correlated_factor(_SIZE, 100.0, seed=6)
  states = np.random.default_rng(7).normal(size=(_NUM_PAIRS, _SIZE)) @ factor.T
  inverse = np.linalg.inv(factor)
  pairs = _pairs(
    lambda x: targets.standard_normal(tf.matmul(x, inverse, transpose_b=True)),
    states,
  )
  np.testing.assert_array_equal(_fit(pairs).drivers, [-1, -1])


def _kernel(num_adaptation_steps, transport, target):
  return tfpa.transport_adaptive_hamiltonian(
    target,
    num_leapfrog_steps=3,
    num_adaptation_steps=num_adaptation_steps,
    transport=transport,
  )


def _after_one_step():
  """Returns a banana, and exact draws before and after a step behind a map
  that was not learned from it."""
  target = targets.Banana(_SIZE)
  params = _random_params([2, 0], seed=9)._replace(
    mean=tf.zeros([_SIZE], tf.float64)
  )
  transport = tfpa.transports.conditional_scale(init_scale=1.0)
  wrong = transport._replace(init=lambda *_: params)
  before = tf.constant(target.draw(20_000, seed=1))
  kernel = tfpa.MetropolisHastings(
    tfpa.proposals.UncalibratedTransportedHamiltonian(
      target.log_prob, wrong, 3, 0.15, randomize_num_steps=True
    )
  )
  after, results = targets.stepper(kernel, 'xla')(
    before, kernel.bootstrap_results(before), tf.constant([3, 4])
  )
  assert 0.1 < np.mean(results.is_accepted) < 0.97
  return target, before.numpy(), after.numpy()


def test_a_map_that_is_wrong_still_leaves_the_target_as_it_is():
  assert targets.smallest_p_value(*_after_one_step()) > 1e-3


def test_a_determinant_without_one_driver_is_detected(monkeypatch):
  whole = conditional.log_det

  def without_last(found, whitened):
    kept = tf.constant([1.0, 0.0], tf.float64)
    return whole(found._replace(slope=found.slope * kept), whitened)

  monkeypatch.setattr(conditional, 'log_det', without_last)
  assert targets.smallest_p_value(*_after_one_step()) < 1e-6


def test_one_coordinate_is_refused():
  kernel = _kernel(10, tfpa.transports.conditional_scale(), _funnel)
  with pytest.raises(ValueError, match='two coordinates or more'):
    kernel.bootstrap_results(tf.zeros([2, 1], tf.float64))


def test_random_lengths_are_for_maps_that_are_fitted():
  with pytest.raises(ValueError, match='`real_nvp` learns by gradient'):
    tfpa.proposals.UncalibratedTransportedHamiltonian(
      _funnel, tfpa.transports.real_nvp(), 3, randomize_num_steps=True
    )


def test_a_map_that_is_fitted_is_not_learned_by_gradient():
  kernel = _kernel(10, tfpa.transports.conditional_scale(), _funnel)
  with pytest.raises(ValueError, match='FisherTransportAdaptation'):
    tfpa.adaptation.GradientBasedAdaptation(
      kernel.inner_kernel,
      tfpa.criteria.expected_squared_jump_distance(0.6),
      tfpa.optimizers.adam(1e-3),
      10,
    )


@pytest.mark.full
def test_chains_learn_the_neck_of_a_funnel_that_they_did_not_enter():
  kernel = _kernel(700, tfpa.transports.conditional_scale(), _funnel)
  start = tf.constant(np.random.default_rng(0).normal(size=(8, 10)))
  run = tfpa.sample(kernel, start, 2000, progress=False)
  results = run.final_kernel_results
  params = results.inner_results.accepted_results.preconditioner_params
  np.testing.assert_array_equal(params.drivers, [0, -1])
  assert int(results.statistics.num_fits) >= 4
  assert int(results.statistics.num_failed_fits) == 0
  neck = run.states[..., 0]
  # Chains are independent: their means and mean squares give the noise.
  for moment, truth in ((neck, 0.0), (neck**2, 9.0)):
    means = moment.mean(axis=0)
    error = means.std(ddof=1) / len(means) ** 0.5
    assert abs(means.mean() - truth) < 4.0 * error
    assert error < 0.2 * max(truth, 3.0)  # Power: a matrix leaves 1 or more.


def test_rescaled_it_is_a_multiple_of_itself():
  transport = tfpa.transports.conditional_scale()
  params = _random_params([2, 0])
  rows = tf.constant(np.random.default_rng(1).normal(size=(4, _SIZE)))
  factor = tf.constant(2.0, tf.float64)
  np.testing.assert_allclose(
    transport.bijector(transport.rescale(params, factor)).forward(rows),
    2.0 * transport.bijector(params).forward(rows),
    rtol=1e-12,
  )


@pytest.mark.full
def test_short_adaptations_are_fitted_and_can_be_frozen():
  # Two coordinates leave one driver; the first fit is the last.
  kernel = _kernel(
    30, tfpa.transports.conditional_scale(init_scale=0.5), _funnel
  )
  start = tf.constant(np.random.default_rng(0).normal(size=(8, 2)), tf.float32)
  run = tfpa.sample(kernel, start, 3, progress=False, jit_compile=False)
  statistics = run.final_kernel_results.statistics
  assert (statistics.num_fits, statistics.last_fit) == (1, 24)
  frozen = tfpa.frozen(kernel, run.final_kernel_results)
  state = tf.constant(run.states[-1])
  seed = tf.constant([1, 2])
  there, _ = kernel.one_step(state, run.final_kernel_results, seed=seed)
  also, _ = frozen.one_step(state, frozen.bootstrap_results(state), seed=seed)
  np.testing.assert_allclose(also, there, rtol=1e-5)
  assert np.any(also != state)


@pytest.mark.parametrize(
  'arguments, message',
  [
    (dict(drivers=[]), 'must be indices'),
    (dict(drivers=3), 'must be indices'),
    (dict(drivers=[True]), 'must be indices'),
    (dict(drivers=[0.5]), 'must be indices'),
    (dict(preconditioner=tfpa.preconditioners.diagonal), 'with parentheses'),
    (dict(drivers=[1, 1]), 'repeat themselves'),
    (dict(num_drivers=0), 'must be a positive int'),
  ],
)
def test_drivers_that_are_none_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    tfpa.transports.conditional_scale(**arguments)


def test_drivers_beyond_the_state_are_refused():
  kernel = _kernel(10, tfpa.transports.conditional_scale(drivers=[7]), _funnel)
  with pytest.raises(ValueError, match='some of the 5 coordinates'):
    kernel.bootstrap_results(tf.zeros([2, _SIZE], tf.float64))


def test_a_map_that_is_fitted_takes_no_optimizer():
  with pytest.raises(ValueError, match='Leave them out'):
    tfpa.transport_adaptive_hamiltonian(
      _funnel,
      10,
      3,
      transport=tfpa.transports.conditional_scale(),
      optimizer=tfpa.optimizers.adam(1e-3),
    )


def test_a_map_without_a_fit_is_refused_by_the_adaptation_of_pairs():
  proposal = tfpa.proposals.UncalibratedTransportedHamiltonian(
    _funnel, tfpa.transports.real_nvp(), 3
  )
  with pytest.raises(ValueError, match="fitted to pairs, but got 'real_nvp'"):
    tfpa.adaptation.FisherTransportAdaptation(
      tfpa.MetropolisHastings(proposal), 10
    )


@pytest.mark.parametrize('num_pairs', [0, -1, 2.5])
def test_a_history_of_no_pairs_is_refused(num_pairs):
  kernel = _kernel(10, tfpa.transports.conditional_scale(), _funnel)
  with pytest.raises(ValueError, match='`num_pairs` must be a positive int'):
    tfpa.adaptation.FisherTransportAdaptation(
      kernel.inner_kernel, 10, num_pairs=num_pairs
    )
