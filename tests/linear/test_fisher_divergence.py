"""The least Fisher divergence against its equation, and what it learns."""

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets
from tests.preconditioners import structures
from tests.preconditioners.structures import dense
from tests.preconditioners.structures import EVENT_SIZE
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results
from tfp_adaptive.linear import fisher_fit
from tfp_adaptive.linear import running_moments

_EVENT_SIZE = 4
_NUM_STEPS = 13  # Fits are at steps 2 to 11 and 13.
_NUM_CHAINS = 6
_TARGET = targets.Banana(_EVENT_SIZE)
_FACTOR = 0.5 * targets.correlated_factor(_EVENT_SIZE, 4.0, seed=8)


def _divergence(target, num_steps, preconditioner=None, **options):
  proposal = tfpa.proposals.UncalibratedPreconditionedLangevin(
    target, preconditioner or tfpa.preconditioners.cholesky()
  )
  return tfpa.adaptation.FisherDivergenceAdaptation(
    tfpa.MetropolisHastings(proposal), num_steps, **options
  )


def _covariance(results):
  params = mh_results(results).accepted_results.preconditioner_params.numpy()
  return params @ params.T


def _weighted_covariance(first, rows, shares):
  """Returns the covariance over steps and chains, steps weighted."""
  rows = np.stack([np.tile(np.mean(first, 0), (_NUM_CHAINS, 1)), *rows])
  mean = np.einsum('t,tkd->d', shares, rows) / _NUM_CHAINS
  rest = rows - mean
  return np.einsum('t,tkd,tke->de', shares, rest, rest) / _NUM_CHAINS


@pytest.mark.full
@pytest.mark.parametrize('gain', [1.0, 2.0])
def test_the_factor_solves_the_equation_of_the_weighted_covariances(gain):
  kernel = _divergence(
    _TARGET.log_prob, _NUM_STEPS, registry.fixed(_FACTOR), gain=gain
  )
  start = tf.constant(_TARGET.draw(_NUM_CHAINS))
  before = kernel.bootstrap_results(start)
  states, results = targets.run(
    kernel, start, _NUM_STEPS, 'graph', results=before
  )
  # The last fit is at step 13; step t counts for w_t prod_{s > t} (1 - w_s).
  weights = gain / (np.arange(1, _NUM_STEPS + 1) + gain)
  left = np.cumprod(np.append(1.0, 1.0 - weights[::-1]))[::-1]
  shares = np.append(1.0, weights) * left
  grads = [
    mh_results(r).accepted_results.grads_target_log_prob
    for r in (before, *results)
  ]
  ratio = _NUM_STEPS * _NUM_CHAINS / _EVENT_SIZE
  share = 1.0 - 0.1 / (1.0 + ratio**4)
  shrinkage = share + (1.0 - share) * np.eye(_EVENT_SIZE)
  of_states = shrinkage * _weighted_covariance(start, states, shares)
  of_gradients = shrinkage * _weighted_covariance(grads[0], grads[1:], shares)
  mean = _covariance(results[-1])
  np.testing.assert_allclose(mean @ of_gradients @ mean, of_states, rtol=1e-8)
  learned = [_covariance(r) for r in (before, *results)]
  is_moved = [np.any(one != other) for one, other in zip(learned, learned[1:])]
  assert is_moved == [False, *([True] * 10), False, True]
  # Power: the first factor is no solution.
  first = learned[0]
  assert np.max(np.abs(first @ of_gradients @ first / of_states - 1)) > 0.2


def _condition(kernel, start, dtype, factor):
  """Returns the condition number left, and that of the states' covariance."""
  # Compiling would take longer; the modes agree by the contract tests.
  run = tfpa.sample(
    kernel, tf.constant(start, dtype), 40, progress=False, jit_compile=False
  )
  learned = tfpa.learned_factor(kernel, run.final_kernel_results)
  of_states = np.linalg.cholesky(np.cov(run.states.reshape(-1, len(factor)).T))
  return [
    np.linalg.cond(np.linalg.solve(factor, c)) ** 2
    for c in (learned, of_states)
  ]


@pytest.mark.full
@pytest.mark.parametrize(
  'num_chains, num_steps, dtype',
  [(1, 300, np.float64), (10, 300, np.float64), (10, 100, np.float32)],
  ids=['one chain', 'ten chains', 'single precision'],
)
def test_a_gaussian_is_exact_however_little_the_chains_have_moved(
  num_chains, num_steps, dtype
):
  size = 10
  condition = 1e3 if dtype == np.float32 else 1e5
  factor = targets.correlated_factor(size, condition, seed=2)
  inverse = np.linalg.inv(factor)
  kernel = tfpa.fisher_divergence_langevin(
    lambda x: targets.standard_normal(
      tf.linalg.matvec(tf.constant(inverse, x.dtype), x)
    ),
    num_steps,
  )
  start = np.random.default_rng(0).normal(size=(num_chains, size)) @ factor.T
  left, of_states = _condition(kernel, start, dtype, factor)
  assert left < 1.2  # Correlations are kept at 1 - 1e-6 or better.
  assert of_states - 1.0 > 2.0 * (left - 1.0)  # The negative control.


def _whitened(preconditioner, params, states, scores):
  """Returns z = C^-1 x, s = C^T g and the weights of the pairs."""
  factor = preconditioner.operator(params).to_dense().numpy()
  z, s = np.linalg.solve(factor, states.T).T, scores @ factor
  weights = 2.0 / (1.0 + 0.5 * np.mean(z**2 + s**2, axis=1))
  return z, s, weights


def _moved(preconditioner, params, batches, rate):
  """Returns the params after one move with each batch (states, scores)."""

  def move(params, batch):
    share = 1.0 / batch[0].shape[0]
    return fisher_fit.moved(preconditioner, params, *batch, share, rate)

  @tf.function(jit_compile=True)
  def run(params, batches):
    return tf.nest.map_structure(
      lambda path: path[-1], tf.scan(move, batches, params)
    )

  return run(params, batches)


_STRUCTURES = [name for name in registry.MOVED if name != 'cholesky']


def _start(name, size):
  """Returns the structure and its params: the identity."""
  preconditioner = registry.preconditioner(name)
  sizes = [2, size - 2] if preconditioner.takes_part_sizes else size
  one = tf.constant(1.0, tf.float64)
  return preconditioner, preconditioner.init(sizes, tf.float64, one)


@pytest.mark.full
@pytest.mark.parametrize('name', _STRUCTURES)
def test_moves_find_a_gaussian_of_their_structure_without_noise(name):
  size, rng = 7, np.random.default_rng(4)
  preconditioner, start = _start(name, size)
  truth = tf.nest.map_structure(
    lambda p: p * np.exp(rng.normal(size=p.shape)) + 0.0, start
  )
  # Off the diagonal, where the identity has nothing. A sum of products, as all
  # gradients are: a tangent along rotations of U alone moves by rounding.
  left, right = (tf.constant(rng.normal(size=(8, size))) for _ in range(2))
  push = scale_factor.apply(preconditioner.operator(truth), right)
  tangent = preconditioner.outer(truth, 0.1 * left, right, lambda: push)
  truth = preconditioner.move(truth, tangent)
  factor = preconditioner.operator(truth).to_dense().numpy()
  covariance = factor @ factor.T
  # Few draws, in a corner of the target: their covariance says little.
  states = rng.normal(size=(400, 4, size)) @ factor.T * 0.3
  scores = -np.linalg.solve(covariance, states.reshape(-1, size).T)
  scores = scores.T.reshape(states.shape)
  params = _moved(preconditioner, start, (states, scores), 0.5)
  learned = preconditioner.operator(params).to_dense().numpy()
  scale = np.sqrt(np.diag(covariance))
  error = np.abs(learned @ learned.T - covariance) / np.outer(scale, scale)
  assert np.max(error) < 1e-3
  # Power: the start, and the states alone.
  flat = states.reshape(-1, size)
  for other in (np.eye(size), flat.T @ flat / len(flat)):
    error = np.abs(other - covariance) / np.outer(scale, scale)
    assert np.max(error) > 0.1


@pytest.mark.full
@pytest.mark.parametrize('name', ['diagonal', 'tridiagonal', 'arrow'])
def test_moves_end_where_the_weighted_divergence_is_flat(name):
  # A target that no structure holds: weights, spreads and bounds matter.
  size = 5
  target = targets.Banana(size)
  states = target.draw(300)
  _, scores = targets.value_and_gradient(target.log_prob, tf.constant(states))
  states, scores = states - states.mean(0), scores - scores.mean(0)
  preconditioner, start = _start(name, size)
  batches = tuple(np.tile(rows, (300, 1, 1)) for rows in (states, scores))
  params = _moved(preconditioner, start, batches, 0.5)

  def slopes(params):
    """Returns six derivatives of mean w (|z|^2 + |s|^2) / 2, weights fixed."""
    weights = _whitened(preconditioner, params, states, scores)[2]
    direction = np.random.default_rng(8)

    def value(by):
      there = tf.nest.map_structure(lambda p, b: p + b, params, by)
      z, s, _ = _whitened(preconditioner, there, states, scores)
      return 0.5 * np.mean(weights * np.sum(z**2 + s**2, axis=1))

    found = []
    for _ in range(6):
      by = tf.nest.map_structure(
        lambda p: tf.constant(1e-5 * direction.normal(size=p.shape)), start
      )
      back = tf.nest.map_structure(tf.negative, by)
      found.append((value(by) - value(back)) / 2e-5)
    return np.abs(found)

  assert np.max(slopes(params)) < 1e-4 * np.max(slopes(start))


@pytest.mark.parametrize('name', ['cholesky', 'diagonal', 'tridiagonal'])
def test_a_fit_to_pairs_sees_those_of_weight_alone(name):
  size, rng = 4, np.random.default_rng(9)
  deviations = np.array([0.1, 1.0, 3.0, 20.0])
  states = 5.0 + rng.normal(size=(300, size)) * deviations
  scores = -(states - 5.0) / deviations**2
  garbage = 1e3 * rng.normal(size=(50, size))
  preconditioner = registry.preconditioner(name)
  fitted = tf.function(fisher_fit.fit, autograph=False)(
    preconditioner,
    preconditioner.init(size, tf.float64, tf.constant(1.0, tf.float64)),
    tf.constant(np.concatenate([states, garbage])),
    tf.constant(np.concatenate([scores, garbage])),
    tf.constant(np.append(np.full(300, 1 / 300), np.zeros(50))),
  )
  learned = preconditioner.operator(fitted).to_dense().numpy()
  scaled = learned @ learned.T / np.outer(deviations, deviations)
  np.testing.assert_allclose(scaled, np.eye(size), atol=2e-3)


@pytest.mark.full
def test_a_fit_that_fails_is_counted_and_leaves_the_factor():
  def target(x):  # No gradient along the last coordinate: no covariance of it.
    return targets.standard_normal(x[..., :-1])

  kernel = _divergence(target, 10, registry.fixed(_FACTOR))
  start = tf.constant(_TARGET.draw(_NUM_CHAINS))
  before = kernel.bootstrap_results(start)
  _, results = targets.run(kernel, start, 5, 'graph', results=before)
  assert int(results[-1].statistics.num_failed_fits) == 4
  np.testing.assert_array_equal(_covariance(results[-1]), _covariance(before))


def test_of_few_states_only_scales_are_kept():
  rng = np.random.default_rng(5)
  states, gradients = rng.normal(size=(2, 40, 6)) * [[[1.0]], [[3.0]]]
  moments = [tf.constant(rows.T @ rows / 40) for rows in (states, gradients)]
  part = tfpa.preconditioners.cholesky()
  scales = np.diag(
    (np.diag(moments[0].numpy()) / np.diag(moments[1].numpy())) ** 0.25
  )
  few, many = (
    fisher_fit.factor(part, *moments, tf.constant(count, tf.float64)).numpy()
    for count in (2.5, 40.0)
  )
  np.testing.assert_allclose(few, scales, rtol=1e-12)
  # What never moved has none: no factor, which is counted.
  still = tf.linalg.diag(tf.constant([0.0, 1.0, 2.0], tf.float64))
  half = tf.constant(0.5, tf.float64)
  unknown = fisher_fit.factor(part, still, tf.eye(3, dtype=tf.float64), half)
  assert np.any(np.isnan(unknown))
  assert np.abs(many - np.diag(np.diag(many))).max() > 0.01


# Moves towards the least Fisher divergence are Newton's near it.


def _errors(name, rate):
  """Returns what a move leaves of perturbations of 1e-2 and 1e-3.

  The pairs are of a normal whose covariance S the structure has, d states as
  far from its centre as their dimension, of covariance S: all count one.
  """
  part, params = structures.arrange(name)
  before = dense(part, params)
  errors = []
  for size in (1e-2, 1e-3):
    wanted = dense(part, structures.perturbed(part, params, size, seed=2))
    covariance = wanted @ wanted.T
    states = EVENT_SIZE**0.5 * wanted.T
    scores = -np.linalg.solve(covariance, states.T).T
    moved = fisher_fit.moved(
      part,
      params,
      tf.constant(states),
      tf.constant(scores),
      1.0 / EVENT_SIZE,
      tf.constant(rate, tf.float64),
    )
    after = dense(part, moved)
    errors.append(
      np.max(np.abs(after @ after.T - covariance))
      / np.max(np.abs(before @ before.T - covariance))
    )
  return errors


@pytest.mark.parametrize('name', registry.MOVED)
def test_a_move_at_rate_one_lands_with_an_error_of_second_order(name):
  errors = _errors(name, 1.0)
  assert errors[0] < 0.1
  assert errors[1] < 0.15 * errors[0]


@pytest.mark.parametrize('name', registry.MOVED)
def test_one_at_half_of_the_rate_goes_half_of_the_way(name):
  np.testing.assert_allclose(_errors(name, 0.5), 0.5, atol=0.05)


# A new low-rank shape voids the step size, its rate and learned lengths.


_SCALES = np.array([1.0, 1.0, 1.0, 30.0])
_TARGET_ACCEPT_PROB = 0.6


@functools.cache
def _results():
  """Returns those of six steps, the fourth with a fit that gains much."""
  kernel = tfpa.fisher_divergence_hamiltonian(
    lambda x: targets.standard_normal(x / _SCALES),
    100,
    preconditioner=tfpa.preconditioners.low_rank(1, init_scale=1.0),
    target_accept_prob=_TARGET_ACCEPT_PROB,
    max_num_leapfrog_steps=2,
  )
  start = tf.constant(_SCALES * np.random.default_rng(0).normal(size=(20, 4)))
  before = kernel.bootstrap_results(start)
  _, results = targets.run(kernel, start, 6, results=before)
  # The fit at the sixth step gains little over that.
  last = [float(result.statistics.pairs.last) for result in results]
  assert last == [0.0, 0.0, 0.0, 4.0, 4.0, 4.0]
  assert results[-1].statistics.next_fit == 9.0
  return results


@pytest.mark.full
def test_the_step_size_starts_anew_at_a_new_shape():
  results = _results()
  excess = [float(r.mean_accept_prob) - _TARGET_ACCEPT_PROB for r in results]
  assert np.min(np.abs(excess)) > 0.01
  logs = [np.log(mh_results(r).accepted_results.step_size) for r in results]
  logs = np.array([0.0, *logs])
  # The step with the fit was taken before it, of a rate as of late ones.
  np.testing.assert_allclose(
    logs[4], -0.25 * np.log(4.0) + 0.0075 * excess[3], rtol=1e-9
  )
  # Three of the first shape, and two of the next one.
  rates = 0.5 * np.array([2.0, 3.0, 4.0]) ** -0.6
  steps = np.diff(logs) / excess
  np.testing.assert_allclose(steps[:3], rates, rtol=1e-9)
  np.testing.assert_allclose(steps[4:], rates[:2], rtol=1e-9)


@pytest.mark.full
def test_learned_lengths_are_forgotten_at_a_new_shape():
  lengths = [result.trajectory_length for result in _results()]
  assert [float(known.time) for known in lengths] == [1, 2, 3, 0, 1, 2]
  assert not np.any(lengths[3].weights) and not np.any(lengths[3].jumps)
  # What was taken is counted on.
  assert [int(known.num_steps) for known in lengths] == [1, 2, 3, 4, 5, 6]


# Moments of what all chains visit, where some chains have no number.


def _moments(dense):
  spread = np.array([[2.0, 0.3], [0.3, 0.5]])
  return running_moments.Moments(
    tf.constant([1.0, -2.0], tf.float64),
    tf.constant(spread if dense else np.diag(spread)),
  )


@pytest.mark.parametrize('dense', [False, True])
def test_a_step_says_what_its_finite_chains_say(dense):
  rows, weight = np.random.default_rng(0).normal(size=(4, 2)), 0.4
  is_finite = np.array([True, False, True, True])
  before = _moments(dense)
  after = running_moments.add(
    before,
    tf.constant(rows * is_finite[:, np.newaxis]),
    tf.constant(is_finite[:, np.newaxis]),
    tf.constant(weight, tf.float64),
  )
  # The moments are those of a mixture of the old states and the new.
  finite = rows[is_finite]
  np.testing.assert_allclose(
    after.mean, (1.0 - weight) * before.mean + weight * finite.mean(axis=0)
  )
  shift = finite.mean(axis=0) - before.mean
  between = (1.0 - weight) * weight * np.outer(shift, shift)
  within = weight * np.cov(finite.T, bias=True)
  if not dense:
    between, within = np.diag(between), np.diag(within)
  np.testing.assert_allclose(
    after.spread, (1.0 - weight) * before.spread + between + within
  )


# What a run says of a factor that was not learned.


def _warnings(kernel, start, num_results=200):
  with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter('always')
    result = tfpa.sample(
      kernel, start, num_results, seed=1, jit_compile=False, progress=False
    )
  return result, [str(warning.message) for warning in found]


def _flat_at_the_end(x):
  """A normal density without a gradient along the last coordinate."""
  return targets.standard_normal(x[..., :-1])


@pytest.mark.full
@pytest.mark.parametrize(
  'name', ['cholesky', 'low_rank', 'conditional', 'diagonal']
)
def test_a_factor_that_was_never_learned_is_reported(name):
  if name == 'conditional':
    kernel_of = functools.partial(
      tfpa.transport_adaptive_hamiltonian,
      transport=tfpa.transports.conditional_gaussian(),
    )
    words = 'The map was never fitted'
  else:
    structure = dict(
      cholesky=tfpa.preconditioners.cholesky,
      low_rank=functools.partial(tfpa.preconditioners.low_rank, 1),
      diagonal=tfpa.preconditioners.diagonal,
    )[name]()
    kernel_of = functools.partial(
      tfpa.fisher_divergence_langevin, preconditioner=structure
    )
    words = 'The scale factor was never learned'
  start = tf.constant(_TARGET.draw(_NUM_CHAINS))
  told = [
    any(words in told for told in _warnings(kernel_of(target, 60), start, 5)[1])
    for target in (_flat_at_the_end, targets.standard_normal)
  ]
  # A diagonal moves, and needs no gradient along each coordinate.
  assert told == [name != 'diagonal', False]


@pytest.mark.full
@pytest.mark.parametrize(
  'build, target',
  [
    (tfpa.fisher_divergence_langevin, 0.574),
    (tfpa.fisher_divergence_hamiltonian, 0.8),
    (tfpa.adaptive_metropolis, 0.25),
  ],
)
def test_an_acceptance_far_from_the_wanted_one_is_reported(build, target):
  start = tf.constant(_TARGET.draw(_NUM_CHAINS))
  for num_steps, is_reported in ((1, True), (400, False)):
    kernel = build(
      lambda x, by=1e8 / num_steps**4: by * targets.standard_normal(x),
      num_steps,
    )
    result, told = _warnings(kernel, 1e-4 * num_steps**2 * start)
    rate = np.mean(result.trace['is_accepted'])
    assert (abs(rate - target) > 0.15) == is_reported
    assert any('it has not settled' in words for words in told) == is_reported


def test_a_failed_fit_in_many_dimensions_is_followed_by_another(monkeypatch):
  size, num_steps = 120, 100
  kernel = _divergence(targets.standard_normal, num_steps)
  start = tf.constant(np.random.default_rng(1).normal(size=(4, size)))
  failing = [True]

  def factor(*_):
    return tf.eye(size, dtype=tf.float64) * (np.nan if failing[0] else 1.0)

  results = kernel.bootstrap_results(start)
  statistics = results.statistics._replace(
    time=tf.constant(60.0, tf.float64), next_fit=tf.constant(60.0, tf.float64)
  )
  params = mh_results(results).accepted_results.preconditioner_params
  monkeypatch.setattr(fisher_fit, 'factor', factor)
  _, failed = kernel._fit(params, statistics, 4)
  failing[0] = False
  _, fitted = kernel._fit(params, statistics, 4)
  assert failed.next_fit == 66.0 and failed.num_failed_fits == 1
  assert fitted.next_fit > 75.0 and fitted.num_failed_fits == 0
