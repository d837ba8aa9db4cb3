"""Fits the steps of hyperparameters to the covariance of those visited.

  mu_t = (1 - w_t) mu_{t-1} + w_t theta_t,   w_t = 2 / (t + 2)
  S_t  = (1 - w_t) S_{t-1} + w_t (theta_t - mu_{t-1}) (theta_t - mu_{t-1})^T
  L L^T = S_t + (tr S_t / d) (n_0 / (t B)) I,   scaled to det L = 1

for d hyperparameters and B chains, whose terms are averaged. The scale of the
steps is left to kappa, and L to their shape.

Source: Haario, Saksman and Tamminen (2001), An adaptive Metropolis algorithm.
"""

import collections

import tensorflow as tf

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.tfp_private import prefer_static as ps

__all__ = ['HyperparameterAdaptation', 'HyperparameterAdaptationResults']

# The weight of a state grows with its time: w_t = 2 / (t + 2) is the mean with
# weights proportional to t, which forgets where the chain came from.
_GAIN = 2.0
# States per hyperparameter that the identity counts for: states of a chain
# that has just started depend on each other strongly.
_PRIOR_STATES = 5.0


class HyperparameterAdaptationResults(
  collections.namedtuple(
    'HyperparameterAdaptationResults',
    ['inner_results', 'hyper_mean', 'hyper_covariance', 'step'],
  )
):
  """Results of `HyperparameterAdaptation`.

  Attributes:
    inner_results: Those of the inner kernel; what is learned is its innermost
      `hyper_factor`.
    hyper_mean: Running mean mu of unconstrained theta, [num_hyper].
    hyper_covariance: Running covariance S, [num_hyper, num_hyper].
    step: Steps taken, [] int32.
  """

  __slots__ = ()


class HyperparameterAdaptation(adaptation_base.AdaptationWrapper):
  """Learns which way and how far hyperparameters move relative to each other.

  Amplitude and length scale of a field lie on a narrow ridge, where steps of
  one size in all directions are either rejected or short. The determinant of
  L stays 1, so that kappa remains the (geometric) mean standard deviation of a
  step and can be tuned at the same time by a wrapper around this one.
  """

  def __init__(self, inner_kernel, num_adaptation_steps, name=None):
    """Builds the wrapper; no Tensor is created here.

    Args:
      inner_kernel: `tfpa.proposals.LatentGaussianHyperparameters`.
      num_adaptation_steps: Steps that adapt, a non-negative int; then L is
        fixed.
      name: Prefix of op names.
    """
    arguments.check_num_adaptation_steps(num_adaptation_steps)
    if not tfp_private.has_nested(inner_kernel, 'constrain'):
      raise ValueError(
        'No kernel inside `inner_kernel` moves hyperparameters. Wrap '
        '`tfpa.proposals.LatentGaussianHyperparameters`; got '
        f'{type(inner_kernel).__name__}.'
      )
    self._parameters = dict(
      inner_kernel=inner_kernel,
      num_adaptation_steps=num_adaptation_steps,
      name=name,
    )

  def bootstrap_results(self, init_state):
    """Starts mu at the chains' mean and S at zero."""
    inner = self.inner_kernel.bootstrap_results(init_state)
    mean = tf.reduce_mean(_rows(init_state, inner), axis=0)
    return HyperparameterAdaptationResults(
      inner_results=inner,
      hyper_mean=mean,
      hyper_covariance=tf.zeros_like(mean[:, tf.newaxis] * mean),
      step=tf.zeros([], tf.int32),
    )

  def _adapt(self, next_state, previous_inner, results):
    """Moves mu, S and L by one state of every chain."""
    del previous_inner
    inner = results.inner_results
    mean, covariance, factor = _adapted(
      results.hyper_mean,
      results.hyper_covariance,
      _rows(next_state, inner),
      results.step,
    )
    return results._replace(
      inner_results=tfp_private.replace_innermost(inner, hyper_factor=factor),
      hyper_mean=mean,
      hyper_covariance=covariance,
    )


def _adapted(mean, covariance, rows, step):
  """Returns mu, S and L after the states `rows`, [num_chains, num_hyper]."""
  dtype = rows.dtype
  step = tf.cast(step, dtype)
  num_chains, num_hyper = [
    tf.cast(n, dtype) for n in tf.unstack(tf.shape(rows))
  ]
  weight = _GAIN / (step + _GAIN)
  centered = rows - mean
  moment = tf.matmul(centered, centered, transpose_a=True) / num_chains
  covariance += weight * (moment - covariance)

  variance = tf.linalg.trace(covariance) / num_hyper
  # Nothing was accepted yet.
  is_fixed = tf.equal(variance, 0.0)
  shrinkage = _PRIOR_STATES * num_hyper / (step * num_chains)
  factor = tf.linalg.cholesky(
    covariance
    + tf.where(is_fixed, tf.ones_like(variance), shrinkage * variance)
    * tf.eye(ps.shape(rows)[-1], dtype=dtype)
  )
  log_scale = tf.reduce_mean(tf.math.log(tf.linalg.diag_part(factor)))
  return (
    mean + weight * tf.reduce_mean(centered, axis=0),
    covariance,
    factor * tf.exp(-log_scale),
  )


def _rows(state, inner):
  """Returns unconstrained theta of every chain, [num_chains, num_hyper]."""
  _, theta = tf.nest.map_structure(tf.convert_to_tensor, state)
  hyper_log_prob = tfp_private.get_innermost(inner, 'hyper_log_prob')
  flat = state_parts.flatten(theta, ps.rank(hyper_log_prob))
  return tf.reshape(flat, ps.stack([-1, ps.shape(flat)[-1]]))
