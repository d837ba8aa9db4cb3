"""Finds chains that have not arrived at the posterior, by log densities.

Draws of a posterior have log densities that differ by some nats for every
coordinate. A chain far below the others is stuck where there is no mass, and
steps that suit the others cannot move it. Such a region is not a mode.
"""

import numpy as np

_GAP, _GAP_PER_COORDINATE = 100.0, 10.0
# Up to this many coordinates, the mass around a chain can be estimated, and
# several modes can be sampled.
MOST_COORDINATES = 20
_FEWEST_DRAWS = 50  # Fewest draws to estimate a covariance.
_LEAST_MASS = 20.0  # In nats; each coordinate adds one.


def gap(event_size):
  """Returns the gap in nats below the best chain at which a chain is lost.

  A region at this gap has less mass than the posterior, even if it is e^10
  times as wide in every coordinate.
  """
  return _GAP + _GAP_PER_COORDINATE * event_size


def lost(log_prob, draws):
  """Returns which chains have not arrived, [chains] bool.

  If coordinates are few, the mass Z around each chain is compared as well. By
  Laplace's method it is

    log Z = log density + log det(covariance) / 2 + constant.

  A chain is lost if its mass is less than e^-(20 + d) of the largest mass. Log
  densities [n, chains] and draws [n, chains, d] are in the order of time.
  """
  size = draws.shape[-1]
  recent = np.asarray(log_prob, np.float64)[len(log_prob) // 2 :]
  typical = np.median(np.where(np.isnan(recent), -np.inf, recent), axis=0)
  is_lost = below(typical, gap(size))
  if size > MOST_COORDINATES or len(draws) < _FEWEST_DRAWS:
    return is_lost
  mass = np.where(is_lost, -np.inf, typical + 0.5 * _log_dets(draws))
  return is_lost | below(mass, _LEAST_MASS + size)


def below(values, depth):
  """Returns which values are more than `depth` below the largest value.

  If no value is finite, no value counts as far below.
  """
  if not np.any(np.isfinite(values)):
    return np.zeros(values.shape, bool)
  return ~(values >= np.max(values) - depth)


def _log_dets(draws):
  """Returns log determinants of covariances, [chains]; -inf if singular."""
  chains = np.swapaxes(np.asarray(draws, np.float64), 0, 1)
  found = []
  for rows in chains:
    covariance = np.atleast_2d(np.cov(rows, rowvar=False))
    scales = np.sqrt(np.diag(covariance))
    is_moving = np.all(np.ptp(rows, axis=0) > 0.0)
    if not is_moving or not np.all(np.isfinite(scales)):
      found.append(-np.inf)
      continue
    sign, value = np.linalg.slogdet(covariance / np.outer(scales, scales))
    is_known = sign > 0 and np.isfinite(value)
    log_det = value + 2.0 * np.sum(np.log(scales))
    found.append(log_det if is_known else -np.inf)
  return np.array(found)


def replaced(rows, is_lost):
  """Returns states [chains, d], those of lost chains replaced by others."""
  others = np.flatnonzero(~is_lost)
  rows = np.array(rows)
  rows[is_lost] = rows[others[np.arange(np.sum(is_lost)) % len(others)]]
  return rows
