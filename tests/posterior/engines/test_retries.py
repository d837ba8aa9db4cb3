"""Steps that are tried again: their law, two programs, what they reach."""

import copy

import numpy as np
import pytest
from scipy import stats

from tests.posterior.engines import test_host as host_tests
from tfp_adaptive.posterior.engines import program as program_lib
from tfp_adaptive.posterior.engines import recorded
from tfp_adaptive.posterior.engines import retries
from tfp_adaptive.posterior.judge import verdict


@pytest.fixture(autouse=True)
def _many_chains_try_as_often_as_few(monkeypatch):
  monkeypatch.setattr(retries, '_FEW_CHAINS', np.inf)


def _after_steps():
  """Returns (least p-value, shares of steps), after steps from exact draws.

  Steps are so long that many trajectories from the tails diverge. The shares
  are those of steps that were tried again, and of these the accepted ones.
  """
  rng = np.random.default_rng(4)
  point, tried, accepted = host_tests._at_quartic_draws(rng), [], []
  shape = 1, len(point.rows)
  for _ in range(30):
    noise = program_lib.Noise(
      rng.integers(1, 4, size=1),
      np.array([0.7]),
      rng.normal(size=(*shape, 1)),
      rng.uniform(size=shape),
      rng.uniform(size=shape),
    )
    point, taken = host_tests._STEPS_OF_QUARTIC.run(
      host_tests._IDENTITY, point, 1.4, noise
    )
    again = taken.first_ratio[0] != taken.log_accept_ratio[0]
    tried.append(np.mean(again))
    accepted.append(np.mean(taken.is_accepted[0][again]))
  p_value = host_tests._least_p_value(point)
  return p_value, np.mean(tried), np.mean(accepted)


# With the power 1, many steps are tried again that are not hopeless.
@pytest.mark.parametrize('power', [retries._POWER, 1.0])
def test_steps_that_are_tried_again_leave_the_law_as_it_is(monkeypatch, power):
  monkeypatch.setattr(retries, '_POWER', power)
  p_value, tried, accepted = _after_steps()
  assert p_value > 1e-3
  assert tried > 0.3 and 0.5 < accepted < 0.8


def _without_the_way_back(monkeypatch):
  _change(monkeypatch, lambda rest, third_ratio: third_ratio - np.inf)


def _with_the_way_back_of_another(monkeypatch):
  _change(monkeypatch, lambda rest, third_ratio: np.roll(third_ratio, 1))


def _change(monkeypatch, change):
  decided = retries.decided

  def wrong(start, first, second, third_ratio, *rest):
    third_ratio = change(first, third_ratio)
    return decided(start, first, second, third_ratio, *rest)

  monkeypatch.setattr(retries, 'decided', wrong)


@pytest.mark.parametrize(
  'slip',
  [
    _without_the_way_back,
    _with_the_way_back_of_another,
  ],
)
def test_a_slip_in_a_second_try_is_noticed(monkeypatch, slip):
  monkeypatch.setattr(retries, '_POWER', 1.0)
  slip(monkeypatch)
  assert _after_steps()[0] < 1e-6


def test_the_number_of_a_second_try_keeps_its_sign_and_its_relative_place():
  uniforms = np.array([-0.6, 0.2, 1.0, -0.1])
  start, shorter = (
    program_lib.at_starts(np.full([4, 1], x), np.zeros(4), np.zeros([4, 1]))
    for x in (0.0, 1.0)
  )
  start = start._replace(uniforms=uniforms, log_det=np.zeros(4))
  shorter = shorter._replace(log_det=np.zeros(4))
  start = start._replace(forces=start.rows)
  shorter = shorter._replace(forces=start.rows)
  first = retries.End(start, np.log(np.full(4, 0.2)))
  second = retries.End(shorter, np.full(4, 50.0))
  proposal, is_accepted = retries.decided(
    start, first, second, np.log(np.full(4, 0.6)), np.zeros(4), np
  )
  # The last chain accepted its first proposal: |u| < 0.2.
  np.testing.assert_allclose(proposal.point.rows[:, 0], [1.0, 1.0, 1.0, 0.0])
  np.testing.assert_allclose(
    proposal.point.uniforms, [-0.8, 0.6, 1.0, -0.1 / 0.2]
  )
  assert np.all(is_accepted)


@pytest.fixture(scope='module')
def learned():
  """Returns an engine that learned a matrix for a funnel."""
  engine = host_tests._engine(host_tests._FUNNEL)
  engine.start(1, recorded.Options())
  return engine


def test_no_step_is_tried_again_while_chains_adapt(learned):
  young = copy.copy(learned)
  young.num_steps = young.num_adaptation_steps - 2
  noise = young._drawn([young._generator(step) for step in range(4)])
  assert np.all(noise.retries[:2] == retries.NEVER)
  assert np.all(noise.retries[2:] < 1.0)


def _drawn(engine, change=lambda noise: noise):
  """Returns the share of draws in the narrow region of a funnel, and a trace.

  There the log scale is two deviations below its mean.
  """
  engine = copy.copy(engine)
  drawn = engine._drawn
  engine._drawn = lambda *args: change(drawn(*args))
  found = engine.draw(5000, 2, 1)
  return np.mean(found.states[..., 0] < -3.0), found.trace


def test_chains_reach_a_narrow_region_by_steps_that_are_tried_again(learned):
  share, trace = _drawn(learned)
  assert share > 0.3 * stats.norm.cdf(-2.0)
  first = dict(trace, least_log_accept_ratio=trace['least_first_ratio'])
  shares = [np.mean(verdict.is_diverging(x)) for x in (trace, first)]
  assert shares[0] < 0.5 * shares[1]
  # Power: without second tries no chain arrives.
  share, trace = _drawn(
    learned, lambda noise: noise._replace(retries=noise.retries + 2.0)
  )
  assert share == 0.0
  np.testing.assert_array_equal(
    trace['least_log_accept_ratio'], trace['least_first_ratio']
  )


def test_the_first_draws_try_only_a_share_of_their_steps_again(learned):
  engine = copy.copy(learned)
  found = engine.start(1000, recorded.Options(share_tried=0.0)).trace
  np.testing.assert_array_equal(
    found['least_log_accept_ratio'], found['least_first_ratio']
  )
  found = engine.draw(1000, 1, 1).trace
  assert np.any(found['least_log_accept_ratio'] != found['least_first_ratio'])
  steps = range(engine.num_steps, engine.num_steps + 1000)
  some, every = (
    engine._drawn([engine._generator(step) for step in steps], share)
    for share in (0.3, 1.0)
  )
  # All chains try together, and other numbers stay the same.
  is_tried = some.retries[:, 0] < 1.0
  assert stats.binomtest(np.sum(is_tried), 1000, 0.3).pvalue > 1e-3
  never = np.full_like(every.retries, retries.NEVER)
  again = np.where(is_tried[:, np.newaxis], every.retries, never)
  for one, other in zip(some, every._replace(retries=again)):
    np.testing.assert_array_equal(one, other)


def test_chains_without_a_density_and_some_of_many_are_not_tried(monkeypatch):
  rows = np.zeros([1000, 1])
  start = program_lib.at_starts(rows, np.zeros(1000), rows)
  start = start._replace(uniforms=np.full(1000, 0.5))
  numbers = np.linspace(0.0, 0.999, 1000)
  first = retries.End(start, np.full(1000, -np.inf))
  assert np.all(retries.are_tried(start, first, numbers, np))
  monkeypatch.setattr(retries, '_FEW_CHAINS', 8)
  assert np.sum(retries.are_tried(start, first, numbers, np)) == 8
  dead = start._replace(values=np.full(1000, -np.inf))
  with np.errstate(invalid='ignore'):
    assert not np.any(retries.are_tried(dead, first, numbers, np))


def test_all_trajectories_of_a_step_count_as_gradients(learned):
  engine = copy.copy(learned)
  trace = engine.draw(2000, 1, 1).trace
  every = engine.lengths.steps_of_draw
  assert np.mean(trace['n_steps']) > 1.1 * every * np.mean(
    engine.lengths.settled
  )
  np.testing.assert_allclose(engine.cost, np.mean(trace['n_steps']))
