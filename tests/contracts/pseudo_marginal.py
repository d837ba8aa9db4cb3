"""A pseudo-marginal target whose law on states and estimates is known.

  log estimate = log N(x | 0, A A^T) + u,   u = s e - s^2 / 2,   e ~ N(0, 1)

E[exp(u)] = 1, so the estimate is unbiased. A chain that keeps accepted
estimates has the stationary law N(x | 0, A A^T) N(u | -s^2/2, s^2) exp(u): the
states are Gaussian, and independent of them u ~ N(+s^2/2, s^2).
"""

import numpy as np
import tensorflow as tf
from scipy import stats

import tfp_adaptive as tfpa
from tfp_adaptive.core import random


class NoisyGaussian:
  """Counts its calls; `factor` is A, `scale` is s."""

  def __init__(self, scale=1.0):
    self.scale = scale
    self.factor = np.array([[1.0, 0.0], [1.2, 0.7]])
    self.num_calls = 0

  def log_prob(self, x):
    """The density that is estimated, up to a constant, [chains...]."""
    inverse = tf.constant(np.linalg.inv(self.factor), x.dtype)
    z = tf.linalg.matvec(inverse, x)
    return -0.5 * tf.reduce_sum(z**2, axis=-1)

  def estimate(self, x, seed):
    """The log of the estimate, [chains...]."""
    self.num_calls += 1
    exact = self.log_prob(x)
    # Not tf.random.stateless_normal, which draws other numbers under XLA.
    noise = random.normal(tf.shape(exact), exact.dtype, seed)
    return exact + self.scale * noise - 0.5 * self.scale**2

  def draw(self, num_draws, seed):
    """Returns exact draws of the stationary law: states [n, 2] and u [n]."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(num_draws, 2)) @ self.factor.T
    return states, 0.5 * self.scale**2 + self.scale * rng.normal(size=num_draws)

  def start(self, kernel, num_draws, seed):
    """Returns exact draws, and results that hold the estimates of them."""
    states, noise = self.draw(num_draws, seed)
    states = tf.constant(states)
    results = kernel.bootstrap_results(states)
    held = results.accepted_results._replace(
      target_log_prob=self.log_prob(states) + tf.constant(noise)
    )
    return states, results._replace(accepted_results=held)

  def noise(self, state, results):
    """Returns u of the estimates that the chains hold, [chains]."""
    held = results.accepted_results.target_log_prob
    return (held - self.log_prob(state)).numpy()

  def p_values(self, state, results):
    """Returns p-values of states and held estimates under the known law."""
    z = np.linalg.solve(self.factor, state.numpy().T)
    square = np.sum(z**2, axis=0)
    u = (self.noise(state, results) - 0.5 * self.scale**2) / self.scale
    return dict(
      first=stats.kstest(z[0], 'norm').pvalue,
      second=stats.kstest(z[1], 'norm').pvalue,
      square=stats.kstest(square, stats.chi2(2).cdf).pvalue,
      noise=stats.kstest(u, 'norm').pvalue,
      # Independence: no correlation of the ranks.
      both=stats.spearmanr(u, square).pvalue,
    )


class Recomputing(tfpa.MetropolisHastings):
  """The wrong kernel: it draws the estimate of the current state again."""

  def one_step(self, current_state, previous_kernel_results, seed=None):
    held = previous_kernel_results.accepted_results
    again = held._replace(
      target_log_prob=self.inner_kernel.target_log_prob_fn(
        current_state, seed=seed + 7
      )
    )
    return super().one_step(
      current_state,
      previous_kernel_results._replace(accepted_results=again),
      seed,
    )


def smallest_p_value(p_values):
  """Returns the smallest p-value, times the number of tests."""
  return len(p_values) * min(p_values.values())


def assert_noises_are_independent(build):
  """Asserts that target and proposal draw of different seeds."""
  # A target that draws from its seed as the proposal draws from its own.
  seen = []

  def target(x, seed):
    seen.append(random.normal(tf.shape(x), x.dtype, seed))
    return tf.zeros(x.shape[:-1], x.dtype)

  proposal = build(target)
  start = tf.zeros([5000, 2], tf.float64)
  results = proposal.bootstrap_results(start)
  _, results = proposal.one_step(start, results, seed=(1, 2))
  for one in results.noise.numpy().T:
    for other in seen[-1].numpy().T:
      correlation = np.corrcoef(one, other)[0, 1]
      assert abs(correlation) < 5.0 / 5000**0.5  # Standard errors.
