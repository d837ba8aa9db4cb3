"""What a run does next: nothing is sampled here."""

import types

import pytest

from tfp_adaptive.posterior import plan
from tfp_adaptive.posterior.structures import modes
from tfp_adaptive.posterior.structures import structure

_MATRIX = structure.Choice('dense matrix', None)
_MAP = structure.Choice('conditional path', None, drivers=(0,))


def _budget(left, spent=100_000.0):
  """Returns a budget; a block of 250 draws comes with an adaptation."""
  return plan.Budget(spent + 1000.0 + left, spent, 1000, 8)


def _evidence(asked, before=_MATRIX, diverge=False, cost=4.0, attempt=1):
  return plan.Evidence(before, asked, diverge, 0.95, cost, attempt)


def test_a_first_look_takes_a_share_of_the_budget_or_is_refused():
  assert plan.look(_budget(1e6)) == 500
  # Three tenths of what is left, at eight gradients a step.
  assert plan.look(_budget(8000.0)) == 300
  assert plan.may_look_again(_budget(8000.0), 300)
  assert not plan.may_look_again(_budget(7900.0), 300)
  with pytest.raises(ValueError, match='`max_gradients=101100` is too few to'):
    plan.look(_budget(100.0))


def test_chains_of_the_right_structure_draw_on():
  evidence = _evidence(_MATRIX._replace(losses={}), attempt=0)
  assert plan.adaptation(evidence, _budget(1e6)) is None


@pytest.mark.parametrize('attempt, num_steps', [(0, 500), (1, 2000)])
def test_another_structure_adapts_longer_at_later_attempts(attempt, num_steps):
  evidence = _evidence(_MAP, attempt=attempt)
  found = plan.adaptation(evidence, _budget(1e6))
  assert found == plan.Adaptation(_MAP, num_steps)


def test_a_first_adaptation_is_short_where_the_budget_is_a_later_one_left_out():
  # 300 steps of eight gradients are three tenths of 8000.
  first = _evidence(_MAP, attempt=0)
  assert plan.adaptation(first, _budget(8000.0)).num_steps == 300
  later = plan.adaptation(_evidence(_MAP), _budget(8000.0))
  assert later.num_steps == 0
  # 500 steps, a block of draws, and pairs to choose anew.
  expected = 4000.0 / 0.3 + 1000.0 + 250.0
  assert later.lacking == pytest.approx(expected)


@pytest.mark.parametrize(
  'drivers, is_new', [((1, 0), True), ((0,), False), ((), False)]
)
def test_drivers_that_are_new_are_adapted_to_before_steps_are_careful(
  drivers, is_new
):
  evidence = _evidence(_MAP._replace(drivers=drivers), _MAP, diverge=True)
  # Enough for a map, too little for careful steps.
  found = plan.adaptation(evidence, _budget(20_000.0))
  assert found.num_steps == (750 if is_new else 0)
  # 500 steps of 24 gradients are to be half of what is left.
  assert found.lacking == (0.0 if is_new else 24_000.0 + 1000.0 + 250.0)
  found = plan.adaptation(evidence, _budget(1e6))
  assert found.choice.target_accept_prob == (0.8 if is_new else 0.95)


@pytest.mark.parametrize(
  'cost, diverge, num_steps',
  # Where draws are worth nothing half of what is left is for an adaptation.
  [(1.5, False, 1500), (16.0, False, 750), (16.0, True, 1250)],
)
def test_chains_that_hardly_moved_do_not_plan_what_the_budget_cannot_pay(
  cost, diverge, num_steps
):
  before = _MATRIX._replace(target_accept_prob=0.95 if diverge else 0.8)
  found = plan.adaptation(
    _evidence(_MATRIX._replace(losses={}), before, diverge, cost),
    _budget(40_000.0),
  )
  assert found.num_steps == num_steps and not found.lacking


def test_an_exchange_costs_its_replicas(monkeypatch):
  monkeypatch.setattr(modes, 'is_exchange', lambda part: part is not None)
  part = types.SimpleNamespace(num_replicas=30)
  exchange = structure.Choice('replica exchange', part)
  found = plan.adaptation(_evidence(exchange), _budget(200_000.0))
  assert found.num_steps == 2000


@pytest.mark.parametrize(
  'place, converged, is_far, ended_by, expected, told',
  [
    (plan.Place(), True, False, '', ('done', 0, 0.0), ''),
    # Far from enough: another attempt, if there may be one.
    (plan.Place(), False, True, '', ('improve', 1, 0.0), ''),
    (plan.Place(2, may_adapt=False), False, True, '', ('done', 2, 0.0), ''),
    # An adaptation that was left out is told, and tried with another budget.
    (
      plan.Place(0, 'sample', False, 50_000.0), False, True, '',
      ('sample', 0, 50_000.0),
      '`max_gradients`: to adapt again takes 53_000 or more',
    ),
    # It was not needed after all.
    (
      plan.Place(0, 'sample', False, 50_000.0), True, False, '',
      ('done', 0, 0.0), '',
    ),
    # What was cut off goes on where it is.
    (
      plan.Place(0, 'sample'), False, True, 'the user', ('sample', 0, 0.0),
      'the user',
    ),
  ],
)  # fmt: skip
def test_a_run_goes_on_by_its_verdict(
  place, converged, is_far, ended_by, expected, told
):
  found, words = plan.after_sampling(place, converged, is_far, 3000.0, ended_by)
  assert (found.phase, found.attempt, found.lacking) == expected
  assert words == told


def test_a_larger_budget_tries_again_what_was_left_out():
  left_out = plan.Place(1).sampling(lacking=5000.0)
  assert left_out == plan.Place(1, 'sample', False, 5000.0)
  assert left_out.with_a_larger_budget() == plan.Place(1)
  adapted = plan.Place(1).sampling()
  assert adapted.may_adapt and adapted.with_a_larger_budget() == adapted
  assert not plan.Place(2).sampling().may_adapt


def test_draws_are_brief_until_half_of_the_gradients_are_theirs():
  assert plan.draws_are_few(900.0, 2000.0, 1000.0, True, 1e5)
  assert not plan.draws_are_few(1000.0, 2000.0, 1000.0, True, 1e5)
  # Neither what is not paid for nor what there is no time for.
  assert not plan.draws_are_few(900.0, 2000.0, 1000.0, True, 2999.0)
  assert not plan.draws_are_few(900.0, 2000.0, 1000.0, False, 1e5)
