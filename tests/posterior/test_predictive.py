"""Data drawn anew and how likely those seen were, against closed forms."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tests.posterior import given_chains
from tfp_adaptive import improper_uniform
from tfp_adaptive.posterior import predictive
from tfp_adaptive.posterior import saved
from tfp_adaptive.posterior.model import constrained
from tfp_adaptive.posterior.model import data
from tfp_adaptive.posterior.model import problem as problem_lib
from tfp_adaptive.posterior.posterior import Posterior

tfb = tfp.bijectors
tfd = tfp.distributions

_DATA = np.float32([[-1.0, 0.5, 2.5], [-0.5, -1.0, 1.5]])
_AT = np.float32([-1.0, 0.0, 2.0])
_NUM_DRAWS, _NUM_CHAINS = 500, 4


def _line(at=_AT):
  """Two rows of a line with noise of an unknown scale."""

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    slope = yield tfd.Normal(0.0, 1.0, name='slope')
    scale = yield tfd.LogNormal(0.0, 1.0, name='scale')
    row = tfd.Independent(tfd.Normal(slope * at, scale), 1)
    yield tfd.Sample(row, 2, name='y')

  return model


def _unknowns(num_draws=_NUM_DRAWS * _NUM_CHAINS):
  random = np.random.default_rng(1)
  slope = 1.0 + 0.3 * random.normal(size=num_draws)
  scale = np.exp(0.2 * random.normal(size=num_draws))
  return dict(slope=np.float32(slope), scale=np.float32(scale))


def _posterior(problem, draws):
  """Returns a `Posterior` of draws [draws, chains, d] that nobody sampled."""
  log_prob = np.zeros(draws.shape[:2])
  chains = given_chains.given(draws, target_log_prob=log_prob)
  return Posterior(problem, chains, [], 10.0)


def _of(model, values, num_coordinates=1):
  """Returns the posterior of draws that are standard normal."""
  draws = np.random.default_rng(6).normal(size=(50, 4, num_coordinates))
  return _posterior(problem_lib.of_joint(model, values), np.float32(draws))


@pytest.fixture(scope='module')
def posterior():
  unknowns = _unknowns()
  draws = np.stack([unknowns['slope'], np.log(unknowns['scale'])], axis=-1)
  return _posterior(
    problem_lib.of_joint(_line(), dict(y=_DATA)),
    draws.reshape(_NUM_DRAWS, _NUM_CHAINS, 2),
  )


def _assert_law_of_lines(drawn, slope, scale, at):
  """Checks [n, 2, len(at)] by what is standard normal if they are right."""
  noise = drawn - slope[:, None, None] * at
  noise = noise / scale[:, None, None]
  error = 1.0 / np.sqrt(len(noise))
  assert np.all(np.abs(noise.mean(axis=0)) < 5.0 * error)
  assert np.all(np.abs(noise.var(axis=0) - 1.0) < 5.0 * np.sqrt(2.0) * error)
  across = noise.reshape(len(noise), -1)
  correlation = np.corrcoef(across.T) - np.eye(across.shape[1])
  assert np.all(np.abs(correlation) < 5.0 * error)
  # Noise of one draw tells nothing of the next one's.
  assert abs(np.mean(across[1:] * across[:-1])) < 5.0 * error


def test_each_draw_of_the_unknowns_draws_data(posterior):
  slope, scale = (np.ravel(part) for part in posterior.states)
  drawn = posterior.posterior_predictive(seed=3)
  assert list(drawn) == ['y']
  assert drawn['y'].shape == (_NUM_DRAWS, _NUM_CHAINS, 2, 3)
  drawn = drawn['y'].reshape(-1, 2, 3)
  _assert_law_of_lines(drawn, slope, scale, _AT)
  with pytest.raises(AssertionError):  # Power: of other draws they are not.
    _assert_law_of_lines(drawn, np.roll(slope, 1), np.roll(scale, 1), _AT)


def test_the_prior_draws_unknowns_and_data(posterior):
  drawn = posterior.prior_predictive(2000, seed=3)
  assert {n: x.shape for n, x in drawn.items()} == dict(
    slope=(2000,), scale=(2000,), y=(2000, 2, 3)
  )
  for rows in (drawn['slope'], np.log(drawn['scale'])):
    assert stats.kstest(rows, 'norm').pvalue > 1e-4
  _assert_law_of_lines(drawn['y'], drawn['slope'], drawn['scale'], _AT)


def test_the_prior_keeps_covariates_and_draws_what_is_computed_anew():
  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    at = yield tfd.Sample(tfd.Normal(0.0, 1.0), 3, name='at')
    slope = yield tfd.Normal(0.0, 1.0, name='slope')
    mean = yield tfd.Deterministic(slope * at, name='mean')
    yield tfd.Independent(tfd.Normal(mean, 1e-3), 1, name='y')

  problem = problem_lib.of_joint(model, dict(at=_AT, y=_DATA[0]))
  draws = np.zeros([20, 1, problem.event_size], np.float32)
  drawn = _posterior(problem, draws).prior_predictive(50)
  assert set(drawn) == {'slope', 'mean', 'y'}
  expected = drawn['slope'][:, None] * _AT
  np.testing.assert_allclose(drawn['mean'], expected, rtol=1e-6)
  np.testing.assert_allclose(drawn['y'], expected, atol=1e-2)


def test_a_flat_prior_draws_nothing():
  model = tfd.JointDistributionNamed(
    dict(z=improper_uniform.ImproperUniform(), y=lambda z: tfd.Normal(z, 1.0))
  )
  problem = problem_lib.of_joint(model, dict(y=np.float32(1.0)))
  posterior = _posterior(problem, np.zeros([20, 2, 1], np.float32))
  with pytest.raises(ValueError, match='A flat prior has no draws. Give'):
    posterior.prior_predictive()
  assert 'prior' not in posterior.to_arviz(predictive=True).children


def test_the_same_seed_draws_the_same_data(posterior):
  one, two, other = (
    posterior.posterior_predictive(seed)['y'] for seed in (3, 3, 4)
  )
  np.testing.assert_array_equal(one, two)
  assert np.all(one != other)


_LOG_NORM = 0.5 * np.log(2.0 * np.pi)
_SLOPES = np.float32([0.1, 0.4])
_SAMPLES = np.float32([[1.0, 2.0, 3.0], [0.5, 0.0, -1.0]])  # Each of a slope.
_OFFSETS = np.float32([0.0, 1.0, -0.5, 2.0, 0.1])[:, None, None]
_NESTED = {
  'numbers of a batch inside a sample': (
    lambda z: tfd.Sample(tfd.Normal(z * _SLOPES, 1.0), 3),
    _SAMPLES,
    lambda z: -0.5 * (_SAMPLES - z * _SLOPES[:, None]) ** 2 - _LOG_NORM,
  ),
  'and that in one event': (
    lambda z: tfd.Independent(tfd.Sample(tfd.Normal(z * _SLOPES, 1.0), 3), 1),
    _SAMPLES,
    lambda z: -0.5 * (_SAMPLES - z * _SLOPES[:, None]) ** 2 - _LOG_NORM,
  ),
  'samples of samples keep the axes of their batches': (
    lambda z: tfd.Sample(
      tfd.Independent(tfd.Sample(tfd.Normal(z * _SLOPES, 1.0), 3), 1), 5
    ),
    _SAMPLES + _OFFSETS,
    lambda z: (
      -0.5 * (_SAMPLES + _OFFSETS - z * _SLOPES[:, None]) ** 2 - _LOG_NORM
    ),
  ),
  'vectors are one number': (
    lambda z: tfd.Sample(tfd.MultivariateNormalDiag(z * _SLOPES), 2),
    _SAMPLES[:, :2],
    lambda z: (
      -0.5 * np.sum((_SAMPLES[:, :2] - z * _SLOPES) ** 2, -1) - 2 * _LOG_NORM
    ),
  ),
  'a mixture is of its draws': (
    lambda z: tfd.MixtureSameFamily(
      tfd.Categorical(probs=[0.25, 0.75]), tfd.Normal([0.0, z], [1.0, 1.0])
    ),
    np.float32(0.5),
    lambda z: (
      np.log(0.25 * np.exp(-0.125) + 0.75 * np.exp(-0.5 * (0.5 - z) ** 2))
      - _LOG_NORM
    ),
  ),
  'counts': (
    lambda z: tfd.Poisson(log_rate=z),
    np.float32(2.0),
    lambda z: 2.0 * z - np.exp(z) - np.log(2.0),
  ),
}


@pytest.mark.parametrize('law', _NESTED)
def test_laws_are_taken_apart_into_what_is_independent(law):
  of, value, expected = _NESTED[law]
  model = tfd.JointDistributionNamed(dict(z=tfd.Normal(0.0, 1.0), y=of))
  z = np.float32([-1.0, 0.3, 2.0])
  found = predictive.log_likelihood(model, dict(z=z), dict(y=value))['y']
  np.testing.assert_allclose(
    found, np.stack([expected(one) for one in z]), rtol=1e-5
  )
  # Summed it is what the model itself has.
  parts = [np.sum(model.log_prob_parts(dict(z=one, y=value))['y']) for one in z]
  summed = found.reshape(len(z), -1).sum(axis=-1)
  np.testing.assert_allclose(summed, parts, rtol=1e-5)


_SHIFTED = tfb.Shift(3.0)
_FOUR = np.float32([0.5, 1.0, 4.0, 5.0])


def _expon(y, rate, begin):
  return np.where(y > begin, rate * np.exp(-rate * (y - begin)), 0.0)


def _hidden(z):
  rate = tf.exp(tf.stack([z, z]))
  return tfd.HiddenMarkovModel(
    tfd.Categorical(probs=[0.5, 0.5]),
    tfd.Categorical(probs=[[0.9, 0.1], [0.1, 0.9]]),
    tfb.Shift([0.0, 3.0])(tfd.Exponential(rate)),
    4,
  )


def _of_hidden(z):
  """The sum over all paths of hidden states."""
  total = 0.0
  for path in itertools.product([0, 1], repeat=4):
    move = [0.9 if a == b else 0.1 for a, b in itertools.pairwise(path)]
    density = _expon(_FOUR, np.exp(z), 3.0 * np.array(path))
    total += 0.5 * np.prod(move) * np.prod(density)
  return np.log(total)


_CORRECTED = {
  'mixture': (
    lambda z: tfd.Sample(
      tfd.Mixture(
        tfd.Categorical(probs=[0.5, 0.5]),
        [_SHIFTED(tfd.Exponential(tf.exp(z))), tfd.Exponential(1.0)],
      ),
      4,
    ),
    lambda z: np.log(
      0.5 * _expon(_FOUR, np.exp(z), 3.0) + 0.5 * np.exp(-_FOUR)
    ),
  ),
  'hidden states': (_hidden, _of_hidden),
  'half a Cauchy distribution': (
    lambda z: tfd.Sample(tfd.TruncatedCauchy(z, 1.0, 0.0, np.inf), 4),
    lambda z: stats.cauchy.logpdf(_FOUR, z) - stats.cauchy.logsf(0.0, z),
  ),
  'a model inside': (
    lambda z: tfd.JointDistributionNamedAutoBatched(
      dict(one=tfd.Sample(tfd.TruncatedCauchy(z, 1.0, 0.0, np.inf), 4))
    ),
    lambda z: stats.cauchy.logpdf(_FOUR, z) - stats.cauchy.logsf(0.0, z),
  ),
}


@pytest.mark.parametrize('law', _CORRECTED)
def test_log_likelihoods_are_corrected_as_the_density_is(law):
  of, expected = _CORRECTED[law]
  model = tfd.JointDistributionNamedAutoBatched(
    dict(z=tfd.Normal(0.0, 1.0), y=of)
  )
  value = dict(one=_FOUR) if law == 'a model inside' else _FOUR
  problem = problem_lib.of_joint(model, dict(y=value))
  z = np.float32([-1.0, 0.3, 2.0])
  draws = z[:, np.newaxis, np.newaxis]
  found = _posterior(problem, draws).log_likelihood()['y']
  (found,) = tf.nest.flatten(found)
  right = np.stack([expected(np.float64(one)) for one in z])
  np.testing.assert_allclose(found[:, 0], right, rtol=1e-4, atol=1e-5)
  target = problem.target_log_prob_fn(draws[:, 0]) - stats.norm.logpdf(z)
  np.testing.assert_allclose(
    target, right.reshape(len(z), -1).sum(-1), rtol=1e-4
  )


def _sums(axis, begin=None):
  """Sums of a matrix along an axis; data begin at one unknown or nowhere."""

  def law(x):
    mean = tf.reduce_sum(x, axis=axis)
    if begin is None:
      return tfd.Independent(tfd.Normal(mean, 1.0), 1)
    shifted = tfb.Shift(x[..., 0, 0, tf.newaxis])(tfd.Exponential(tf.exp(mean)))
    return tfd.Independent(shifted, 1)

  prior = tfd.Sample(tfd.Normal(0.0, 1.0), [3, 3])
  return tfd.JointDistributionNamed(dict(x=prior, y=law))


def test_axes_counted_from_the_front_are_refused():
  draws = np.float32(np.random.default_rng(0).normal(size=(3, 2, 9)))
  value = dict(y=np.float32([4.0, 5.0, 6.0]))
  matrices = draws.reshape(3, 2, 3, 3)
  for axis in (-1, -2):
    posterior = _posterior(problem_lib.of_joint(_sums(axis), value), draws)
    expected = stats.norm.logpdf(value['y'], matrices.sum(axis=axis))
    found = posterior.log_likelihood()['y']
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    posterior.posterior_predictive()
    posterior.prior_predictive(3)
    problem_lib.of_joint(_sums(axis, 'x'), value)
  # In a batch this is the sum along -2, and for one draw that along -1.
  posterior = _posterior(problem_lib.of_joint(_sums(1), value), draws)
  for method in (
    posterior.log_likelihood,
    posterior.posterior_predictive,
    posterior.prior_predictive,
  ):
    with pytest.raises(ValueError, match="'y' at one draw differs.*`axis=-1`"):
      method()
  # The sampler itself evaluates this density chain by chain.
  with pytest.raises(ValueError, match="'y' at one draw differs.*`axis=-1`"):
    problem_lib.of_joint(_sums(1, 'x'), value)


def test_models_that_are_written_for_one_draw_are_not_refused():
  slopes = np.float32([1.0, 2.0])
  model = tfd.JointDistributionNamed(
    dict(z=tfd.Normal(0.0, 1.0), y=lambda z: tfd.Normal(z * slopes, 1.0))
  )
  z = np.float32([0.5, 1.0])  # As many draws as slopes.
  found = predictive.log_likelihood(model, dict(z=z), dict(y=slopes))['y']
  expected = stats.norm.logpdf(slopes, z[:, np.newaxis] * slopes)
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_draws_are_a_data_tree_that_cross_validation_reads(posterior):
  stats = pytest.importorskip(
    'arviz_stats', reason='leave-one-out is ArviZ', exc_type=ImportError
  )
  assert 'log_likelihood' not in posterior.draws.children
  tree = posterior.to_arviz(predictive=True)
  drawn = tree.posterior_predictive['y'].values
  assert drawn.shape == (_NUM_CHAINS, _NUM_DRAWS, 2, 3)
  np.testing.assert_array_equal(
    drawn.swapaxes(0, 1), posterior.posterior_predictive()['y']
  )
  assert tree.prior['slope'].shape == (1, 500)
  assert tree.prior_predictive['y'].shape == (1, 500, 2, 3)
  scores = stats.loo(tree, pointwise=True)
  # Draws given, it is the harmonic mean but for smoothing.
  terms = posterior.log_likelihood()['y'].reshape(-1, 6).astype(np.float64)
  harmonic = -np.log(np.mean(np.exp(-terms), axis=0))
  np.testing.assert_allclose(scores.elpd_i.values.ravel(), harmonic, atol=0.05)


def test_a_density_draws_no_data_but_a_model_of_its_unknowns_does():
  problem = problem_lib.of_density(
    lambda slope, scale: -0.5 * slope**2 - scale,
    dict(slope=tf.TensorSpec([]), scale=tf.TensorSpec([])),
    dict(scale=tfp.bijectors.Exp()),
    4,
  )
  posterior = _posterior(
    problem, np.random.default_rng(0).normal(size=[20, 2, 2])
  )
  for function in (
    posterior.posterior_predictive,
    posterior.prior_predictive,
    posterior.log_likelihood,
  ):
    with pytest.raises(ValueError, match='A log density was sampled, which'):
      function()
  found = posterior.posterior_predictive(model=_line())
  assert found['y'].shape == (20, 2, 2, 3)


def test_models_of_other_unknowns_are_refused(posterior):
  normal = tfd.Normal(0.0, 1.0)
  for parts, message in (
    (dict(slope=normal), "no part 'scale', but it was drawn"),
    (dict(slope=tfd.Sample(normal, 2), scale=normal), r'the shape \(\)'),
    (dict(slope=normal, scale=normal), 'Its unknowns are slope, scale'),
  ):
    with pytest.raises(ValueError, match=message):
      posterior.posterior_predictive(model=tfd.JointDistributionNamed(parts))


def test_data_of_a_model_inside_of_the_model_are_kept_and_drawn():
  inner = lambda mean: tfd.JointDistributionNamed(
    dict(a=tfd.Normal(mean, 1.0), b=tfd.Sample(tfd.Normal(mean, 2.0), 3))
  )
  model = tfd.JointDistributionNamed(dict(mean=tfd.Normal(0.0, 1.0), y=inner))
  data = dict(a=1.0, b=[1.0, 2.0, 3.0])
  posterior = _of(model, dict(y=data))
  drawn = posterior.posterior_predictive()['y']
  assert drawn['a'].shape == (50, 4) and drawn['b'].shape == (50, 4, 3)
  mean = posterior.states['mean']
  found = posterior.log_likelihood()['y']
  np.testing.assert_allclose(
    found['a'], stats.norm(mean, 1.0).logpdf(1.0), rtol=1e-5
  )
  likelihood = stats.norm(mean[..., None], 2.0).logpdf(data['b'])
  np.testing.assert_allclose(found['b'], likelihood, rtol=1e-5)
  tree = posterior.to_arviz(predictive=True)
  assert set(tree['observed_data'].data_vars) == {'y.a', 'y.b'}
  assert set(tree['posterior_predictive'].data_vars) == {'y.a', 'y.b'}
  assert set(tree['log_likelihood'].data_vars) == {'y.a', 'y.b'}
  # Values that differ in one number are other data.
  other = problem_lib.of_joint(model, dict(y=dict(data, a=1.5)))
  assert saved._digests(posterior._problem) != saved._digests(other)


def _named(**parts):
  return tfd.JointDistributionNamed(parts)


_AND_VALUES = {
  'a known scale': (
    _named(
      s=tfd.HalfNormal(10.0),
      mu=tfd.Normal(0.0, 1.0),
      y=lambda s, mu: tfd.Sample(tfd.Normal(mu, s), 3),
    ),
    dict(s=0.1, y=[1.0, 2.0, 3.0]), {'y'},
  ),
  'covariates': (
    _named(
      x=tfd.Sample(tfd.Normal(0.0, 1.0), 3),
      mu=tfd.Normal(0.0, 1.0),
      y=lambda x, mu: tfd.Independent(tfd.Normal(mu + 0.0 * x, 0.1), 1),
      count=lambda mu: tfd.Poisson(tf.exp(mu)),
    ),
    dict(x=[1.0, 2.0, 3.0], y=[1.0, 2.0, 3.0], count=2.0), {'y', 'count'},
  ),
  'data that an unknown depends on': (
    _named(
      w=tfd.Normal(0.0, 1.0),
      mu=lambda w: tfd.Normal(w, 1.0),
      y=lambda mu: tfd.Sample(tfd.Normal(mu, 0.1), 3),
    ),
    dict(w=0.3, y=[1.0, 2.0, 3.0]), {'y'},
  ),
  'a series': (
    _named(
      mu=tfd.Normal(0.0, 1.0),
      before=lambda mu: tfd.Normal(mu, 0.05),
      y=lambda before: tfd.Sample(tfd.Normal(before, 0.05), 3),
    ),
    dict(before=1.0, y=[1.0, 2.0, 3.0]), {'before', 'y'},
  ),
}  # fmt: skip


@pytest.mark.parametrize('name', _AND_VALUES)
def test_only_data_are_drawn_and_values_that_are_none_stay(name):
  model, values, drawn = _AND_VALUES[name]
  posterior = _of(model, values)
  found = posterior.posterior_predictive()
  assert set(found) == drawn
  # With a scale of 10, or another mean, they would be elsewhere.
  distance = found['y'] - posterior.unconstrained
  assert np.std(distance) == pytest.approx(0.1, rel=0.4)


def test_what_is_pinned_in_another_model_keeps_its_value():
  model, values, _ = _AND_VALUES['a known scale']
  posterior = _of(model, values)
  found = posterior.posterior_predictive(model=model.experimental_pin(s=5.0))
  distance = found['y'] - posterior.unconstrained
  assert np.std(distance) == pytest.approx(5.0, rel=0.2)
  # As functions that make models return them: data are drawn all the same.
  again = model.experimental_pin(s=5.0, y=[0.0, 0.0, 0.0])
  np.testing.assert_array_equal(
    posterior.posterior_predictive(model=again)['y'], found['y']
  )
  with pytest.raises(ValueError, match='mu: pinned in the model, but drawn'):
    posterior.posterior_predictive(model=model.experimental_pin(mu=0.0))


@pytest.mark.parametrize('most', [2**26, 700])
def test_draws_come_into_their_supports_a_part_at_a_time(most, monkeypatch):
  monkeypatch.setattr(constrained, '_MOST_NUMBERS', most)
  problem = problem_lib.of_joint(_line(), dict(y=_DATA))
  draws = np.float32(np.random.default_rng(8).normal(size=(50, 4, 2)))
  sizes = []

  def constrain(rows):
    sizes.append(rows.shape[0])
    return problem.constrain(rows)

  found = constrained.constrained(problem._replace(constrain=constrain), draws)
  # There are 4 chains, 2^2 coordinates and 6 data.
  assert sizes == [17 if most == 700 else 50]
  np.testing.assert_allclose(found.slope, draws[..., 0])
  np.testing.assert_allclose(found.scale, np.exp(draws[..., 1]), rtol=1e-6)


# Data drawn anew where parts are computed, nested, or no data at all.


def _line_computed(at):
  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    slope = yield tfd.Normal(0.0, 1.0, name='slope')
    mean = yield tfd.Deterministic(slope * at, name='mean')
    yield tfd.Independent(tfd.Normal(mean, 0.01), 1, name='y')

  return model


def test_what_is_computed_is_computed_anew_for_another_model():
  posterior = _of(_line_computed(_AT), dict(y=_AT))
  slope = posterior.states.slope[..., np.newaxis]
  np.testing.assert_allclose(posterior.states.mean, slope * _AT, rtol=1e-6)
  for at in (_AT, 10.0 * _AT, np.float32([1.0, 2.0])):
    drawn = posterior.posterior_predictive(model=_line_computed(at))
    assert set(drawn) == {'y'}
    np.testing.assert_allclose(drawn['y'], slope * at, atol=0.06)


def test_what_another_model_computes_beside_is_predicted():
  posterior = _of(_line_computed(_AT), dict(y=_AT))
  other = tfd.JointDistributionNamed(
    dict(
      slope=tfd.Normal(0.0, 1.0),
      mean=lambda slope: tfd.Deterministic(slope[..., tf.newaxis] * _AT),
      prediction=lambda slope: tfd.Deterministic(3.0 * slope),
    )
  )
  drawn = posterior.posterior_predictive(model=other)
  assert set(drawn) == {'prediction'}
  np.testing.assert_allclose(
    drawn['prediction'], 3.0 * posterior.states.slope, rtol=1e-6
  )


def test_data_that_an_unknown_depends_on_through_what_is_computed_stay():
  model = tfd.JointDistributionNamed(
    dict(
      mu=tfd.Normal(0.0, 1.0),
      x=lambda mu: tfd.Normal(mu, 1.0),
      twice=lambda x: tfd.Deterministic(2.0 * x),
      u=lambda twice: tfd.Normal(twice, 1.0),
      y=lambda u: tfd.Normal(u, 0.1),
    )
  )
  posterior = _of(model, dict(x=1.0, y=2.0), 2)
  assert set(posterior.posterior_predictive()) == {'y'}
  # Both have a likelihood: an unknown has a say in each.
  assert set(posterior.log_likelihood()) == {'x', 'y'}


def test_values_that_no_unknown_has_a_say_in_have_no_likelihood():
  model, values, _ = _AND_VALUES['a known scale']
  posterior = _of(model, values)
  found = posterior.log_likelihood()
  assert set(found) == {'y'}
  expected = stats.norm(posterior.states['mu'][..., np.newaxis], 0.1)
  np.testing.assert_allclose(
    found['y'], expected.logpdf([1.0, 2.0, 3.0]), rtol=1e-4
  )
  tree = posterior.to_arviz(predictive=True)
  assert set(tree['log_likelihood'].data_vars) == {'y'}
  none = _of(model, dict(s=0.1), 4)
  with pytest.raises(ValueError, match='there are no data'):
    none.log_likelihood()


def test_a_sequence_with_a_model_inside_draws_data():
  inside = tfd.JointDistributionNamed(
    dict(a=tfd.Normal(0.0, 1.0), b=tfd.Normal(0.0, 1.0))
  )
  model = tfd.JointDistributionSequential(
    [inside, lambda unknowns: tfd.Normal(10.0 * unknowns['a'], 0.01)]
  )
  name = data.parts_and_events(model)[0][-1]
  posterior = _of(model, {name: np.float32(1.0)}, 2)
  drawn = posterior.posterior_predictive()[name]
  np.testing.assert_allclose(drawn, 10.0 * posterior.states[0]['a'], atol=0.06)
