"""The host engine: its law, its learning, its noise, and what it hands over."""

import copy

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import tfp_adaptive as tfpa
from experiments import models
from tfp_adaptive.driver import progress as progress_lib
from tfp_adaptive.fits import conditional
from tfp_adaptive.fits import natural
from tfp_adaptive.linear import trajectory_length
from tfp_adaptive.posterior import chains
from tfp_adaptive.posterior import chains as chains_lib
from tfp_adaptive.posterior import density as density_lib
from tfp_adaptive.posterior.engines import lengths as lengths_lib
from tfp_adaptive.posterior.engines import program as program_lib
from tfp_adaptive.posterior.engines import python_program
from tfp_adaptive.posterior.engines import recorded
from tfp_adaptive.posterior.engines import retries
from tfp_adaptive.posterior.judge import verdict
from tfp_adaptive.posterior.model import problem as problem_lib
from tfp_adaptive.posterior.structures import structure

_CHAINS, _STEPS = 8, 400
_DENSE = structure.Choice(*structure.default_matrix(3))


def _funnel(x):
  """A log scale, and two effects of that scale, exactly."""
  scale, rest = x[..., 0], x[..., 1:]
  value = -0.5 * (scale / 1.5) ** 2 - 2.0 * scale
  return value - 0.5 * tf.reduce_sum(rest**2, axis=-1) * tf.exp(-2.0 * scale)


def _funnel_draws(count, seed):
  rng = np.random.default_rng(seed)
  scale = 1.5 * rng.normal(size=(count, 1))
  return np.concatenate([scale, np.exp(scale) * rng.normal(size=(count, 2))], 1)


def _density(target=_funnel, num_chains=_CHAINS, size=3):
  spec = tf.TensorSpec([size], tf.float64)
  problem = problem_lib.of_density(target, spec, None, num_chains)
  return density_lib.Density(problem, num_chains)


@pytest.fixture(scope='module')
def density():
  return _density()


def _choice(name):
  losses = {name: 0.0}
  if name == structure.DENSE:
    return _DENSE
  found = dict(drivers=(0,), exponents=(-2.0,))
  return structure.rebuilt(name, 3, losses, **found)


_NAMES = [structure.DENSE, 'conditional Gaussian', structure.BENT]


def _engine(density, name=structure.DENSE, num_steps=_STEPS, seed=1):
  starts = _funnel_draws(_CHAINS, 0)
  return chains_lib.engine_of(
    density, _choice(name), starts, tf.constant([seed, 2]), num_steps, True
  )


@pytest.fixture(scope='module')
def learned(density):
  """Returns dict of name -> an engine that has adapted."""
  found = {}
  for name in _NAMES:
    found[name] = _engine(density, name)
    found[name].start(1, recorded.Options())
  return found


def _at(engine, rows):
  """Yields the engine with its chains at rows [n, 3], some after others."""
  for number, part in enumerate(np.split(rows, len(rows) // _CHAINS)):
    one = copy.copy(engine)
    values, gradients = _FUNNEL.evaluate(part)
    one._point = program_lib.at_starts(part, values, gradients)
    one.num_steps = engine.num_steps + 1000 * (1 + number)
    one._turn()
    yield one


def _moved_from_draws(engine, seed, count, change=None):
  """Returns exact draws after ten steps of a frozen engine, [n, 3]."""
  found = []
  for one in _at(engine, _funnel_draws(count, seed)):
    if change is not None:
      change(one)
    one.draw(1, 10, 1)
    found.append(one.states)
  return np.concatenate(found)


_FUNNEL = _density()


def _p_values(rows):
  """Returns p-values of the laws of log scale, and of what it scales."""
  scale = rows[:, 0] / 1.5
  rest = rows[:, 1:] / np.exp(rows[:, :1])
  return [stats.kstest(x, 'norm').pvalue for x in (scale, *rest.T)]


@pytest.mark.full
@pytest.mark.parametrize('name', _NAMES)
def test_steps_leave_the_law_as_it_is(learned, name):
  rows = _moved_from_draws(learned[name], 5, 4000)
  assert min(_p_values(rows)) > 1e-3
  # They are other draws.
  assert np.mean(rows != _funnel_draws(4000, 5)) > 0.5


@pytest.mark.full
def test_a_law_without_the_volume_of_the_map_is_noticed(learned):
  def forget(engine):
    flat = dict(log_det=np.zeros_like(engine._point.log_det))
    engine._point = engine._point._replace(**flat)

  rows = _moved_from_draws(
    learned['conditional Gaussian'], 5, 4000, change=forget
  )
  assert min(_p_values(rows)) < 1e-6


# The density of x is proportional to exp(-x^4 / 4).
_QUARTIC = stats.gennorm(4.0, scale=4.0**0.25)
_STEPS_OF_QUARTIC = python_program.PythonProgram(
  lambda x: (-0.25 * x[:, 0] ** 4, -(x**3))
)
_IDENTITY = conditional.Params(natural.of_scale(1, []), np.eye(1))


def _at_quartic_draws(rng):
  """Returns the `Point` of 100 000 exact draws."""
  rows = _QUARTIC.rvs(size=(100_000, 1), random_state=rng)
  point = program_lib.at_starts(rows, -0.25 * rows[:, 0] ** 4, -(rows**3))
  return point._replace(log_det=np.zeros(len(rows)), forces=point.gradients)


def _least_p_value(point):
  """Returns that of x, v and u, and of x where the independent u is small."""
  return min(
    stats.kstest(found, cdf).pvalue
    for found, cdf in [
      (point.rows[:, 0], _QUARTIC.cdf),
      (point.rows[np.abs(point.uniforms) < 0.5, 0], _QUARTIC.cdf),
      (point.velocities[:, 0], 'norm'),
      (0.5 * (1.0 + point.uniforms), 'uniform'),
    ]
  )


def _after_kept_momenta(change=lambda point, taken: point):
  """Returns the least p-value after steps from exact draws.

  `change` is a function of the `Point` and the `Taken` of each step, and
  returns another `Point`.
  """
  rng, rates = np.random.default_rng(3), []
  point = _at_quartic_draws(rng)
  shape = 1, len(point.rows)
  for length in rng.integers(1, 3, size=30):
    noise = program_lib.Noise(
      np.array([length]),
      np.array([0.9**length]),
      rng.normal(size=(*shape, 1)),
      rng.uniform(size=shape),
      np.full(shape, retries.NEVER),
    )
    point, taken = _STEPS_OF_QUARTIC.run(_IDENTITY, point, 1.3, noise)
    point = change(point, taken)
    rates.append(np.mean(taken.is_accepted))
  assert 0.3 < np.mean(rates) < 0.9
  return _least_p_value(point)


def test_kept_momenta_leave_the_law_as_it_is():
  assert _after_kept_momenta() > 1e-3


def _without_negation(point, taken):
  sign = np.where(taken.is_accepted[0], 1.0, -1.0)
  return point._replace(velocities=sign[:, np.newaxis] * point.velocities)


def _without_ratio(point, taken):
  ratio = np.where(taken.is_accepted, taken.log_accept_ratio, 0.0)[0]
  return point._replace(uniforms=point.uniforms * np.exp(ratio))


def _with_long_momenta(point, taken):
  del taken
  return point._replace(velocities=1.2 * point.velocities)


@pytest.mark.parametrize(
  'change', [_without_negation, _without_ratio, _with_long_momenta]
)
def test_kept_momenta_with_a_slip_are_noticed(change):
  assert _after_kept_momenta(change) < 1e-6


@pytest.mark.parametrize('name', _NAMES)
def test_the_program_has_the_map_and_its_gradient(learned, density, name):
  engine = learned[name]
  params, point = engine.part.params, engine._point
  states, log_det, pull = params.forward(point.rows)
  np.testing.assert_allclose(point.states, states, rtol=1e-9)
  np.testing.assert_allclose(point.log_det, log_det, rtol=1e-9)
  values, gradients = density.evaluate(point.states)
  np.testing.assert_allclose(point.values, values, rtol=1e-9)
  np.testing.assert_allclose(point.forces, pull(gradients), atol=1e-9)


def _without_retries(drawn):
  def changed(*args):
    noise = drawn(*args)
    return noise._replace(retries=noise.retries + retries.NEVER)

  return changed


@pytest.mark.full
@pytest.mark.parametrize('name', _NAMES)
def test_the_kernel_that_is_handed_over_is_the_same_sampler(
  learned, density, name
):
  engine = learned[name]
  chains = chains_lib.Chains(engine, _choice(name), density, 100)
  kernel = chains.kernel
  proposal = kernel.parameters['inner_kernel']
  given = proposal.parameters
  assert sum(given['num_leapfrog_steps']) == sum(engine.lengths.best)
  assert proposal.keeps_momentum
  np.testing.assert_allclose(given['step_size'], engine.step_size)
  rows = _funnel_draws(4000, 6)
  results = kernel.bootstrap_results(tf.constant(rows))
  _, results = tf.function(kernel.one_step, autograph=False)(
    tf.constant(rows), results, seed=[1, 2]
  )
  # The kernel tries no step again.
  engine = copy.copy(engine)
  engine._drawn = _without_retries(engine._drawn)
  accepted = [engine.draw(1, 1, 1) for engine in _at(engine, rows)]
  rates = [
    np.mean(results.is_accepted),
    np.mean([found.trace['is_accepted'] for found in accepted]),
  ]
  assert abs(rates[0] - rates[1]) < 0.04


@pytest.mark.parametrize('name', _NAMES)
def test_energies_are_those_of_draws_and_their_momenta(learned, name):
  engine = copy.copy(learned[name])
  found = engine.draw(2000, 1, 1)
  params, trace = engine.part.params, found.trace
  rows = found.states.reshape(-1, 3)
  _, log_det, _ = params.forward(params.inverse(rows))
  potential = trace['target_log_prob'] + log_det.reshape(-1, _CHAINS)
  kinetic = trace['energy'] + potential
  # Momenta of draws are standard normal.
  assert kinetic.min() > 0.0
  assert stats.kstest(2.0 * kinetic[::20].ravel(), 'chi2', [3]).pvalue > 1e-4
  # Power: not without the volume of the map, nor with energies of proposals.
  ratios = np.where(trace['is_accepted'], 0.0, trace['log_accept_ratio'])
  assert stats.kstest(2.0 * (kinetic - ratios).ravel(), 'chi2', [3])[1] < 1e-6
  if name != structure.DENSE:
    assert np.min(trace['energy'] + trace['target_log_prob']) < 0.0


def test_steps_in_one_go_and_in_several_calls_are_the_same(learned):
  engine = learned[structure.DENSE]
  whole = copy.copy(engine).draw(100, 2, 1)
  parts, one = [], copy.copy(engine)
  for count in (1, 29, 70):
    parts.append(one.draw(count, 2, 1).states)
  np.testing.assert_array_equal(np.concatenate(parts), whole.states)
  # The engine that they are copies of stays where it was.
  assert engine.num_steps == _STEPS + engine.lengths.steps_of_draw


@pytest.mark.parametrize('name', _NAMES[:2])
@pytest.mark.parametrize('cut_at', [3, 130, 380])
def test_an_adaptation_that_was_cut_off_is_resumed_bit_by_bit(
  density, learned, tmp_path, name, cut_at
):
  run = recorded.Options(tmp_path, _identity)
  engine = _engine(density, name)

  def interrupted():
    engine._saved_at = -1e9  # Every step is written.
    if engine.num_steps >= cut_at:
      raise KeyboardInterrupt
    return 1.0

  found = engine.start(1, run._replace(seconds_left=interrupted))
  assert found.cut_by == 'the user' and not engine.is_settled
  assert found.states.shape == (1, _CHAINS, 3)
  again = _engine(density, name)
  again.start(1, run)
  np.testing.assert_array_equal(again.states, learned[name].states)
  assert again.step_size == learned[name].step_size


def test_where_no_time_is_left_it_returns_where_it_is(density):
  engine = _engine(density)
  found = engine.start(1, recorded.Options(seconds_left=lambda: 0.0))
  assert found.cut_by == '`max_seconds`' and not engine.is_settled
  np.testing.assert_array_equal(found.states[0], engine.states)


def test_proposals_without_a_density_are_rejected_and_counted():
  def wall(x):
    inside = x[..., 0] < 1.0
    value = -0.5 * tf.reduce_sum(x**2, axis=-1)
    return tf.where(inside, value, float('nan'))

  density = _density(wall, size=2)
  starts = np.random.default_rng(0).uniform(-1.0, 0.5, size=(_CHAINS, 2))
  choice = structure.Choice(*structure.default_matrix(2))
  engine = chains_lib.engine_of(
    density, choice, starts, tf.constant([0, 1]), 200, True
  )
  found = engine.start(500, recorded.Options())
  assert np.all(found.states[..., 0] < 1.0)
  assert np.all(np.isfinite(found.states))
  trace = found.trace
  assert 0.0 < np.mean(trace['diverging']) < 0.5
  assert not np.any(trace['is_accepted'] & (trace['log_accept_ratio'] < -1e3))


@pytest.mark.parametrize('thinning', [1, 3])
def test_a_draw_diverges_if_one_of_its_steps_does(learned, thinning):
  engine = copy.copy(learned[structure.DENSE])
  engine.lengths = copy.copy(engine.lengths)
  engine.lengths.best = np.array([1, 8])
  count, of_draw = 500, engine.lengths.steps_of_draw
  assert of_draw == 2
  total = count * thinning * of_draw
  found, ratios = copy.copy(engine).draw(count, thinning, 1).trace, []
  for step in range(engine.num_steps, engine.num_steps + total):
    noise = engine._drawn([engine._generator(step)])
    ratios.append(engine._steps(noise).log_accept_ratio[0])
  steps = np.reshape(ratios, [count, thinning * of_draw, _CHAINS])
  least = np.min(steps[:, -of_draw:], axis=1)
  np.testing.assert_array_equal(found['log_accept_ratio'], steps[:, -1])
  np.testing.assert_array_equal(found['least_log_accept_ratio'], least)
  np.testing.assert_array_equal(found['diverging'], least <= -1000.0)
  share = np.mean(verdict.is_diverging(found))
  assert share == np.mean(least <= -20.0)
  # Power: the last steps alone show fewer.
  assert share > 1.1 * np.mean(steps[:, -1] <= -20.0) > 0.0


def test_a_normal_law_is_learned():
  scales = np.array([0.01, 1.0, 1e4])
  density = _density(lambda x: -0.5 * tf.reduce_sum((x / scales) ** 2, -1))
  starts = 3.0 * scales * np.random.default_rng(0).normal(size=(_CHAINS, 3))
  engine = chains_lib.engine_of(
    density, _DENSE, starts, tf.constant([0, 1]), 600, True
  )
  told = []
  reports = progress_lib.Reports(is_shown=False, callback=told.append)
  found = engine.start(1500, recorded.Options(reports=reports))
  assert told[-1].step == told[-1].num_steps == engine.num_steps
  covariance = engine.factor @ engine.factor.T
  np.testing.assert_allclose(np.sqrt(np.diag(covariance)), scales, rtol=0.05)
  rows = found.states.reshape(-1, 3) / scales
  np.testing.assert_allclose(np.std(rows, axis=0), 1.0, atol=0.05)
  # Draws of a normal law behind its own factor are nearly independent.
  sizes = tfp.mcmc.effective_sample_size(
    found.states, filter_beyond_positive_pairs=True, cross_chain_dims=1
  )
  assert np.min(sizes) > 4000
  accepted = np.mean(np.exp(np.minimum(found.trace['log_accept_ratio'], 0.0)))
  assert abs(accepted - 0.8) < 0.07


def test_lengths_are_those_of_the_compiled_rule():
  rng = np.random.default_rng(4)
  size, total = 3, 300
  first = rng.normal(size=(_CHAINS, size))
  ours = lengths_lib.Lengths(first)
  is_finite = tf.ones([_CHAINS, 1], tf.bool)
  theirs = trajectory_length.start(
    tf.constant(lengths_lib.FIRST), lengths_lib.MOST, first, is_finite
  )
  before = first
  for step in range(1, total + 1):
    fewest, most = ours.range_at(step - 1, total)
    count = int(rng.integers(fewest, most + 1))
    # Turns of a rotation, one coordinate slower than the others.
    turn = np.cos(0.4 * count / np.array([1.0, 2.0, 4.0]))
    after = turn * before + np.sqrt(1.0 - turn**2) * rng.normal(
      size=before.shape
    )
    accept_prob = rng.uniform(0.6, 1.0, size=_CHAINS)
    ours.add(count, before, after, after, accept_prob, step < 5)
    ours.review(step, total)
    theirs = trajectory_length.add(
      theirs,
      tf.constant(count),
      [tf.constant(x) for x in (before, after, after)],
      tf.constant(accept_prob),
      is_finite,
      tf.constant(step < 5),
    )
    theirs, drawn = trajectory_length.choose(
      theirs, _event_sum, tf.constant(step), total, lambda best: best
    )
    if step == total:  # Later steps keep momenta.
      drawn = _settled(drawn)
    assert tuple(ours.range_at(step, total)) == tuple(drawn.numpy())
    before = after
  assert tuple(ours.best) == tuple(theirs.num_leapfrog_steps.numpy())
  assert ours.best[1] > lengths_lib.FIRST[1]


def _settled(best):
  """The range of `kept_momentum`, without its third number."""
  return tf.stack([1, 2 * tf.maximum(1, tf.reduce_sum(best) // 4) - 1])


def _event_sum(rows):
  return tf.reduce_sum(rows, axis=-1)


def _identity():
  return dict(start='x', settings={}, step_program=None, start_program=None)


def _simulated(count, seed):
  """Returns unknowns [count, 2] and data [count, 4], drawn from a model.

  mean ~ N(0, 1), log scale ~ N(0, 0.5^2), four data ~ N(mean, scale^2).
  """
  rng = np.random.default_rng(seed)
  unknowns = rng.normal(size=(count, 2)) * [1.0, 0.5]
  mean, log_scale = unknowns.T[..., np.newaxis]
  return unknowns, mean + np.exp(log_scale) * rng.normal(size=(count, 4))


def _of_simulated(data):
  """Returns the density of the model, each chain with data of its own."""

  def target(x):
    mean, log_scale = x[:, :1], x[:, 1:]
    value = -0.5 * tf.reduce_sum(((data - mean) * tf.exp(-log_scale)) ** 2, 1)
    value -= 4.0 * x[:, 1]
    return value - 0.5 * x[:, 0] ** 2 - 2.0 * x[:, 1] ** 2

  return _density(target, len(data), 2)


_NUM_DATA_SETS, _NUM_BRANCHES, _STEPS_APART = 4000, 19, 5


@pytest.fixture(scope='module')
def ranks():
  """Returns a function of a change of the noise: ranks of truths, [n, 3].

  From each truth a few steps lead to a hub, and from there branches of as many
  steps lead to other states. Steps are reversible, so that truth and branches
  are exchangeable given the hub, and the rank of the truth among them is
  uniform. The engine has adapted to other data sets.
  """
  starts, data = _simulated(_NUM_DATA_SETS, 1)
  choice = structure.Choice(*structure.default_matrix(2))
  pilot = chains_lib.engine_of(
    _of_simulated(data), choice, starts, tf.constant([1, 2]), 200, True
  )
  pilot.start(1, recorded.Options())
  # If all trajectories have one leapfrog step, steps are reversible although
  # they keep momenta.
  pilot.lengths.best = np.array([1, 2])
  truths, data = _simulated(_NUM_DATA_SETS, 2)
  density = _of_simulated(data)

  def walked(rows, number, change):
    one = copy.copy(pilot)
    one._program = density.steps()
    values, gradients = density.evaluate(rows)
    one._point = program_lib.at_starts(rows, values, gradients)
    one.num_steps = 1000 + number * _STEPS_APART
    one._turn()
    drawn = one._drawn
    one._drawn = lambda *args: change(drawn(*args))
    one.draw(1, _STEPS_APART, 0)
    return one.states

  def quantities(rows):
    # The product is wrong if only the dependence of both is wrong.
    return np.concatenate([rows, rows[:, :1] * rows[:, 1:]], axis=1)

  def ranks_of(change):
    hub = walked(truths, 0, change)
    branches = range(1, 1 + _NUM_BRANCHES)
    found = [quantities(walked(hub, number, change)) for number in branches]
    return np.sum(np.array(found) < quantities(truths), axis=0)

  return ranks_of


def _rank_p_values(ranks):
  counts = [np.bincount(r, minlength=_NUM_BRANCHES + 1) for r in ranks.T]
  return [stats.chisquare(count).pvalue for count in counts]


@pytest.mark.full
def test_ranks_of_simulated_truths_are_uniform(ranks):
  found = _rank_p_values(ranks(lambda noise: noise))
  assert min(found) > 1e-3


@pytest.mark.full
@pytest.mark.parametrize(
  'change',
  [
    lambda noise: noise._replace(
      shares=0.0 * noise.shares, uniforms=0.0 * noise.uniforms + 0.5
    ),
    lambda noise: noise._replace(momenta=1.25 * noise.momenta),
  ],
  ids=['accepts all', 'momenta too large'],
)
def test_ranks_tell_a_broken_engine(ranks, change):
  assert min(_rank_p_values(ranks(change))) < 1e-6


# The host engine and compiled kernels draw from the same posteriors.


# Small models: unbounded, positive and ordered unknowns, matrices and maps.
_MODELS = """arma eight_schools eight_schools_non_centered garch hurdle mixture
negative_binomial ordinal robust_regression survival""".split()
_FAR = 4.5  # Standard errors.


def _moments(rows):
  """Returns means of draws and squares and their errors, [2 d], of all rows."""
  both = np.concatenate([rows, rows**2], axis=-1)
  sizes = tfp.mcmc.effective_sample_size(
    both, cross_chain_dims=1, filter_beyond_positive_pairs=True
  ).numpy()
  return both.mean((0, 1)), both.std((0, 1)) / np.sqrt(sizes)


def _distance(one, other):
  """Returns the largest difference of moments in standard errors."""
  (means, errors), (others, more) = one, other
  return np.max(np.abs(means - others) / np.hypot(errors, more))


@pytest.mark.nightly
@pytest.mark.parametrize('name', _MODELS)
def test_both_engines_have_the_same_moments(monkeypatch, name):
  module = models.load(name)

  def drawn(seed):
    model = module.tfp_model(**module.data())
    return tfpa.sample_posterior(model, seed=seed, progress=False)

  host = drawn(0)
  monkeypatch.setattr(chains, '_part_on_host', lambda *args: None)
  compiled = drawn(1)
  assert host.converged and compiled.converged
  center = host.unconstrained.mean((0, 1))
  scale = host.unconstrained.std((0, 1))
  rows = [(p.unconstrained - center) / scale for p in (host, compiled)]
  moments = list(map(_moments, rows))
  assert _distance(*moments) < _FAR
  # Power: deviations that are 15 % too large are told apart.
  assert _distance(moments[0], _moments(1.15 * rows[1])) > _FAR
