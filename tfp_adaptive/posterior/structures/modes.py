"""Several modes: chains that stay apart, and an exchange that carries between.

A matrix or a map knows the modes that its chains began in, each chain its own.
Replicas of a target tempered towards a normal law about all the chains, and
much wider than they are, go from one mode to another. Few coordinates only: the
wider law is as far from the target as it has coordinates.
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

__all__ = [
  'NAME',
  'Exchange',
  'are_apart',
  'around',
  'failures',
  'is_exchange',
  'without_own_proposals',
]

NAME = 'replica exchange'
# Deviations of the wide law in those of all draws: with 1.5 corners of a grid
# of modes were seldom seen, with 1.1 the tails of a curved one.
_WIDTH = 2.5
_FIRST_REPLICAS, _MOST_REPLICAS = 5, 20
_LEAST_SHARE = 1e-6  # Of every variance, for a factor to exist.
_FEWEST_DRAWS = 50  # Of a chain, to tell.
# Variance of chains' means, in that which their effective draws explain: of ten
# quartics and ten mixtures at least 69, of slow chains at most 16 (250 draws,
# autocorrelation up to 0.98).
_FARTHEST = 40.0


class Exchange(NamedTuple):
  """Replicas between the target and a wide normal law.

  Attributes:
    mean: Of the law, d floats.
    factor: Its Cholesky factor, d rows of d floats.
    num_replicas: At how many temperatures.
  """

  mean: tuple
  factor: tuple
  num_replicas: int = _FIRST_REPLICAS

  def kernel(self, target_log_prob_fn, num_adaptation_steps, dtype):
    """Returns the kernel, MALA at every temperature.

    Moves between modes are made by exchanges, of which the cheapest steps make
    the most: on a quartic and on 25 modes twice those of HMC for a gradient.
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
    """Returns as many replicas as a barrier asks for, about 2 Lambda + 1."""
    wanted = 2 * int(np.ceil(float(barrier))) + 1
    return self._replace(
      num_replicas=int(np.clip(wanted, self.num_replicas, _MOST_REPLICAS))
    )


def is_exchange(part):
  """Whether a part of a choice is an `Exchange`."""
  return isinstance(part, Exchange)


def are_apart(draws):
  """Whether chains stay apart, in few enough coordinates for an exchange.

  Slow chains disagree as well, but no more than their own autocorrelation
  explains. Chains in different modes seem to mix, each in its own mode.

  Args:
    draws: Draws of the chains that have arrived, [n, chains, d].
  """
  if draws.shape[-1] > arrival.MOST_COORDINATES or len(draws) < _FEWEST_DRAWS:
    return False
  if not np.any(convergence.diagnose(draws).rhat > verdict.DISAGREEING_RHAT):
    return False
  draws = np.asarray(draws, np.float64)
  sizes = tfp.mcmc.effective_sample_size(
    draws, filter_beyond_positive_pairs=True
  )
  # The size of a chain that never moved is not a number.
  sizes = np.maximum(np.nan_to_num(sizes, nan=1.0), 1.0)
  variances = np.var(draws, axis=0, ddof=1) / sizes
  between = np.var(np.mean(draws, axis=0), axis=0, ddof=1)
  return bool(np.any(between > _FARTHEST * np.mean(variances, axis=0)))


def around(draws):
  """Returns the `Exchange` with a wide law about all draws [n, chains, d]."""
  rows = np.asarray(draws, np.float64).reshape(-1, draws.shape[-1])
  rows = rows[np.all(np.isfinite(rows), axis=-1)]
  deviations = np.std(rows, axis=0, ddof=1)
  # Of a coordinate that never moved nothing is known.
  deviations = np.where(deviations > 0.0, deviations, 1.0)
  correlation = np.atleast_2d(np.cov(rows / deviations, rowvar=False))
  correlation += _LEAST_SHARE * np.eye(len(deviations))
  factor = np.linalg.cholesky(correlation) * deviations[:, np.newaxis] * _WIDTH
  return Exchange(
    tuple(rows.mean(axis=0).tolist()), tuple(map(tuple, factor.tolist()))
  )


def without_own_proposals(trace):
  """Returns a trace without what is of the first replica's steps alone.

  Its proposals may be hopeless where a state has come by an exchange, and will
  leave by one: no sign that something is missed.
  """
  return {
    name: rows
    for name, rows in trace.items()
    if name not in ('diverging', 'log_accept_ratio')
  }


def failures(results):
  """Yields a sentence where an exchange carried too little to be relied on.

  Args:
    results: `ReplicaExchangeResults`.
  """
  restarts = np.asarray(results.num_restarts)
  stuck = np.sum(restarts == 0)
  if stuck:
    yield (
      f'{stuck} of {restarts.size} chains never came from the widest '
      'temperature: they know the modes they began in'
    )
