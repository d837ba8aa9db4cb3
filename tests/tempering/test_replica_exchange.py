"""Replica exchange: its law, what it learns, and how it goes with the rest."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import block_fits
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
