"""Samples several modes by replica exchange if chains disagree.

With a matrix or a map, chains stay in the mode where they began, or seldom
leave it. Replicas can move between modes, because they sample the target
tempered towards a normal distribution. This distribution has the mean of all
chains and is wider.

This works for few coordinates only, because the distance between the wide
distribution and the target grows with the number of coordinates.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.driver import convergence
from tfp_adaptive.linear.fisher_divergence import fisher_divergence_langevin
from tfp_adaptive.posterior.judge import verdict
from tfp_adaptive.posterior.starts import arrival
from tfp_adaptive.tempering.replica_exchange import replica_exchange

NAME = 'replica exchange'
# Deviation of the wide distribution in deviations of all draws. At 1.5, chains
# seldom visited the corners of a grid of modes. At 1.1, they seldom visited the
# tails of a curved target.
_WIDTH = 2.5
_FIRST_REPLICAS, _MOST_REPLICAS = 5, 20
_LEAST_SHARE = 1e-6  # Added to the diagonal of correlations before factoring.
_FEWEST_DRAWS = 50  # Fewest draws of a chain for finding modes.


class Exchange(NamedTuple):
  """Replicas between the target and a wide normal distribution."""

  mean: tuple  # Mean of the wide distribution, d floats.
  factor: tuple  # Cholesky factor of its covariance, d rows of d floats.
  num_replicas: int = _FIRST_REPLICAS  # Number of temperatures.

  def kernel(self, target_log_prob_fn, num_adaptation_steps, dtype):
    """Returns the kernel, MALA at every temperature.

    Exchanges move chains between modes, and the cheapest steps allow the most
    exchanges. On a quartic and on 25 modes, MALA exchanged twice as often as
    HMC for each gradient.
    """
    return replica_exchange(
      target_log_prob_fn,
      num_adaptation_steps,
      num_replicas=self.num_replicas,
      kernel_fn=fisher_divergence_langevin,
      reference=tfp.distributions.MultivariateNormalTriL(
        tf.constant(self.mean, dtype), tf.constant(self.factor, dtype)
      ),
    )

  def after(self, barrier):
    """Returns the `Exchange` with about 2 `barrier` + 1 replicas."""
    wanted = 2 * int(np.ceil(float(barrier))) + 1
    return self._replace(
      num_replicas=int(np.clip(wanted, self.num_replicas, _MOST_REPLICAS))
    )


def is_exchange(part):
  """Whether a part of a choice is an `Exchange`."""
  return isinstance(part, Exchange)


def may_be_helped(draws):
  """Whether chains disagree in so few coordinates that an exchange can help.

  The draws [n, chains, d] are those of chains that have arrived.
  """
  if draws.shape[-1] > arrival.MOST_COORDINATES or len(draws) < _FEWEST_DRAWS:
    return False
  rhat = convergence.diagnose(draws).rhat
  return bool(np.any(rhat > verdict.DISAGREEING_RHAT))


def around(draws):
  """Returns the `Exchange` around all draws [n, chains, d]."""
  rows = np.asarray(draws, np.float64).reshape(-1, draws.shape[-1])
  rows = rows[np.all(np.isfinite(rows), axis=-1)]
  deviations = np.std(rows, axis=0, ddof=1)
  # The scale of a coordinate that never moved is unknown.
  deviations = np.where(deviations > 0.0, deviations, 1.0)
  correlation = np.atleast_2d(np.cov(rows / deviations, rowvar=False))
  correlation += _LEAST_SHARE * np.eye(len(deviations))
  factor = np.linalg.cholesky(correlation) * deviations[:, np.newaxis] * _WIDTH
  return Exchange(
    tuple(rows.mean(axis=0).tolist()), tuple(map(tuple, factor.tolist()))
  )


def without_own_proposals(trace):
  """Returns a trace without log ratios and divergences of own proposals.

  These are proposals of the first replica itself, and not exchanges.

  An exchange may bring the first replica to a state whose proposals are all
  rejected, until another exchange moves it away. Such divergences do not show
  that chains miss a region.
  """
  return {
    name: rows
    for name, rows in trace.items()
    if name not in ('diverging', 'log_accept_ratio')
  }


def failures(results):
  """Yields a sentence if chains got no state from the widest temperature."""
  restarts = np.asarray(results.num_restarts)
  stuck = np.sum(restarts == 0)
  if stuck:
    yield (
      f'{stuck} of {restarts.size} chains never received a state from the '
      'widest temperature, so they may not have left the mode where they began'
    )
