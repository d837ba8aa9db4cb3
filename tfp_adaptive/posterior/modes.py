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
from tfp_adaptive.posterior import verdict
from tfp_adaptive.tempering.replica_exchange import replica_exchange

__all__ = [
  'NAME',
  'Exchange',
  'are_apart',
  'around',
  'is_exchange',
  'without_first_steps',
]

NAME = 'replica exchange'
_MOST_COORDINATES = 20
# Deviations of the wide law in those of all draws: with 1.5 corners of a grid
# of modes were seldom seen, with 1.1 the tails of a curved one.
_WIDTH = 2.5
_FIRST_REPLICAS, _MOST_REPLICAS = 5, 20
_LEAST_SHARE = 1e-6  # Of the largest variance, for a factor to exist.


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
      self.num_replicas,
      fisher_divergence_langevin,
      tfp.distributions.MultivariateNormalTriL(
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
  """Whether chains disagree, and are few enough coordinates for an exchange.

  Args:
    draws: [n, chains, d].
  """
  if draws.shape[-1] > _MOST_COORDINATES:
    return False
  rhat = convergence.diagnose(draws).rhat
  return bool(np.any(rhat > verdict.DISAGREEING_RHAT))


def around(draws):
  """Returns the `Exchange` with a wide law about all draws [n, chains, d]."""
  rows = np.asarray(draws, np.float64).reshape(-1, draws.shape[-1])
  rows = rows[np.all(np.isfinite(rows), axis=-1)]
  covariance = np.atleast_2d(np.cov(rows, rowvar=False)) * _WIDTH**2
  floor = _LEAST_SHARE * np.max(np.diag(covariance))
  factor = np.linalg.cholesky(covariance + floor * np.eye(rows.shape[1]))
  return Exchange(
    tuple(rows.mean(axis=0).tolist()), tuple(map(tuple, factor.tolist()))
  )


def without_first_steps(trace):
  """Returns a trace without what is of the first replica's steps alone.

  Its proposals may be hopeless where a state has come by an exchange, and will
  leave by one: no sign that something is missed.
  """
  return {
    name: rows
    for name, rows in trace.items()
    if name not in ('diverging', 'log_accept_ratio')
  }
