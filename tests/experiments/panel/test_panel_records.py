"""What a record of a panel says of the gates."""

import types

import numpy as np
import pytest

from experiments.panel import records

_SIZES = ('ess', 'ess_squared', 'ess_bulk', 'ess_tail')


def _missed(rhat=1.0, **sizes):
  """Returns the gates that a run of these numbers did not pass."""
  gates = types.SimpleNamespace(max_rhat=1.01, min_ess=400, max_abs_z=4)
  config = types.SimpleNamespace(max_draws=10)
  calls = dict(target=40, gradient=40, hessian_vector=0)
  record = dict(
    num_chains=4, num_adaptation_steps=10, num_results=10, seconds={},
    calls=dict(adaptation=calls, sampling=calls), accept_rate=0.5,
    rhat_max=rhat, num_diverging=0, warnings=[],
    **{name: {'min': sizes.get(name, 400.0)} for name in _SIZES},
  )  # fmt: skip
  found = records.finished_record(
    types.SimpleNamespace(gates=gates, config=config),
    types.SimpleNamespace(
      draws=[dict(unconstrained=np.zeros([10, 4, 2]))], record=record
    ),
    types.SimpleNamespace(event_size=2),
    None,
  )
  assert found['status'] == 'finished' and found['is_biased'] is None
  return found['missed']


@pytest.mark.parametrize('name', _SIZES)
# A coordinate that never moves has no size.
@pytest.mark.parametrize('size', [None, 399.0])
def test_few_effective_draws_of_any_kind_miss_the_gate(name, size):
  assert _missed() == []
  assert _missed(**{name: size}) == ['ESS']


@pytest.mark.parametrize('rhat', [None, 1.01])
def test_chains_that_disagree_miss_the_gate(rhat):
  assert _missed(rhat) == ['R-hat']
