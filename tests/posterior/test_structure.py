"""The structure of a target is told by pairs held out."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import targets
from tests.transport.maps import hierarchies
from tfp_adaptive.posterior.structures import structure
from tfp_adaptive.transport import maps

_NUM_PAIRS = 400


def _choice(log_prob, states):
  _, scores = targets.value_and_gradient(log_prob, tf.constant(states))
  return structure.choose(states, scores)


def test_a_normal_target_needs_a_matrix_and_no_map_is_tried():
  factor = targets.correlated_factor(5, 1e3, seed=1)
  inverse = np.linalg.inv(factor)
  states = np.random.default_rng(0).normal(size=(_NUM_PAIRS, 5)) @ factor.T
  choice = _choice(
    lambda x: targets.standard_normal(tf.matmul(x, inverse, transpose_b=True)),
    states,
  )
  assert choice.name == 'dense matrix' and choice.drivers == ()
  assert list(choice.losses) == ['dense matrix']
  assert choice.losses['dense matrix'] < 0.1


@pytest.mark.full
def test_a_chain_that_is_stuck_in_a_neck_does_not_hide_the_map():
  # As chains of a matrix are: the others know the mouth alone.
  rng = np.random.default_rng(2)
  num_chains, num_draws = 8, 100
  log_scale, mean, noise = np.split(
    rng.normal(size=(num_chains, num_draws, 10)), [1, 2], axis=-1
  )
  log_scale, mean = 3.0 + 0.2 * log_scale, 4.0 + 4.0 * mean
  log_scale[1], mean[1], noise[1] = -1.0, 7.0, noise[1, 0]
  states = np.concatenate(
    [mean, log_scale, mean + np.exp(log_scale) * noise], axis=-1
  )
  choice = _choice(hierarchies.schools, states.reshape(-1, 10))
  assert choice.name == 'conditional Gaussian'
  assert choice.drivers == (1, 0)


@pytest.mark.parametrize('num_chains', [1, 8, 16, 100, 200, 400, 4000])
def test_every_chain_is_in_both_halves_of_the_pairs(num_chains, monkeypatch):
  halves = []

  def tried(name, pairs, **known):
    halves.extend((pairs[0], pairs[2]))
    return np.nan, {}

  monkeypatch.setattr(structure, '_tried_map', tried)
  # If there are very many chains, some have no pair.
  chain = np.floor(np.arange(400) * num_chains / 400)
  rows = np.stack([chain, chain], axis=-1)
  structure.choose(rows, rows, chain=chain)
  for half in halves[:2]:
    assert num_chains > 200 or set(half[:, 0]) == set(range(num_chains))
    assert len(half) == pytest.approx(len(rows) / 2, rel=0.1)


def test_blocks_of_pairs_do_not_straddle_chains():
  # The second of three chains has lost most of its pairs.
  chain = np.repeat([0, 1, 2], [250, 31, 250])
  is_held_out = structure._is_held_out(chain)
  for number in range(3):
    own = is_held_out[chain == number]
    assert not own[0] and own[-1] and abs(np.mean(own) - 0.5) < 0.05
  # Equal chains that divide 16 have the blocks of all pairs together.
  for num_chains in (1, 2, 4, 8, 16):
    chain = np.repeat(np.arange(num_chains), 112)
    count = len(chain)
    num_blocks = max(16, 2 * num_chains)
    np.testing.assert_array_equal(
      structure._is_held_out(chain),
      np.arange(count) * num_blocks // count % 2 == 1,
    )


@pytest.mark.full
def test_a_funnel_needs_a_conditional_gaussian_and_its_driver_is_named():
  rng = np.random.default_rng(1)
  neck = 3.0 * rng.normal(size=_NUM_PAIRS)
  choice = _choice(
    hierarchies.funnel, hierarchies.draw_funnel(rng, neck, size=5)
  )
  assert choice.name == 'conditional Gaussian' and choice.drivers == (0,)
  assert choice.losses[choice.name] < 0.01 < 1.0 < choice.losses['dense matrix']
  assert 'conditional path' not in choice.losses
  # Its variances are exp(x_0): the sampler is told, and does not search.
  assert choice.exponents == pytest.approx((-1.0,), rel=1e-6)
  params = choice.part.init(5, tf.float64, tf.ones([], tf.float64))
  assert params.drivers.numpy().tolist() == [0]


@pytest.mark.nightly
def test_a_parabola_needs_means_that_bend():
  rng = np.random.default_rng(2)
  first = 3.0 * rng.normal(size=(_NUM_PAIRS, 1))
  states = np.concatenate(
    [first, 0.3 * first**2 + rng.normal(size=(_NUM_PAIRS, 1))], axis=1
  )
  choice = _choice(hierarchies.parabola, states)
  assert choice.name == 'bent conditional Gaussian' and choice.drivers == (0,)


@pytest.mark.nightly
def test_a_walk_of_unknown_step_needs_a_path():
  rng = np.random.default_rng(3)
  log_step = 0.5 * rng.normal(size=(_NUM_PAIRS, 1))
  steps = np.exp(log_step) * rng.normal(size=(_NUM_PAIRS, 6))
  states = np.concatenate([log_step, np.cumsum(steps, axis=1)], axis=1)

  def log_prob(x):
    scale, path = x[:, 0], x[:, 1:]
    step = path - tf.concat([tf.zeros_like(path[:, :1]), path[:, :-1]], axis=1)
    return (
      -0.5 * tf.reduce_sum(step**2, axis=1) * tf.exp(-2.0 * scale)
      - 6.0 * scale
      - 2.0 * scale**2
    )

  choice = _choice(log_prob, states)
  assert choice.name == 'conditional path' and choice.drivers == (0,)


@pytest.fixture
def matrix_alone(monkeypatch):
  """Tries no map: it takes its time."""
  whole = structure._candidates
  monkeypatch.setattr(
    structure, '_candidates', lambda scores: dict([*whole(scores).items()][:1])
  )


def _noisy_loss(count, seed):
  """Returns the loss of a dense matrix where scores are noisy, d = 10."""
  rng = np.random.default_rng(seed)
  states = rng.normal(size=(count, 10))
  scores = -states + rng.normal(size=states.shape)
  return structure.choose(states, scores).losses['dense matrix']


@pytest.mark.usefixtures('matrix_alone')
def test_the_matrix_that_chains_have_counts_where_it_is_better():
  # 20 pairs to fit tell little of 30 directions.
  factor = targets.correlated_factor(30, 1e3, seed=1)
  rng = np.random.default_rng(0)
  states = rng.normal(size=(40, 30)) @ factor.T
  scores = -states @ np.linalg.inv(factor @ factor.T)

  def loss(learned):
    choice = structure.choose(states, scores, learned)
    return choice.losses['dense matrix']

  of_pairs = loss(None)
  assert of_pairs > 1.0
  assert loss(('dense matrix', tf.constant(factor))) < 1e-6
  # One that is worse, or of another kind, does not.
  assert loss(('dense matrix', tf.eye(30, dtype=tf.float64))) == of_pairs
  assert loss(('diagonal matrix', tf.constant(factor))) == of_pairs


@pytest.mark.full
@pytest.mark.usefixtures('matrix_alone')
def test_the_loss_is_that_of_pairs_that_were_not_fitted():
  # A factor that was fitted to twenty pairs is worse, not better, on others.
  few = np.mean([_noisy_loss(40, seed) for seed in range(3)])
  assert few > _noisy_loss(4000, 9)


def test_a_loss_that_is_less_within_noise_is_no_better():
  rng = np.random.default_rng(4)
  before = rng.exponential(size=(_NUM_PAIRS, 3))
  assert not structure._is_better(
    before * rng.normal(1.0, 0.3, before.shape), before
  )
  assert structure._is_better(0.5 * before, before)
  # Nor one that is less by little, however surely.
  assert not structure._is_better(0.95 * before, before)


@pytest.mark.parametrize(
  'worst, name', [(1.0, 'conditional Gaussian'), (2.0, 'dense matrix')]
)
def test_a_map_must_help_the_worst_coordinate(monkeypatch, worst, name):
  before, after = np.array([2.0, 1.9, 1.9]), np.array([worst, 0.2, 0.2])

  def of(level):
    rows = np.random.default_rng(0).gamma(20.0, 0.05, size=(400, 3))
    return rows * level

  monkeypatch.setattr(structure, '_loss_of_fit', lambda *_: of(before))
  monkeypatch.setattr(
    structure,
    '_tried_map',
    lambda *_, **k: (of(after), dict(drivers=(1,), exponents=(0.0,))),
  )
  rows = np.random.default_rng(0).normal(size=(400, 3))
  assert structure.choose(rows, -rows).name == name


def test_no_matrix_is_enough_where_proposals_diverge():
  matrix = structure.Choice(*structure.default_matrix(3))
  transport = structure.Choice('a map', maps.conditional_gaussian())
  loss = np.full([_NUM_PAIRS, 3], 0.3)
  assert structure._is_enough(matrix, loss, diverge=False)
  assert not structure._is_enough(matrix, loss, diverge=True)
  assert structure._is_enough(matrix, 0.1 * loss, diverge=True)
  # Nor a map that leaves as much, diverging or not.
  assert not structure._is_enough(transport, loss, diverge=False)


@pytest.mark.parametrize('loss, known', [(1.9, ()), (0.5, (1,))])
def test_what_bends_searches_anew_where_other_drivers_earned_nothing(
  monkeypatch, loss, known
):
  given = []

  def of_matrix(matrix, name, pairs):
    del matrix, name
    return np.full(pairs[-1].shape, 2.0)

  def tried(name, pairs, drivers=(), exponents=()):
    del exponents
    shape = pairs[-1].shape
    if name == 'conditional Gaussian':
      return np.full(shape, loss), dict(drivers=(1,), exponents=(0.0,))
    given.append(drivers)
    drivers = given[-1] or (0,)
    return np.full(shape, 0.01), dict(drivers=drivers, exponents=(0.0,))

  monkeypatch.setattr(structure, '_loss_of_fit', of_matrix)
  monkeypatch.setattr(structure, '_tried_map', tried)
  rows = np.random.default_rng(0).normal(size=(400, 2))
  choice = structure.choose(rows, -rows)
  assert given == [known]
  assert choice.name == 'bent conditional Gaussian'
  assert choice.drivers == (known or (0,))


# The pairs of draws and gradients that a structure is chosen by.
