"""What pages make of records: outcomes, contests, truths and rates."""

import pytest

from experiments.report import evaluation
from experiments.report import panel
from experiments.report import rivals as page

# Outcomes of runs, and samplers side by side.


def _run(**values):
  base = dict(
    target='Banana', method='NUTS', method_name='nuts', is_peer=True,
    status='finished', missed=[], is_biased=False, error=None, num_chains=2,
    num_results=100, num_diverging=0, is_cold=False, min_ess_bulk=400.0,
    min_ess_tail=500.0, ess={'median': 900.0}, rhat_max=1.001,
    gradients_per_chain={'sampling': 1000.0, 'adaptation': 3000.0},
    seconds={'adaptation': 1.0, 'sampling': 3.0, 'compile': 5.0},
    squared_bias=None, z={'worst': 1.0, 'num_comparisons': 4},
  )  # fmt: skip
  return {**base, **values}


def test_a_pair_counts_what_became_of_its_runs():
  found = panel.summarize(
    [
      _run(),
      _run(is_biased=True, num_diverging=2),
      _run(missed=['R-hat'], is_biased=None),
      _run(status='out of time', error='Too slow.\nMore'),
    ]
  )
  pair = found['Banana', 'NUTS']
  assert {k: n for k, n in pair.outcomes.items() if n} == {
    'passed': 1, 'biased': 1, 'not converged': 1, 'out of time': 1,
  }  # fmt: skip
  # More than one draw in 200 diverged in the run that is biased.
  assert pair.steady['passed'] == 1 and pair.steady['biased'] == 0
  assert not pair.counts and pair.error == 'Too slow.'
  assert pair.num_comparisons == 8
  # 400 draws of 2000 gradients, and of 8000 in all; in 4 seconds.
  values = pair.values
  assert values['min_ess_per_gradient'] == pytest.approx([200.0])
  assert values['min_ess_per_gradient_in_all'] == pytest.approx([50.0])
  assert values['min_ess_per_second'] == pytest.approx([100.0])


def test_a_contest_is_of_the_best_that_count():
  runs = [
    *(_run(min_ess_bulk=b) for b in (400.0, 410.0)),
    *(_run(method='ours', is_peer=False, min_ess_bulk=b) for b in (820, 800)),
    # Better, in one run of three.
    _run(method='lucky', min_ess_bulk=500.0),
    *(_run(method='lucky', missed=['ESS']) for _ in range(2)),
  ]
  (contest,) = panel.contests(panel.summarize(runs), 'min_ess_per_gradient')
  assert [side.method for side in contest.sides] == ['ours', 'NUTS']
  assert contest.num_runs == (2, 5) and contest.num_passed == (1, 1)
  # Tails have 500 draws.
  assert contest.ratio.median == pytest.approx(500.0 / 405.0)


def test_a_run_is_right_wrong_or_neither(monkeypatch):
  runs = [
    dict(target='a', passes_gates=gates, converged=converged, z=z)
    for gates, converged, z in (
      *((True, True, 1.0), (True, True, None), (True, True, -4.5)),
      # The gates or its own verdict say no.
      *((False, True, 9.0), (True, False, 9.0)),
    )
  ]
  monkeypatch.setattr(evaluation.records, 'rows', lambda *_: runs)
  monkeypatch.setattr(panel, 'pairs', dict)
  found = evaluation.outcomes()[evaluation.OURS]['a']
  assert found == (5, 5, 2, 4, 2, 3, 1)
  # Four of five are enough, three are not, nor is nothing.
  of_five = [evaluation.Outcome(5, 5, n, n, 0, n, 0) for n in (4, 3)]
  by_target = dict(zip('ab', of_five), c=evaluation.Outcome(*[0] * 7))
  assert evaluation.num_solved(by_target) == 1


# What the page of rivals makes of records: truths, rates and who is ahead.


def _record_rivals(sampler, mean=0.0, error=0.1, converged=True, **more):
  return {
    'status': 'finished',
    'posterior': 'ordinal',
    'sampler': sampler,
    'seed': 0,
    'commit': 'one',
    'converged': converged,
    'ess_bulk': 800.0,
    'ess_tail': 400.0,
    'num_gradients': 3000.0,
    'num_warmup_gradients': 1000.0,
    'cpu_seconds': 20.0,
    'means': {'a': [mean, error]},
    **more,
  }


def test_a_truth_is_what_two_long_runs_agree_on():
  long = [
    _record_rivals('nutpie, long', 1.0, 0.3),
    _record_rivals('NumPyro, long', 2.0, 0.4),
  ]
  known = page.truths(long)
  # Weights 1/0.09 and 1/0.16.
  mean, error = known['ordinal']['a']
  assert mean == pytest.approx(
    (1.0 / 0.09 + 2.0 / 0.16) / (1 / 0.09 + 1 / 0.16)
  )
  assert error == pytest.approx(0.24)
  run = _record_rivals('PyMC', mean + 1.0, 0.32)
  assert page.worst_error(run, known) == pytest.approx(1.0 / 0.4)


def test_long_runs_that_differ_or_did_not_converge_are_no_truth():
  apart = [
    _record_rivals('nutpie, long', 0.0),
    _record_rivals('NumPyro, long', 1.0),
  ]
  assert page.truths(apart)['ordinal'] == {}
  alone = [apart[0], {**apart[0], 'converged': False}]
  assert page.truths(alone) == {}
  same_library = [apart[1], _record_rivals('NumPyro, diagonal, long', 1.0)]
  assert page.truths(same_library) == {}
  assert page.truths(
    [*apart, _record_rivals('NumPyro, diagonal, long', 0.1)]
  ) == {'ordinal': {'a': pytest.approx((0.05, 0.1 / 2**0.5))}}
  assert page.worst_error(_record_rivals('PyMC'), page.truths(apart)) is None


def test_rates_are_of_runs_that_converged_and_of_half_of_them_at_least():
  rate = page._per_second
  rows = [_record_rivals('a'), _record_rivals('a', cpu_seconds=40.0)]
  assert page._median(rows, rate) == pytest.approx(15.0)
  bad = _record_rivals('a', cpu_seconds=1.0, converged=False)
  assert page._median([*rows, bad], rate) == pytest.approx(15.0)
  assert page._median([rows[0], bad, bad], rate) is None
  lost = {**rows[0], 'status': 'out of time'}
  assert page._median([lost], rate) is None
