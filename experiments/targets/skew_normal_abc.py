"""Location of a skew normal, whose likelihood is only simulated.

  p(y | theta) = 2 N(y | theta, I) Phi(<alpha, y - theta>)
  y = theta + sign(<alpha, w> - u) w,   w ~ N(0, I), u ~ N(0, 1)

One y is simulated with theta = alpha = (10, ..., 10). The paper prints
Phi(<alpha, y>), which has mass 1 only at theta = 0. The location family is the
normalized form. The prior is flat. The paper does not give the tolerance and
the number of simulations. They are chosen so that the log estimate has a
standard deviation below 1 in the bulk.

A skew normal plus N(0, eps^2 I) is again skew normal. The posterior of
approximate Bayesian computation is therefore known exactly:

  2 N(y | theta, (1 + e) I) Phi(<alpha, y - theta> / (1 + e)
                                / sqrt(1 + |alpha|^2 e / (1 + e))),  e = eps^2

References: Strathmann et al. (2015), 6, https://arxiv.org/abs/1506.02564;
Azzalini and Dalla Valle (1996).
"""

import numpy as np
import tensorflow as tf
from pydantic import Field

from experiments.targets import simulator as simulators
from experiments.targets.base import Target
from experiments.targets.base import TargetParameters
from experiments.targets.random_draws import standard_normals
from experiments.targets.registry import TARGETS


def skew_normal_draws(alpha, num_draws, rng):
  """Returns draws at theta = 0, [num_draws, d]."""
  normals = rng.normal(size=(num_draws, len(alpha)))
  is_kept = rng.normal(size=num_draws) < normals @ alpha
  return np.where(is_kept[:, np.newaxis], normals, -normals)


def exact_draws(observed, alpha, tolerance, num_draws, rng):
  """Returns independent draws of the posterior, [num_draws, d]."""
  noise = tolerance * rng.normal(size=(num_draws, len(alpha)))
  return observed - skew_normal_draws(alpha, num_draws, rng) - noise


def skew_normal_abc_target(
  event_size=10,
  location=10.0,
  skewness=10.0,
  tolerance=1.0,
  num_simulations=100,
  data_seed=0,
  dtype='float64',
):
  """Returns the stochastic posterior of the location."""
  alpha = np.full(event_size, skewness)
  rng = np.random.default_rng(data_seed)
  observed = location + skew_normal_draws(alpha, 1, rng)[0]

  def simulate_fn(states, noise):
    normals, threshold = noise[..., :-1], noise[..., -1]
    projection = tf.linalg.matvec(normals, alpha.astype(dtype))
    is_kept = (threshold < projection)[..., tf.newaxis]
    return states + tf.where(is_kept, normals, -normals)

  simulator = simulators.Simulator(
    simulate_fn=simulate_fn,
    noise_size=event_size + 1,
    observed=observed.astype(dtype),
    tolerance=tolerance,
  )

  def target_log_prob_fn(states, seed):
    chains = tf.shape(states)[:-1]
    shape = tf.concat([[num_simulations], chains, [event_size + 1]], axis=0)
    noise = tf.cast(standard_normals(shape, seed), dtype)
    return simulators.kernel_log_likelihood(simulator, states, noise)

  mean, covariance = _moments(observed, alpha, tolerance)
  return Target(
    name='skew_normal_abc',
    target_log_prob_fn=target_log_prob_fn,
    event_size=event_size,
    dtype=dtype,
    mean=mean,
    covariance=covariance,
    suggested_start=observed,
    is_stochastic=True,
    simulator=simulator,
    num_simulations=num_simulations,
    exact_draws_fn=lambda num_draws, seed: exact_draws(
      observed, alpha, tolerance, num_draws, np.random.default_rng(seed)
    ),
  )


def _moments(observed, alpha, tolerance):
  """Returns mean and covariance of the posterior."""
  delta = alpha / np.sqrt(1.0 + np.sum(alpha**2))
  shift = np.sqrt(2.0 / np.pi) * delta
  variance = 1.0 + tolerance**2
  return observed - shift, variance * np.eye(len(alpha)) - np.outer(
    shift, shift
  )


@TARGETS.register('skew_normal_abc')
class SkewNormalAbc(TargetParameters):
  """Location of a skew normal by approximate Bayesian computation."""

  event_size: int = Field(10, ge=1)
  location: float = 10.0
  skewness: float = 10.0
  tolerance: float = Field(1.0, gt=0)
  num_simulations: int = Field(
    100, ge=1, description='data sets simulated for one estimate'
  )
  data_seed: int = Field(0, ge=0)

  def build(self, context):
    return skew_normal_abc_target(
      self.event_size,
      self.location,
      self.skewness,
      self.tolerance,
      self.num_simulations,
      self.data_seed,
      context.dtype,
    )
