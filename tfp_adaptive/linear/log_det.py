"""Estimates log det(I + D) and its gradient from Hessian-vector products.

    D = -kappa C^T H C,   H the Hessian of -log pi at one point per chain

    log det(I + D) = E sum_{k=1}^N (-1)^{k+1} / (k p_k) e^T D^k e
    gradient       = E y^T dD e,   y = sum_{k=0}^N (-1)^k / p_k D^k e

with kappa = (L^2 - 1) / 6, Rademacher draws e, a random number of terms N and
p_k = P(N >= k). dD is the change of D with C. `_normalized` keeps powers from
growing, so that the estimate is finite even if D is no contraction. The
products H C D^k e are kept. Value, gradient and largest eigenvalue then cost
N + 1 Hessian products in all, and no tape runs through a product.

Source: Hirt, Titsias and Dellaportas (2021), section 3.1 and Appendix A.1,
https://arxiv.org/abs/2110.14625.
"""

from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive.core import random
from tfp_adaptive.core.tfp_private import prefer_static as ps

_LARGEST_GROWTH = 0.99  # delta' of the paper, bounds |D^(k+1) e| / |D^k e|.
_MAX_TERMS = 100.0
# Numbers that are folded into the seed of a step.
_NUM_TERMS, _PROBE = 2, 3


class LogDetEstimate(NamedTuple):
  """What is needed to differentiate the estimate with respect to C."""

  value: tf.Tensor  # Estimate of log det(I + D), [chains...].
  probe: tf.Tensor  # e, [chains..., d].
  weighted: tf.Tensor  # y, [chains..., d].
  # u, D^N e with length 1, after N steps of power iteration.
  eigenvector: tf.Tensor
  hessian_probe: tf.Tensor  # H C e.
  hessian_weighted: tf.Tensor  # H C y.
  hessian_eigenvector: tf.Tensor  # H C u.
  num_terms: tf.Tensor  # N, [] int32; N + 1 Hessian products were made.


def rademacher(shape, dtype, seed):
  """Draws -1 and 1 with equal probability."""
  one = tf.ones([], dtype)
  return tf.where(random.uniform(shape, dtype, seed) > 0.5, one, -one)


class Series(NamedTuple):
  """The distribution of N: P(N >= num_fixed_terms + j) = continue_prob^j."""

  num_fixed_terms: int
  continue_prob: float = 0.5

  def mean_cost(self, hessian_product):
    """Returns the mean numbers of Hessian products and of gradients."""
    prob = self.continue_prob
    products = self.num_fixed_terms + 1 + prob / (1.0 - prob)
    if hessian_product == 'finite_difference':
      return 0.0, products
    return products, 0.0

  def draw_num_terms(self, dtype, seed):
    """Draws N, []."""
    draw = random.log_uniform([], dtype, seed)
    extra = tf.floor(draw / tf.math.log(tf.cast(self.continue_prob, dtype)))
    extra = tf.cast(tf.minimum(extra, _MAX_TERMS), tf.int32)
    return self.num_fixed_terms + extra

  def draw(self, rows, seed, shard_seed):
    """Returns e, shaped like `rows`, N and this series, for `estimate`.

    `shard_seed` is a function from a seed to the seed of one shard.
    """
    probe_seed = shard_seed(random.fold_in(seed, _PROBE))
    num_terms_seed = random.fold_in(seed, _NUM_TERMS)
    return (
      rademacher(ps.shape(rows), rows.dtype, probe_seed),
      self.draw_num_terms(rows.dtype, num_terms_seed),
      self,
    )


def estimate(factor, hessian_product, kappa, probe, num_terms, series):
  """Returns a `LogDetEstimate` by Hutchinson's trace and Russian roulette.

  `hessian_product` is what `linear.hessian_product` returns. `probe` is e,
  [chains..., d], and `num_terms` is N, [] int32, drawn from `series`.
  """
  dtype = probe.dtype

  def product(row):
    size = _length(row) / tf.cast(ps.shape(row)[-1], dtype) ** 0.5
    return hessian_product(factor.apply(row), size)

  def body(k, inverse_prob, power, hessian_power, totals):
    # 1 / p_k is 1 up to `num_fixed_terms`, then grows by 1 / continue_prob.
    inverse_prob /= tf.where(
      k > series.num_fixed_terms, tf.cast(series.continue_prob, dtype), 1.0
    )
    next_power = _normalized(
      -kappa * factor.apply_adjoint(hessian_power), power
    )
    next_hessian = product(next_power)
    sign = 1.0 - 2.0 * tf.cast(k % 2, dtype)  # (-1)^k.
    value, weighted, hessian_weighted = totals
    trace = tf.reduce_sum(probe * next_power, axis=-1)
    value -= sign * inverse_prob / tf.cast(k, dtype) * trace
    weighted += sign * inverse_prob * next_power
    hessian_weighted += sign * inverse_prob * next_hessian
    totals = (value, weighted, hessian_weighted)
    return k + 1, inverse_prob, next_power, next_hessian, totals

  hessian_probe = product(probe)
  zero = tf.zeros(ps.shape(probe)[:-1], dtype)
  _, _, power, hessian_power, totals = tf.while_loop(
    lambda k, *_: k <= num_terms,
    body,
    (
      tf.constant(1),
      tf.ones([], dtype),
      probe,
      hessian_probe,
      (zero, probe, hessian_probe),
    ),
  )
  # If the squares underflow, the length is 0 and no eigenvector is known.
  length = _length(power)
  return LogDetEstimate(
    value=totals[0],
    probe=probe,
    weighted=totals[1],
    eigenvector=tf.math.divide_no_nan(power, length),
    hessian_probe=hessian_probe,
    hessian_weighted=totals[2],
    hessian_eigenvector=tf.math.divide_no_nan(hessian_power, length),
    num_terms=num_terms,
  )


def _normalized(row, previous):
  """Shortens D^k e to 0.99 times the length of D^(k-1) e, if it is longer."""
  length = _length(row)
  longest = _LARGEST_GROWTH * _length(previous)
  is_longer = length > longest
  shrink = longest / tf.where(is_longer, length, 1.0)
  return row * tf.where(is_longer, shrink, 1.0)


def _length(row):
  return tf.norm(row, axis=-1, keepdims=True)
