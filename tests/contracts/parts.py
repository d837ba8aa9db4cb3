"""Calls parts outside a kernel, as the adaptation calls them."""

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces

__all__ = [
  'PROBLEM',
  'update_criterion',
  'update_optimizer',
  'slopes',
  'transition',
]

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
