"""A proposal of a user needs what `interfaces.Proposal` says, and no more."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa


class _Foreign(tfp.mcmc.TransitionKernel):
  """Forwards to a proposal; has none of the base class's other attributes."""

  is_calibrated = False
  uses_gradient = True

  def __init__(self, forwarded):
    self.forwarded = forwarded
    self.parameters = {}
    self.preconditioner = forwarded.preconditioner
    self.one_step = forwarded.one_step
    self.bootstrap_results = forwarded.bootstrap_results
    self.init_replay_cache = forwarded.init_replay_cache
    self.replay = forwarded.replay

  def one_step(self, current_state, previous_kernel_results, seed=None):
    raise NotImplementedError


def _moment_based(kernel):
  return tfpa.adaptation.MomentBasedAdaptation(kernel, 3, 0.5)


def _fisher(kernel):
  return tfpa.adaptation.FisherDivergenceAdaptation(kernel, 3)


def _gradient_based(kernel):
  return tfpa.adaptation.GradientBasedAdaptation(
    kernel,
    tfpa.criteria.generalized_speed_measure(0.5),
    tfpa.optimizers.relative_gradient(),
    3,
  )


@pytest.mark.parametrize('adapted', [_moment_based, _fisher, _gradient_based])
def test_an_adaptation_treats_a_foreign_proposal_like_its_own(adapted):
  own = tfpa.proposals.UncalibratedPreconditionedLangevin(
    tfp.distributions.MultivariateNormalDiag(tf.zeros(2)).log_prob,
    tfpa.preconditioners.cholesky(init_scale=1.0),
  )
  found = []
  for proposal in (own, _Foreign(own)):
    kernel = adapted(tfpa.MetropolisHastings(proposal))
    state = tf.ones([4, 2])
    results = kernel.bootstrap_results(state)
    for i in range(3):
      state, results = kernel.one_step(state, results, seed=(0, i))
    found.append(tf.nest.flatten((state, results)))
  for one, other in zip(*found):
    np.testing.assert_array_equal(one, other)
