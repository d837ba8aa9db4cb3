"""What a run says about itself when it is over."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.core import run_warnings
from tfp_adaptive.driver import convergence
from tfp_adaptive.driver import diagnosis


@pytest.mark.full
def test_an_adaptation_that_did_not_settle_is_named():
  # No adapting step and a scale far too small: accepted almost always.
  kernel = tfpa.gradient_adaptive_langevin(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1),
    num_adaptation_steps=0,
    preconditioner=tfpa.preconditioners.diagonal(init_scale=1e-3),
  )
  with pytest.warns(UserWarning, match='aimed at 0.55'):
    tfpa.sample(kernel, tf.zeros([4, 2]), 200, seed=(0, 1), progress=False)


def test_a_weight_at_the_bound_that_grows_with_the_size_is_said():
  kernel = tfpa.gradient_adaptive_langevin(
    lambda x: -0.5 * tf.reduce_sum(x**2, -1), 10
  )
  results = kernel.bootstrap_results(tf.zeros([4, 5]))
  least = 0.5 * (1.0 - 0.55) / 5
  for weight, is_warned in ((least, True), (2.0 * least, False)):
    state = results.criterion_state._replace(entropy_weight=tf.constant(weight))
    at_bound = results._replace(criterion_state=state)
    said = list(kernel.warnings_after(at_bound, {'is_accepted': np.zeros(100)}))
    assert len(said) == is_warned


def _said(states, **trace):
  """Returns the warnings of a kernel of which nothing is known."""
  kernel = collections.namedtuple('Kernel', ['parameters'])({})
  worst, _ = diagnosis.worst_coordinates(states, trace)
  return list(diagnosis.warnings_after(kernel, states, trace, None, worst))


@pytest.mark.parametrize('share, is_warned', [(0.008, False), (0.02, True)])
def test_more_than_a_hundredth_of_diverging_proposals_is_said(share, is_warned):
  diverging = (np.arange(1000) < 1000 * share).reshape(250, 4)
  said = _said(np.zeros([250, 4, 2]), diverging=diverging)
  assert len(said) == is_warned


@pytest.mark.parametrize('shift, is_warned', [(0.05, False), (0.4, True)])
def test_an_rhat_above_a_hundredth_over_one_is_said(shift, is_warned):
  states = np.random.default_rng(0).normal(size=(400, 4, 1))
  states[:, 1] += shift
  rhat, _ = convergence.worst(states, 1)['rhat']
  assert (1.01 < rhat < 1.05) if is_warned else (1.0 < rhat < 1.01)
  said = _said(states, target_log_prob=np.zeros([400, 4]))
  assert [s.startswith('R-hat is') for s in said] == [True] * is_warned


@pytest.mark.parametrize('num_draws, is_warned', [(300, False), (100, True)])
def test_fewer_than_400_effective_draws_are_said(num_draws, is_warned):
  states = np.random.default_rng(0).normal(size=(num_draws * 2, 2, 1))
  states[::2] = states[1::2]  # Two draws are worth one.
  said = _said(states, target_log_prob=np.zeros(states.shape[:2]))
  few = [s for s in said if s.startswith('Few effective draws')]
  assert len(few) == is_warned
  if is_warned:
    assert 'for averages in coordinate 0' in few[0] and '5 %' in few[0]


@pytest.mark.parametrize(
  'rate, is_warned', [(0.35, True), (0.45, False), (0.65, False), (0.75, True)]
)
def test_an_acceptance_far_from_the_wanted_one_is_said(rate, is_warned):
  accepted = np.arange(1000) < 1000 * rate
  said = list(run_warnings.acceptance(accepted, 0.55))
  assert ['aimed at 0.55' in s for s in said] == [True] * is_warned
