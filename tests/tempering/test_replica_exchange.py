"""Replica exchange: its law, what it learns, and how it goes with the rest."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import block_fits
from tfp_adaptive.tempering import exchange
from tfp_adaptive.tempering import replicas

_NUM_DRAWS = 50_000
_COVARIANCE = np.array([[2.0, 1.2], [1.2, 1.0]])
_SEED = (1, 2)


def _gaussian(x, temper=1.0):
  precision = tf.constant(np.linalg.inv(_COVARIANCE), x.dtype)
  return -0.5 * temper * tf.einsum('...i,ij,...j->...', x, precision, x)


def _reference(x):
  return -0.125 * tf.reduce_sum((x - 1.0) ** 2, axis=-1)


_REFERENCES = {
  'none': None,
  'density': _reference,
  'law': tfp.distributions.MultivariateNormalDiag(np.ones(2), 2.0 * np.ones(2)),
}


def _law(b, reference):
  """Returns the mean and covariance of b log pi + (1 - b) log p_ref."""
  precision = b * np.linalg.inv(_COVARIANCE)
  pull = np.zeros(2)
  if reference != 'none':
    precision = precision + (1.0 - b) * 0.25 * np.eye(2)
    pull = (1.0 - b) * 0.25 * np.ones(2)
  covariance = np.linalg.inv(precision)
  return covariance @ pull, covariance


_BUILDERS = {
  'hamiltonian': tfpa.fisher_divergence_hamiltonian,
  'langevin': tfpa.fisher_divergence_langevin,
  'speed_measure': functools.partial(
    tfpa.entropy_adaptive_hamiltonian, num_leapfrog_steps=2
  ),
  'adaptive_metropolis': tfpa.adaptive_metropolis,
  'transport': functools.partial(
    tfpa.transport_adaptive_hamiltonian,
    transport=tfpa.transports.conditional_gaussian(),
  ),
}


def _kernel(reference='none', num_adaptation_steps=60, **options):
  options = {'num_replicas': 3, **options}
  return tfpa.replica_exchange(
    options.pop('target', _gaussian),
    num_adaptation_steps,
    reference=options.pop('law', _REFERENCES[reference]),
    **options,
  )


def _sample(kernel, num_results=50, start=None, **options):
  arguments = dict(seed=_SEED, progress=False, jit_compile=False)
  arguments.update(options)
  if start is None:
    start = tf.constant(np.random.default_rng(1).normal(size=(4, 2)))
  return tfpa.sample(kernel, start, num_results, **arguments)


def _at_exact_draws(kernel, reference):
  """Returns a state and results whose replicas are at draws of their laws."""
  rng = np.random.default_rng(7)
  started = []
  for index, b in enumerate(kernel.parameters['inverse_temperatures']):
    mean, covariance = _law(float(b), reference)
    draws = rng.multivariate_normal(mean, covariance, _NUM_DRAWS)
    results = kernel.bootstrap_results(tf.constant(draws))
    of_replicas = results.replica_states, results.replica_results
    started.append(
      tf.nest.map_structure(
        lambda leaf, at=index: leaf[at], (*of_replicas, results.densities)
      )
    )
  states, of_kernels, densities = tf.nest.map_structure(
    lambda *leaves: tf.stack(leaves), *started
  )
  return states[0], results._replace(
    replica_states=states, replica_results=of_kernels, densities=densities
  )


def _after_steps(learned, num_steps, reference, **changed):
  """Returns states of all replicas after steps from exact draws."""
  kernel = learned.copy(**changed)
  state, results = _at_exact_draws(kernel, reference)
  step = targets.stepper(kernel, 'graph')
  for seed in targets.seeds(num_steps, start=11):
    state, results = step(state, results, seed)
  np.testing.assert_array_equal(state, results.replica_states[0])
  return results.replica_states.numpy()


def _smallest_p_value(kernel, states, reference):
  """Kolmogorov-Smirnov of whitened coordinates, times their number."""
  found = []
  temperatures = kernel.parameters['inverse_temperatures']
  for b, rows in zip(temperatures, states):
    mean, covariance = _law(float(b), reference)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (rows - mean).T)
    found += [stats.kstest(column, 'norm').pvalue for column in white]
    found.append(stats.kstest(np.sum(white**2, 0), stats.chi2(2).cdf).pvalue)
  return len(found) * min(found)


@functools.cache
def _learned(name, reference):
  """Returns the kernel that a short run has learned."""
  kernel = _kernel(reference, kernel_fn=_BUILDERS[name])
  return tfpa.frozen(kernel, _sample(kernel).final_kernel_results)


# By day: every reference, and every kernel but that behind a map.
_BY_DAY = {
  'none': ('adaptive_metropolis', 'hamiltonian'),
  'density': ('langevin', 'speed_measure'),
  'law': ('langevin',),
}


@pytest.mark.full
@pytest.mark.parametrize(
  'name, reference',
  [
    pytest.param(n, r, marks=[pytest.mark.nightly] * (n not in _BY_DAY[r]))
    for n in _BUILDERS
    for r in _REFERENCES
  ],
)
def test_steps_leave_the_joint_law_invariant(name, reference):
  kernel = _learned(name, reference)
  # Even and odd pairs, and a step from where they have come.
  states = _after_steps(kernel, 3, reference)
  assert _smallest_p_value(kernel, states, reference) > 1e-3


@pytest.mark.full
@pytest.mark.parametrize('name', ['hamiltonian', 'langevin'])
def test_a_target_tempered_by_a_tenth_is_detected(name):
  kernel = _learned(name, 'none')
  wrong = functools.partial(_gaussian, temper=1.1)
  states = _after_steps(kernel, 3, 'none', target_log_prob_fn=wrong)
  assert _smallest_p_value(kernel, states, 'none') < 1e-6


@pytest.mark.full
def test_draws_that_are_not_of_the_reference_are_detected():
  class Wide(tfp.distributions.MultivariateNormalDiag):
    def sample(self, sample_shape=(), seed=None):
      return 1.0 + 1.1 * (super().sample(sample_shape, seed=seed) - 1.0)

  law = Wide(np.ones(2), 2.0 * np.ones(2))
  kernel = _learned('langevin', 'law').copy(reference=law)
  states = _after_steps(kernel, 3, 'law')
  assert _smallest_p_value(kernel, states, 'law') < 1e-6


@pytest.mark.full
@pytest.mark.parametrize('stale', ['target_log_prob', 'grads_target_log_prob'])
def test_what_is_not_refreshed_after_an_exchange_is_detected(
  stale, monkeypatch
):
  kernel = _learned('langevin', 'none')
  replace = replicas.tfp_private.replace_innermost

  def without(results, **fields):
    fields.pop(stale, None)
    return replace(results, **fields)

  refreshed = replicas.refreshed

  def with_stale(*args):
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(replicas.tfp_private, 'replace_innermost', without)
      return refreshed(*args)

  monkeypatch.setattr(replicas, 'refreshed', with_stale)
  states = _after_steps(kernel, 6, 'none')
  assert _smallest_p_value(kernel, states, 'none') < 1e-6


def test_the_map_of_every_replica_is_fitted_between_blocks():
  kernel = _kernel(kernel_fn=_BUILDERS['transport'], num_adaptation_steps=3)
  assert kernel.fit_steps == (1,)
  start = tf.constant(np.random.default_rng(1).normal(size=(4, 2)))
  with pytest.raises(ValueError, match='only `tfpa.sample` makes these fits'):
    kernel.bootstrap_results(start)
  with block_fits.promised(kernel):
    results = kernel.bootstrap_results(start)
  results = results._replace(step=tf.constant(1))
  fitted = block_fits.fitted(kernel, start, results, 1)
  # None has seen a pair yet.
  count = fitted.replica_results.statistics.num_failed_fits
  np.testing.assert_array_equal(count, [1, 1, 1])
  # What is frozen starts anywhere.
  fixed = tfpa.frozen(kernel, fitted)
  assert fixed.fit_steps == ()
  fixed.bootstrap_results(start)


def _two_modes(x):
  """0.7 N(4, I) + 0.3 N(-4, I)."""
  logs = [
    np.log(weight) - 0.5 * tf.reduce_sum((x - center) ** 2, axis=-1)
    for weight, center in ((0.7, 4.0), (0.3, -4.0))
  ]
  return tf.reduce_logsumexp(tf.stack(logs), axis=0)


@pytest.mark.full
def test_weights_of_modes_are_found_that_a_sampler_alone_never_sees():
  start = tf.constant(4.0 + np.random.default_rng(0).normal(size=(64, 2)))
  kernel = _kernel(
    target=_two_modes,
    num_replicas=6,
    kernel_fn=tfpa.fisher_divergence_langevin,
    num_adaptation_steps=800,
  )
  result = _sample(kernel, 3000, start, jit_compile=True)
  shares = np.mean(result.states[..., 0] > 0.0, axis=0)
  standard_error = shares.std(ddof=1) / len(shares) ** 0.5
  assert standard_error < 0.01
  assert abs(shares.mean() - 0.7) < 4 * standard_error
  # The negative control: all chains began in one mode, and most stay.
  alone = tfpa.fisher_divergence_langevin(_two_modes, 800)
  assert np.mean(_sample(alone, 3000, start).states[..., 0] > 0.0) > 0.9


@pytest.fixture(scope='module')
def plane():
  """A run of six replicas whose first temperatures are far from the best."""
  kernel = _kernel(
    num_replicas=6,
    num_adaptation_steps=1000,
    kernel_fn=tfpa.fisher_divergence_langevin,
  ).copy(inverse_temperatures=tuple(np.linspace(1.0, 0.01, 6)))
  start = tf.constant(np.random.default_rng(1).normal(size=(50, 2)))
  return kernel, _sample(kernel, 500, start, jit_compile=True)


@pytest.mark.full
def test_temperatures_come_to_those_of_the_closed_form(plane):
  # Powers of a Gaussian in the plane: tests/tempering/test_temperatures.py.
  _, result = plane
  results = result.final_kernel_results
  np.testing.assert_allclose(
    np.log(results.inverse_temperatures),
    np.log(np.geomspace(1.0, 0.01, 6)),
    atol=0.25,
  )
  ratio = 0.01**0.2
  np.testing.assert_allclose(
    results.barrier, 5 * (1 - ratio) / (1 + ratio), rtol=0.05
  )


@pytest.mark.full
def test_every_replica_learns_a_factor_of_its_own(plane):
  kernel, result = plane
  results = result.final_kernel_results
  for index, b in enumerate(results.inverse_temperatures.numpy()):
    factor = tfpa.learned_factor(*kernel.replica(results, index))
    # MALA's step is of one size in units of the law: C C^T = s^2 S / b.
    found = b * factor @ factor.T
    found *= np.trace(_COVARIANCE) / np.trace(found)
    np.testing.assert_allclose(found, _COVARIANCE, atol=0.25)
    if index == 0:
      first = np.linalg.det(factor)
    assert 0.5 < b * np.linalg.det(factor) / first < 2.0


@pytest.mark.full
def test_nothing_changes_after_the_adaptation(plane):
  kernel, result = plane
  before = result.final_kernel_results
  after = before
  state = tf.constant(result.final_state)
  step = targets.stepper(kernel, 'graph')
  for seed in targets.seeds(3):
    state, after = step(state, after, seed)
  learned = [replicas.learned(r.replica_results) for r in (before, after)]
  assert {'preconditioner_params', 'step_size'} <= set(learned[0])
  tf.nest.map_structure(np.testing.assert_array_equal, *learned)
  np.testing.assert_array_equal(
    before.inverse_temperatures, after.inverse_temperatures
  )


@pytest.mark.full
def test_the_frozen_kernel_begins_with_what_was_learned_and_keeps_it():
  kernel = _kernel(kernel_fn=tfpa.fisher_divergence_langevin)
  # In the middle of the adaptation.
  state = tf.constant(np.ones((4, 2)))
  results = kernel.bootstrap_results(state)
  step = targets.stepper(kernel, 'graph')
  for seed in targets.seeds(40):
    state, results = step(state, results, seed)
  fixed = tfpa.frozen(kernel, results)
  started = fixed.bootstrap_results(state[:2])
  _, after = fixed.one_step(state[:2], started, seed=_SEED)
  expected = replicas.learned(results.replica_results)
  for found in (started, after):
    tf.nest.map_structure(
      np.testing.assert_array_equal,
      replicas.learned(found.replica_results),
      expected,
    )
    np.testing.assert_array_equal(
      found.inverse_temperatures, results.inverse_temperatures
    )


@pytest.mark.parametrize('reference', _REFERENCES)
def test_a_step_costs_those_of_the_replicas(reference):
  kernel_fn = functools.partial(
    tfpa.fisher_divergence_hamiltonian, num_leapfrog_steps=(3, 3)
  )
  kernel = _kernel(reference, kernel_fn=kernel_fn)
  for adapting in (True, False):
    cost = tfpa.cost_per_step(kernel, adapting)
    # At b = 0 the target is evaluated; a law takes no step there.
    expected = {'none': 3 * 3, 'density': 3 * 3 + 1, 'law': 2 * 3 + 1}
    assert cost.gradient == expected[reference]


@pytest.mark.parametrize('reference', _REFERENCES)
def test_a_step_of_samplers_without_gradients_costs_none(reference):
  kernel = _kernel(reference, kernel_fn=tfpa.adaptive_metropolis)
  cost = tfpa.cost_per_step(kernel, adapting=True)
  assert cost.gradient == 0
  expected = {'none': 3, 'density': 3 + 1, 'law': 2 + 1}
  assert cost.target == expected[reference]


# Temperatures that move, what is counted at each, and whose step it is.


tfd = tfp.distributions

_TRIED = 1e9  # Turns, beside which those of one step do not count.


@functools.cache
def _started():
  """Returns a compiled step of three replicas, a state and results."""
  kernel = tfpa.replica_exchange(
    targets.standard_normal,
    60,
    num_replicas=3,
    kernel_fn=tfpa.adaptive_metropolis,
  )
  state = tf.zeros([4, 2], tf.float64)
  step = targets.stepper(kernel, 'graph')
  return step, state, kernel.bootstrap_results(state)


def _after(number):
  """Returns results after that step, with rejections of many turns before."""
  step, state, results = _started()
  np.testing.assert_allclose(results.inverse_temperatures, [1.0, 0.1, 0.01])
  results = results._replace(
    rejections=tf.constant([0.6 * _TRIED, 0.2 * _TRIED], tf.float64),
    num_exchanges=tf.constant([_TRIED, _TRIED], tf.float64),
    journeys=results.journeys._replace(num_restarts=tf.fill([4], 7)),
    step=tf.constant(number - 1),
  )
  return step(state, results, tf.constant([1, 2]))[1]


@pytest.mark.full
def test_temperatures_move_at_the_end_of_a_round_and_counts_begin_anew():
  results = _after(30)
  # A half of the barrier of 0.8 is at two thirds of the first interval.
  np.testing.assert_allclose(
    results.inverse_temperatures, [1.0, 0.1 ** (2.0 / 3.0), 0.01], rtol=1e-6
  )
  np.testing.assert_array_equal(results.rejections, [0.0, 0.0])
  np.testing.assert_array_equal(results.num_exchanges, [0.0, 0.0])
  np.testing.assert_array_equal(results.num_restarts, [0] * 4)


@pytest.mark.full
@pytest.mark.parametrize('number', [29, 31])
def test_within_a_round_temperatures_stay_and_counts_go_on(number):
  results = _after(number)
  np.testing.assert_allclose(results.inverse_temperatures, [1.0, 0.1, 0.01])
  # Each pair tries in two of the four turns.
  np.testing.assert_array_equal(results.num_exchanges, [_TRIED + 2.0] * 2)
  np.testing.assert_allclose(results.rejection_rates, [0.6, 0.2])
  assert np.all(results.num_restarts >= 7)


_Parts = collections.namedtuple('_Parts', ['second', 'first'])


def _named_tuple():
  return tfd.JointDistributionNamed(
    _Parts(
      second=tfd.Normal(np.float64(100.0), 1.0),
      first=tfd.Normal(np.float64(0.0), 1.0),
    )
  )


def _coroutine():
  def model():
    root = tfd.JointDistributionCoroutine.Root
    yield root(tfd.Normal(np.float64(100.0), 1.0, name='second'))
    yield root(tfd.Normal(np.float64(0.0), 1.0, name='first'))

  return tfd.JointDistributionCoroutine(model)


@pytest.mark.parametrize('law', [_named_tuple, _coroutine])
def test_parts_of_a_dict_are_drawn_by_name(law):
  like = {name: tf.zeros([5], tf.float64) for name in ('second', 'first')}
  drawn = replicas.drawn(law(), like, [5], tf.constant([1, 2]))
  assert set(drawn) == set(like)
  np.testing.assert_allclose(drawn['second'], 100.0, atol=10.0)
  np.testing.assert_allclose(drawn['first'], 0.0, atol=10.0)


# References that do not cover the target, and the turns of a step.


def _unit_box(x):
  inside = tf.reduce_all(tf.abs(x) < 1.0, axis=-1)
  return tf.where(inside, 0.0 * x[..., 0], -np.inf)


@pytest.mark.full
@pytest.mark.parametrize(
  'reference',
  [_unit_box, tfd.Independent(tfd.Uniform(-np.ones(1), np.ones(1)), 1)],
  ids=['density', 'law'],
)
def test_a_reference_narrower_than_the_target_does_not_truncate_it(reference):
  kernel = tfpa.replica_exchange(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1),
    0,
    num_replicas=3,
    kernel_fn=functools.partial(
      tfpa.fisher_divergence_langevin,
      preconditioner=tfpa.preconditioners.diagonal(init_scale=1.2),
    ),
    reference=reference,
  )
  result = tfpa.sample(
    kernel,
    tf.zeros([100, 1], tf.float64),
    300,
    num_burnin_steps=20,
    progress=False,
    jit_compile=False,
  )
  # 0.317 of a normal law; beyond the box the first replica goes alone.
  share = np.mean(np.abs(result.states) > 1.0)
  assert abs(share - 0.3173) < 0.03
  densities = result.final_kernel_results.densities
  assert np.isfinite(densities.target).all()
  assert np.isneginf(densities.reference[0]).any()
  assert np.isfinite(result.trace['target_log_prob']).all()


def test_what_the_target_does_not_ask_for_has_no_gradient():
  # At a negative number the gradient of this reference is NaN.
  reference = tfd.LogNormal(tf.constant(0.0, tf.float64), 1.0).log_prob
  at_target, at_reference, between = (
    replicas.tempered(lambda x: -0.5 * tf.math.log(x) ** 2, reference, b)
    if b < 1.0
    else replicas.tempered(lambda x: -0.5 * x**2, reference, b)
    for b in (1.0, tf.constant(0.0, tf.float64), 0.5)
  )
  x = tf.constant([-1.0, 0.0, 1.0], tf.float64)
  value, gradient = tfp.math.value_and_gradient(at_target, x)
  np.testing.assert_allclose(value, [-0.5, 0.0, -0.5])
  np.testing.assert_allclose(gradient, [1.0, 0.0, -1.0])
  value, gradient = tfp.math.value_and_gradient(at_reference, x[2:])
  np.testing.assert_allclose(value, reference(x[2:]))
  np.testing.assert_allclose(gradient, [-1.0])
  # Where both count it is no number, and such a move is rejected.
  assert not np.isfinite(between(x[:1]))


_Results = collections.namedtuple(
  '_Results',
  [
    'densities',
    'inverse_temperatures',
    'replica_states',
    'journeys',
    'rejections',
    'num_exchanges',
  ],
)


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('b', [1.0, 0.5, 1e-2, 1e-5, 0.0])
def test_log_pi_loses_no_digits_at_small_inverse_temperatures(dtype, b):
  # log p_ref is about -1000, so that division by b loses 1e-4 / b in float32.
  law = tfd.MultivariateNormalDiag(np.zeros(300, dtype), np.full(300, dtype(9)))
  calls = []

  def target(x):
    calls.append(x)
    return law.log_prob(x) - 0.5 * (x[..., 0] - 5.0) ** 2

  state = tf.constant(
    9.0 * np.random.default_rng(0).normal(size=[4, 300]), dtype
  )
  exact, gradient = tfp.math.value_and_gradient(target, state)
  kernel = tfpa.replica_exchange(target, 0, num_replicas=2, reference=law)
  tempered = kernel.parameters['make_kernel_fn'](
    replicas.tempered(target, law.log_prob, tf.constant(b, dtype))
  )
  results = tempered.bootstrap_results(state)
  calls.clear()
  found = replicas.densities(
    target, law.log_prob, tf.constant(b, dtype), state, results
  )
  np.testing.assert_allclose(found.target, exact, rtol=0, atol=2e-3)
  np.testing.assert_allclose(found.grads_target, gradient, rtol=0, atol=1e-4)
  # No call where the quotient is right.
  limit = 1e-2 if dtype == np.float32 else 0.0
  assert len(calls) == (b <= limit)


def _alike(num_replicas):
  """Returns results whose exchanges are all accepted; states are names."""
  temperatures = tf.linspace(1.0, 0.1, num_replicas)
  equal = tf.zeros([num_replicas, 1])
  return _Results(
    densities=exchange.Densities(equal, [], [], []),
    inverse_temperatures=temperatures,
    replica_states=tf.range(num_replicas)[:, tf.newaxis],
    journeys=exchange.Journeys(
      tf.zeros_like(equal, tf.bool), tf.zeros([1], tf.int32)
    ),
    rejections=tf.zeros([num_replicas - 1]),
    num_exchanges=tf.zeros([num_replicas - 1]),
  )


def test_two_replicas_exchange_once():
  after = exchange.exchange_all(_alike(2), tf.constant([0, 1]))
  np.testing.assert_array_equal(after.replica_states[:, 0], [1, 0])
  np.testing.assert_array_equal(after.num_exchanges, [1.0])


def test_who_turns_back_at_the_last_replica_without_a_step_does_not_restart():
  results = exchange.exchange_all(_alike(3), tf.constant([0, 1]))
  # In four turns 012 becomes 102, 120, 210, 201: the first state was at the
  # last place, and left it before it took a step there; the last one came down.
  np.testing.assert_array_equal(results.replica_states[:, 0], [2, 0, 1])
  np.testing.assert_array_equal(results.journeys.num_restarts, [1])
  results = exchange.exchange_all(results, tf.constant([0, 1]))
  # 021, 012, 102, 120: states 0 and 1 came to the first place, 1 from a step.
  np.testing.assert_array_equal(results.journeys.num_restarts, [2])


# What replica exchange takes, warns of and refuses.


def test_too_few_replicas_and_no_restarts_are_told():
  kernel = _kernel(kernel_fn=tfpa.fisher_divergence_langevin)
  results = kernel.bootstrap_results(tf.constant(np.zeros((2, 2))))
  tried = tf.constant([4.0, 4.0], tf.float64)
  seldom = results._replace(rejections=0.95 * tried, num_exchanges=tried)
  first, second = kernel.warnings_after(seldom, {})
  assert 'up to 95%' in first and '`num_replicas=5` or more' in first
  assert second.startswith('No state came from the last replica')
  journeys = results.journeys._replace(num_restarts=tf.constant([0, 1]))
  often = results._replace(
    rejections=0.5 * tried, num_exchanges=tried, journeys=journeys
  )
  assert not list(kernel.warnings_after(often, {}))
