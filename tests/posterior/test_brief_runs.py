"""What all gates let pass draws on until half of the gradients are of draws."""

import time
import types

import pytest

from tfp_adaptive.driver import progress
from tfp_adaptive.posterior import stages
from tfp_adaptive.posterior.plan import Place


class _Doubling(stages.Run):
  """Chains that all gates let pass, whose draws double and cost as much."""

  def __init__(self, max_gradients, max_seconds=float('inf'), failed=()):
    self._settings = types.SimpleNamespace(
      max_gradients=max_gradients, max_seconds=max_seconds, min_ess=400.0,
      reports=progress.SILENT,
    )  # fmt: skip
    self._report, self._failed = [stages.Stage('look', '', 3000.0, 1.0)], failed
    self._begin, self._ended_by, self._is_unjudged = time.monotonic(), '', False
    # A block of 250 came with the adaptation.
    self.chains = types.SimpleNamespace(
      gradients_of_draws=250.0, num_gradients=3000.0, thinning=1
    )
    self._sampling, self._place = (3000.0, self._begin), Place()

  def _fill(self, chains, spent_before):
    drawn = max(500.0, 2.0 * chains.gradients_of_draws)
    chains.num_gradients += drawn - chains.gradients_of_draws
    chains.gradients_of_draws = chains.gradients_to_go_on = drawn

  def _stage(self, chains):
    # A gradient takes a second.
    spent = chains.num_gradients - self._sampling[0]
    return stages.Stage('sample', '', spent, spent)

  def _posterior(self, chains, stage):
    del chains, stage
    return types.SimpleNamespace(
      converged=not self._failed,
      failed=list(self._failed),
      verdict=types.SimpleNamespace(
        asks_for_draws=lambda _: False, is_far_from_enough=lambda _: False
      ),
    )


@pytest.mark.parametrize(
  'options, drawn',
  [
    (dict(max_gradients=1e6), 4000.0),  # The first that is half of all.
    (dict(max_gradients=6000.0), 2000.0),  # No more than can be paid for,
    (dict(max_gradients=1e6, max_seconds=900.0), 1000.0),  # or waited for.
    # What more draws cannot mend.
    (dict(max_gradients=1e6, failed=['1.0% of the proposals diverged']), 500.0),
  ],
)
def test_what_all_gates_let_pass_draws_on_for_as_long_as_it_adapted(
  options, drawn
):
  run = _Doubling(**options)
  run._sample(run.chains, may_adapt=True)
  assert run.chains.gradients_of_draws == drawn
  # Nothing has ended it before its time.
  assert run._ended_by == ''
