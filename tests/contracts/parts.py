"""Calls parts outside a kernel, as the adaptation calls them."""

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive import interfaces

PROBLEM = interfaces.ProblemSize(
  event_size=3, num_chains=4, num_params=9, dtype=tf.float64
)


def transition(num_chains=4, num_diverged=0, seed=0):
  """Returns a made-up transition; its first chains have diverged."""
  rng = np.random.default_rng(seed)
  is_finite = np.arange(num_chains) >= num_diverged
  return interfaces.Transition(
    log_accept_ratio=tf.constant(is_finite * rng.normal(size=num_chains)),
    proposal_entropy=tf.constant(0.3, tf.float64),
    log_jacobian=tf.zeros([num_chains], tf.float64),
    displacement=tf.constant(rng.normal(size=(num_chains, 3))),
    proposed_log_prob=tf.constant(is_finite * rng.normal(size=num_chains)),
    control_variate=tf.zeros([num_chains], tf.float64),
    is_finite=tf.constant(is_finite),
    is_accepted=tf.constant(is_finite & (rng.uniform(size=num_chains) < 0.5)),
  )


def slopes(value=-0.4, entropy=1.0, is_searching=False):
  """Returns slopes of a criterion in the log scale."""
  return interfaces.Slopes(
    value=tf.constant(value, tf.float64),
    entropy=tf.constant(entropy, tf.float64),
    is_searching=tf.constant(is_searching),
  )


def update_criterion(criterion, state, moved, slope=None):
  """Returns the criterion's next state after `moved`, a transition."""
  return criterion.update(state, moved, slope or slopes(), PROBLEM)


def update_optimizer(
  optimizer,
  grads,
  state,
  params,
  preconditioner,
  objective_scale=1.0,
  scale_force=0.0,
  problem=PROBLEM,
):
  """Returns (params, state) after one step of the optimizer."""
  feedback = interfaces.Feedback(
    objective_scale=tf.constant(objective_scale, tf.float64),
    scale_force=tf.constant(scale_force, tf.float64),
  )
  return optimizer.update(
    grads, state, params, preconditioner, feedback, problem
  )


def replayed_step(proposal, state, seed, cache=None):
  """Returns results before and after a Metropolis-Hastings step, and a replay.

  Args:
    proposal: An uncalibrated proposal.
    state: Tensor, [chains, d].
    seed: Seed of the step.
    cache: Function of the first replay cache to the one that is used.
  """
  kernel = tfpa.MetropolisHastings(proposal)
  before = kernel.bootstrap_results(state)
  _, results = kernel.one_step(state, before, seed=seed)
  first = proposal.init_replay_cache(before.proposed_results)
  replay = proposal.replay(
    first if cache is None else cache(first),
    before.accepted_results,
    results.proposed_results,
    results.proposed_state,
    results,
  )
  return before, results, replay
