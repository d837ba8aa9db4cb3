"""The modes of a target, weighed, and how to sample around them.

Chains that start at random and end in modes of very different mass never agree,
and say nothing of the masses. Here many points climb, and the modes m they end
in are weighed by Laplace's approximation,

  log w = log pi(m) + d / 2 log 2 pi - 1/2 log det P,  P = -Hessian(m).

Height alone would not do: a low and wide mode can outweigh a high and narrow
one. The weights only decide where chains start and in which coordinates they
run: they start in every mode that is not negligible, so that R-hat tells
whether they went from one to the others, and x = m + L z, L L' = P^-1, makes
the heaviest mode near to a standard normal in z. A mode in which no climb ended
is not known of.
"""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from experiments.papers.starts import climb
from experiments.run.errors import ConfigError

__all__ = ['Modes', 'find_modes', 'in_coordinates_of_the_heaviest']

# Adam, fast and then fine.
_CLIMBS = ((4000, 0.05), (4000, 0.002))
# A mode lower by this much would need e^500 times the volume to count.
_MAX_DROP = 500.0
# Eigenvalues of P count as at least this: at a saddle there are negative ones.
_LEAST_PRECISION = 1e-3


class Modes(NamedTuple):
  """Modes of a density, the heaviest first; n of them."""

  points: Any  # [n, d] float64
  precisions: Any  # P, [n, d, d] float64
  log_probs: Any  # [n]
  shares: Any  # [n], of the sum of the weights
  counts: Any  # [n], climbs that ended there
  num_lost: int  # Climbs that ended far below, or nowhere.

  def num_heavy(self, least_share):
    """Returns how many modes it takes to leave out less than `least_share`."""
    left = 1 - np.cumsum(self.shares)
    return 1 + int(np.argmax(left < least_share))

  def starts(self, num_chains, num_modes, seed):
    """Returns x [num_chains, d] in the heaviest modes, in turn.

    Args:
      num_chains: at least `num_modes`.
      num_modes: a number of modes.
      seed: int.
    """
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=[num_chains, self.points.shape[1]])
    place = np.arange(num_chains) % num_modes
    factors = _factors(self.precisions[:num_modes])
    return self.points[place] + np.einsum('nij,nj->ni', factors[place], noise)

  def summary(self, limit=5):
    """Returns what a reference keeps of them."""
    return {
      'num_climbs': int(self.counts.sum()) + self.num_lost,
      'num_lost_climbs': self.num_lost,
      'num_modes': len(self.points),
      'heaviest': [
        {
          'log_prob': float(self.log_probs[i]),
          'share': float(self.shares[i]),
          'num_climbs': int(self.counts[i]),
        }
        for i in range(min(limit, len(self.points)))
      ],
    }


def find_modes(target, num_climbs, seed):
  """Returns the `Modes` in which climbs from N(0, I) end.

  Args:
    target: a `Target`. Where its density has kinks or jumps the weights are
      rough.
    num_climbs: number of starts.
    seed: int.

  Raises:
    ConfigError: if no climb ends where density and Hessian are finite.
  """
  rng = np.random.default_rng(seed)
  points = rng.normal(size=[num_climbs, target.event_size])
  points = points.astype(target.dtype)
  for num_steps, learning_rate in _CLIMBS:
    points = climb(target.target_log_prob_fn, points, num_steps, learning_rate)
  log_probs = target.target_log_prob_fn(tf.constant(points)).numpy()
  log_probs = np.where(np.isfinite(log_probs), log_probs, -np.inf)
  is_near = log_probs > log_probs.max() - _MAX_DROP
  points, log_probs = points[is_near], log_probs[is_near].astype(np.float64)
  precisions = _precisions(target, points)
  is_finite = np.isfinite(precisions).all(axis=(-2, -1))
  if not is_finite.any():
    raise ConfigError(
      f'None of {num_climbs} climbs on {target.name} ended where its density '
      'and second derivatives are finite; give more climbs, or none.'
    )
  modes = _distinct(
    points[is_finite].astype(np.float64),
    _bounded(precisions[is_finite]),
    log_probs[is_finite],
  )
  return modes._replace(num_lost=num_climbs - int(is_finite.sum()))


def in_coordinates_of_the_heaviest(target, modes):
  """Returns the log density of z, and the maps of z [..., d] to x and back."""
  point = modes.points[0]
  factor = _factors(modes.precisions[:1])[0]
  inverse = np.linalg.inv(factor)
  origin, matrix = (tf.constant(v, target.dtype) for v in (point, factor))

  def log_prob(z):
    return target.target_log_prob_fn(
      origin + tf.einsum('ij,...j->...i', matrix, z)
    )

  def to_x(z):
    return point + np.asarray(z, np.float64) @ factor.T

  def to_z(x):
    return ((x - point) @ inverse.T).astype(target.dtype)

  return log_prob, to_x, to_z


def _factors(precisions):
  """Returns L of P [n, d, d], L L' = P^-1."""
  inverse = np.linalg.inv(np.linalg.cholesky(precisions))
  return np.swapaxes(inverse, -1, -2)


def _precisions(target, points):
  """Returns P at points [n, d], float64, one after the other."""

  @tf.function(autograph=False)
  def hessian(x):
    with tf.GradientTape() as outer:
      outer.watch(x)
      with tf.GradientTape() as inner:
        inner.watch(x)
        value = target.target_log_prob_fn(x)
      grads = inner.gradient(value, x)
    return outer.batch_jacobian(grads, x)

  found = [-hessian(tf.constant(x[None])).numpy()[0] for x in points]
  return np.reshape(found, [-1, *2 * points.shape[1:]]).astype(np.float64)


def _bounded(precisions):
  """Returns P, symmetric, with its eigenvalues bounded from below."""
  symmetric = (precisions + np.swapaxes(precisions, -1, -2)) / 2
  values, vectors = np.linalg.eigh(symmetric)
  values = np.maximum(values, _LEAST_PRECISION)
  return np.einsum('nij,nj,nkj->nik', vectors, values, vectors)


def _distinct(points, precisions, log_probs):
  """Returns the `Modes` among where the climbs ended.

  Two climbs ended in one mode if neither is outside of the other's ellipsoid
  of d deviations squared, the typical distance of a draw.
  """
  kept, counts = [], []
  for i in np.argsort(-log_probs):
    for place, j in enumerate(kept):
      gap = points[i] - points[j]
      far = max(gap @ precisions[j] @ gap, gap @ precisions[i] @ gap)
      if far < len(gap):
        counts[place] += 1
        break
    else:
      kept.append(i)
      counts.append(1)
  log_weights = log_probs[kept] - 0.5 * np.linalg.slogdet(precisions[kept])[1]
  weights = np.exp(log_weights - log_weights.max())
  order = np.argsort(-weights)
  kept = np.asarray(kept)[order]
  return Modes(
    points[kept],
    precisions[kept],
    log_probs[kept],
    weights[order] / weights.sum(),
    np.asarray(counts)[order],
    num_lost=0,
  )
