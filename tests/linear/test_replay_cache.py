"""What a replay carries from step to step."""

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import registry
from tests.contracts import targets

_SIZE = 3
_TARGET = targets.Banana(_SIZE)


def _gradient(x):
  with tf.GradientTape() as tape:
    tape.watch(x)
    value = _TARGET.log_prob(x)
  return tape.gradient(value, x)


def test_the_random_walk_carries_the_gradient_at_the_state_of_the_chain():
  proposal = tfpa.proposals.UncalibratedPreconditionedRandomWalk(
    _TARGET.log_prob, registry.fixed(_TARGET.factor)
  )
  kernel = tfpa.MetropolisHastings(proposal)
  state = tf.constant(_TARGET.draw(20))
  results = kernel.bootstrap_results(state)
  cache = proposal.init_replay_cache(results.proposed_results)
  has_moved, num_held = np.zeros([20, 1], bool), 0
  for seed in targets.seeds(5):
    previous = results.accepted_results
    state, results = kernel.one_step(state, results, seed=seed)
    proposed = results.proposed_results, results.proposed_state
    cache = proposal.replay(cache, previous, *proposed, results).cache
    accepted = results.is_accepted.numpy()[:, np.newaxis]
    num_held += np.sum(has_moved & ~accepted)
    has_moved |= accepted
    # Zero, which means unknown, until a chain has moved.
    expected = np.where(has_moved, _gradient(state), 0.0)
    np.testing.assert_allclose(cache, expected, rtol=1e-12)
  assert num_held > 5 and np.sum(~has_moved) < 20
