"""What the page of rivals makes of records: truths, rates and who is ahead."""

import pytest

from experiments.report import rivals as page


@pytest.fixture
def kept(monkeypatch):
  """Returns a function of the records that the page is made of."""

  def keep(*found):
    monkeypatch.setattr(page, '_all', lambda: found)
    page.runs.cache_clear()

  yield keep
  page.runs.cache_clear()


def _record(sampler, mean=0.0, error=0.1, converged=True, **more):
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
  long = [_record('nutpie, long', 1.0, 0.3), _record('NumPyro, long', 2.0, 0.4)]
  known = page.truths(long)
  # Weights 1/0.09 and 1/0.16.
  mean, error = known['ordinal']['a']
  assert mean == pytest.approx(
    (1.0 / 0.09 + 2.0 / 0.16) / (1 / 0.09 + 1 / 0.16)
  )
  assert error == pytest.approx(0.24)
  run = _record('PyMC', mean + 1.0, 0.32)
  assert page.worst_error(run, known) == pytest.approx(1.0 / 0.4)


def test_long_runs_that_differ_or_did_not_converge_are_no_truth():
  apart = [_record('nutpie, long', 0.0), _record('NumPyro, long', 1.0)]
  assert page.truths(apart)['ordinal'] == {}
  alone = [apart[0], {**apart[0], 'converged': False}]
  assert page.truths(alone) == {}
  same_library = [apart[1], _record('NumPyro, diagonal, long', 1.0)]
  assert page.truths(same_library) == {}
  assert page.truths([*apart, _record('NumPyro, diagonal, long', 0.1)]) == {
    'ordinal': {'a': pytest.approx((0.05, 0.1 / 2**0.5))}
  }
  assert page.worst_error(_record('PyMC'), page.truths(apart)) is None


def test_rates_are_of_runs_that_converged_and_of_half_of_them_at_least():
  rate = page._per_second
  rows = [_record('a'), _record('a', cpu_seconds=40.0)]
  assert page._median(rows, rate) == pytest.approx(15.0)
  bad = _record('a', cpu_seconds=1.0, converged=False)
  assert page._median([*rows, bad], rate) == pytest.approx(15.0)
  assert page._median([rows[0], bad, bad], rate) is None
  lost = {**rows[0], 'status': 'out of time'}
  assert page._median([lost], rate) is None


def test_seconds_compare_among_the_same_seed_and_one_commit_alone(kept):
  ours = [_record('sample_posterior', seed=s) for s in (0, 1)]
  # Twice as fast, on a machine that was twice as fast.
  apart = _record('PyMC', cpu_seconds=10.0, commit='other', seed=0)
  beside = _record('nutpie', cpu_seconds=10.0, seed=1)
  kept(*ours, apart, beside)
  (line,) = page.relative_rates(['PyMC', 'nutpie'])
  assert line == ['ordinal', '20', 'apart', '**2**']
  beside = {**beside, 'seed': 2}
  lost = {**apart, 'converged': False}
  # With another command: not one after the other.
  other = {**beside, 'seed': 1, 'together': ['nutpie', 'NumPyro']}
  same = {**other, 'together': [*other['together'], 'sample_posterior']}
  for run, shown in (
    (beside, 'apart'),
    (lost, '- (0/1)'),
    (other, 'apart'),
    (same, '**2**'),
  ):
    kept(*ours, run)
    (line,) = page.relative_rates([run['sampler']])
    assert line[-1] == shown
