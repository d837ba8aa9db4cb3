"""The modes of a target, weighed, and coordinates in which one is a normal.

Chains that start at random and end in modes of very different mass never agree,
and say nothing of the masses. Here many points climb, and the modes m they end
in are weighed by Laplace's approximation,

  log w = log pi(m) + d / 2 log 2 pi - 1/2 log det P,  P = -Hessian(m).

Around the heaviest, x = m + L z with L L' = P^-1 makes the density one that is
near to a standard normal in z. Height alone would not do: a low and wide mode
can outweigh a high and narrow one. Modes in which no climb ended are not known.
"""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from experiments.errors import ConfigError
from experiments.starts import climb

__all__ = ['Modes', 'around_heaviest', 'find_modes', 'unvisited']

# Adam, fast and then fine.
_CLIMBS = ((4000, 0.05), (4000, 0.002))
# A mode lower by this much would have to be e^500 times as wide to count.
_MAX_DROP = 500.0
# No eigenvalue of P counts as less: where a climb has not arrived, or the
# density is flat, the weight comes out too large rather than too small.
_LEAST_PRECISION = 1e-3
# Two climbs end in one mode if they are this near, in its own deviations.
_SAME_MODE = 1.0
# A mode of a smaller share may stay unvisited.
_LEAST_SHARE = 1e-3


class Modes(NamedTuple):
  """Modes of a density, the heaviest first; n of them."""

  points: Any  # [n, d] float64
  precisions: Any  # P, [n, d, d] float64
  log_probs: Any  # [n]
  shares: Any  # [n], of the sum of the weights
  num_climbs: Any  # [n], how many ended there

  def summary(self, limit=5):
    """Returns what a reference keeps of them."""
    return [
      {
        'log_prob': float(self.log_probs[i]),
        'share': float(self.shares[i]),
        'num_climbs': int(self.num_climbs[i]),
      }
      for i in range(min(limit, len(self.points)))
    ]


def find_modes(target, num_climbs, seed):
  """Returns the `Modes` in which climbs from N(0, I) end.

  Args:
    target: a `Target` with a smooth density.
    num_climbs: number of starts.
    seed: int.

  Raises:
    ConfigError: if no climb ends where the density is finite.
  """
  rng = np.random.default_rng(seed)
  points = rng.normal(size=[num_climbs, target.event_size])
  points = points.astype(target.dtype)
  for num_steps, learning_rate in _CLIMBS:
    points = climb(target.target_log_prob_fn, points, num_steps, learning_rate)
  log_probs = target.target_log_prob_fn(tf.constant(points)).numpy()
  log_probs = log_probs.astype(np.float64)
  if not np.isfinite(log_probs).any():
    raise ConfigError(
      f'None of {num_climbs} climbs on {target.name} ended where its density '
      'is finite; give more climbs, or take a reference without.'
    )
  is_near = log_probs > np.nanmax(log_probs) - _MAX_DROP
  points, log_probs = points[is_near], log_probs[is_near]
  precisions = _precisions(target, points)
  return _distinct(points.astype(np.float64), precisions, log_probs)


def around_heaviest(target, modes):
  """Returns the `Target` in z and the map of z [..., d] to x."""
  point = modes.points[0].astype(target.dtype)
  factor = np.linalg.inv(np.linalg.cholesky(modes.precisions[0])).T
  factor = factor.astype(target.dtype)
  constant = tf.constant(factor)

  def log_prob(z):
    return target.target_log_prob_fn(
      point + tf.einsum('ij,...j->...i', constant, z)
    )

  def to_x(z):
    return point + np.asarray(z) @ factor.T

  constrain = target.constrain or (lambda x: {'x': x})
  moved = target._replace(
    target_log_prob_fn=log_prob, constrain=lambda z: constrain(to_x(z))
  )
  return moved, to_x


def unvisited(modes, draws):
  """Returns the numbers of the modes of some share that have no draw.

  Args:
    modes: the `Modes`.
    draws: x, [..., d].
  """
  draws = draws.reshape(-1, draws.shape[-1])
  scores = []
  for point, precision, share in zip(
    modes.points, modes.precisions, modes.shares, strict=True
  ):
    if share < _LEAST_SHARE:
      break
    centered = draws - point
    distance = np.einsum('ni,ij,nj->n', centered, precision, centered)
    log_det = np.linalg.slogdet(precision)[1]
    scores.append(np.log(share) + 0.5 * (log_det - distance))
  counts = np.bincount(np.argmax(scores, axis=0), minlength=len(scores))
  return [i for i, count in enumerate(counts) if count == 0]


def _precisions(target, points):
  """Returns P at points [n, d], its eigenvalues bounded from below."""

  @tf.function(autograph=False)
  def hessian(x):
    with tf.GradientTape() as outer:
      outer.watch(x)
      with tf.GradientTape() as inner:
        inner.watch(x)
        value = target.target_log_prob_fn(x)
      grads = inner.gradient(value, x)
    return outer.batch_jacobian(grads, x)

  found = -hessian(tf.constant(points)).numpy().astype(np.float64)
  found = (found + np.swapaxes(found, -1, -2)) / 2
  values, vectors = np.linalg.eigh(found)
  values = np.maximum(values, _LEAST_PRECISION)
  return np.einsum('nij,nj,nkj->nik', vectors, values, vectors)


def _distinct(points, precisions, log_probs):
  """Returns the `Modes` among where the climbs ended."""
  log_weights = log_probs - 0.5 * np.linalg.slogdet(precisions)[1]
  kept, counts = [], []
  for i in np.argsort(-log_probs):
    for place, j in enumerate(kept):
      centered = points[i] - points[j]
      if centered @ precisions[j] @ centered < _SAME_MODE**2:
        counts[place] += 1
        break
    else:
      kept.append(i)
      counts.append(1)
  weights = np.exp(log_weights[kept] - log_weights[kept].max())
  order = np.argsort(-weights)
  kept = np.asarray(kept)[order]
  return Modes(
    points[kept],
    precisions[kept],
    log_probs[kept],
    weights[order] / weights.sum(),
    np.asarray(counts)[order],
  )
