"""The pairs of draws and gradients that a structure is chosen by."""

import types

import numpy as np
import pytest

from tfp_adaptive.driver import progress
from tfp_adaptive.posterior import stages
from tfp_adaptive.posterior.structures import structure


class _Density:
  """A standard normal distribution."""

  num_calls = 0

  def evaluate(self, rows):
    self.num_calls += 1
    return -0.5 * np.sum(rows**2, axis=-1), -rows


class _Run(stages.Run):
  """What chooses a structure, and samples nothing."""

  def __init__(self):
    self._density, self._report = _Density(), []
    self._settings = types.SimpleNamespace(reports=progress.SILENT)
    self._problem = types.SimpleNamespace(coordinates=['x'])


@pytest.mark.parametrize('diverge', [False, True])
def test_pairs_are_of_one_chain_after_the_other(monkeypatch, diverge):
  given = []

  def choose(states, scores, learned, diverge, num_chains):
    del learned
    given.append((states, scores, diverge, num_chains))
    return structure.Choice(*structure.default_matrix(1))

  monkeypatch.setattr(structure, 'choose', choose)
  chains = types.SimpleNamespace(
    choice=structure.Choice(*structure.default_matrix(1)),
    draws=np.arange(6.0)[:, None, None] + [[0.0], [10.0], [20.0]],
    matrix=None,
    diverge=diverge,
    is_lost=np.zeros([3], bool),
  )
  _Run()._choice(chains, 0)
  ((states, scores, told, num_chains),) = given
  expected = [
    float(10 * chain + step) for chain in range(3) for step in range(6)
  ]
  assert states.ravel().tolist() == expected
  np.testing.assert_array_equal(scores, -states)
  assert num_chains == 3 and told is diverge
