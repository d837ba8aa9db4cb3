"""Kernel adaptive Metropolis as its builder makes it: learned, then frozen."""

import numpy as np
import pytest

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from tests.contracts import targets
from tests.surrogate import learning
from tfp_adaptive.core import history
from tfp_adaptive.core import tfp_private


def _kernel(num_adaptation_steps, **options):
  return baselines.kernel_adaptive_metropolis(
    targets.standard_normal,
    num_adaptation_steps,
    baselines.kernel_subsample(30),
    **options,
  )


@pytest.mark.full
def test_kamh_keeps_the_history_as_its_draws_and_tunes_its_step():
  kernel = _kernel(100)
  start = learning.start()
  states, results = learning.run(kernel, 110)
  fits = learning.changes([learning.params_of(r)[:1] for r in results])
  assert fits[-1] == 80 and len(fits) >= 3
  held = results[79].inner_results.history
  np.testing.assert_array_equal(
    learning.params_of(results[-1]).points, history.in_order(held)[0]
  )
  sizes = [tfp_private.get_innermost(r, 'step_size') for r in results]
  assert learning.changes([[s] for s in sizes])[-1] <= 102
  assert float(sizes[-1]) != 1.0
  assert np.any(states[-1] != start)


@pytest.mark.full
def test_frozen_is_the_kernel_at_its_end():
  kernel = _kernel(40)
  states, results = learning.run(kernel, 45)
  fixed = tfpa.frozen(kernel, results[-1])
  assert isinstance(fixed, tfpa.MetropolisHastings)
  expected, _ = kernel.one_step(states[-1], results[-1], seed=(5, 6))
  moved, _ = fixed.one_step(
    states[-1], fixed.bootstrap_results(states[-1]), seed=(5, 6)
  )
  np.testing.assert_allclose(moved, expected, rtol=1e-12)


def test_a_given_history_is_there_from_the_start():
  draws = np.random.default_rng(1).normal(size=(30, learning.SIZE))
  results = _kernel(0, history=draws).bootstrap_results(learning.start())
  np.testing.assert_array_equal(learning.params_of(results).points, draws)


def test_kamh_has_no_one_matrix():
  kernel = _kernel(0)
  results = kernel.bootstrap_results(learning.start())
  with pytest.raises(ValueError, match='no one matrix'):
    tfpa.learned_factor(kernel, results)
