"""Kernel adaptive Metropolis-Hastings: a random walk with local covariance.

  y ~ N(x, s^2 (gamma^2 I + M(x) H M(x)^T)),   H = I - 1 1^T / n
  M(x) = 2 [grad_x k(x, z_1), ..., grad_x k(x, z_n)]

z are draws of the history and k(x, y) = exp(-|x - y|^2 / sigma).

Source: Sejdinovic, Strathmann, Lomeli, Andrieu and Gretton (2014), Kernel
adaptive Metropolis-Hastings, section 4.1, https://arxiv.org/abs/1307.5302.
"""

import collections

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers.baselines.kernel_subsample import kernel_subsample
from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import proposal
from tfp_adaptive.core import random
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import step_sizes
from tfp_adaptive.core import stochastic_target
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.surrogate import kernel_hamiltonian


def kernel_adaptive_metropolis(
  target_log_prob_fn,
  num_adaptation_steps,
  *,
  surrogate=None,
  noise_scale=0.2,
  step_size=1.0,
  history=None,
  target_is_stochastic=False,
  target_accept_prob=0.23,
):
  """Builds kernel adaptive Metropolis (KAMH): a random walk along the draws.

  The covariance at x is that of the history in a reproducing kernel space, seen
  from x. `tfpa.kernel_hamiltonian` mixes better.

  Args:
    target_log_prob_fn: See `tfpa.kernel_hamiltonian`.
    num_adaptation_steps: Steps that learn; after them the kernel is fixed.
    surrogate: `kernel_subsample(num_points)`.
    noise_scale: gamma, the isotropic part, in inverse units of the state.
    step_size: First s, in squared units of the state, which the adaptation
      moves.
    history: See `tfpa.kernel_hamiltonian`.
    target_is_stochastic: See `tfpa.kernel_hamiltonian`.
    target_accept_prob: Wanted mean acceptance, in (0, 1).

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target is not a function.
    ValueError: If an argument is not allowed.
  """
  proposal = UncalibratedKernelAdaptive(
    target_log_prob_fn,
    surrogate or kernel_subsample(),
    step_size,
    noise_scale,
    target_is_stochastic,
  )
  kernel = tfpa.adaptation.ScoreMatchingAdaptation(
    tfpa.MetropolisHastings(proposal), num_adaptation_steps, history
  )
  return step_sizes.tuned(kernel, num_adaptation_steps, target_accept_prob)


class KernelAdaptiveResults(
  collections.namedtuple(
    'KernelAdaptiveResults',
    [
      'target_log_prob',
      'log_acceptance_correction',
      'surrogate_params',
      'step_size',
      'noise',
      'seed',
    ],
  )
):
  """Results of `UncalibratedKernelAdaptive`.

  Attributes:
    target_log_prob: Target at the proposed state, or its estimate, [chains...].
    log_acceptance_correction: log q(x | y) - log q(y | x), [chains...].
    surrogate_params: Params that chains share: `points` z [n, d], `weights` [n]
      and `bandwidth` sigma, []. Weights are 0 before the first fit.
    step_size: s; [] or [chains..., 1].
    noise: The standard normals of the step, [chains..., event_size].
    seed: [2] int32.
  """

  __slots__ = ()


def _argument(name):
  """Returns the property of an argument of the constructor."""
  return property(lambda self: self._parameters[name])


class UncalibratedKernelAdaptive(kernel_base.Kernel):
  """Proposes y ~ N(x, s^2 (gamma^2 I + M(x) H M(x)^T)), without gradients.

  If draws of the history form a curved shape, proposals follow this shape.
  Before the first fit, the kernel is a random walk of scale s gamma. With a
  bandwidth that is wider than the draws, the kernel is adaptive Metropolis. The
  paper fixes s gamma and tunes the other term. Here s multiplies both.

  One step makes one target call and two factorizations of [d, d], at x and at
  y. The kernel must be wrapped in `MetropolisHastings`.
  """

  is_calibrated = False

  def __init__(
    self,
    target_log_prob_fn,
    surrogate,
    step_size=1.0,
    noise_scale=0.2,
    target_is_stochastic=False,
    name=None,
  ):
    """Builds the kernel; arguments as for `kernel_adaptive_metropolis`.

    A step size may be [chains..., 1], and `name` is the prefix of op names.
    """
    if not callable(target_log_prob_fn):
      raise TypeError(
        '`target_log_prob_fn` must be callable, but got '
        f'{type(target_log_prob_fn).__name__}. Pass a function of the state '
        'that returns one log density per chain.'
      )
    arguments.check_positive(step_size, 'step_size', 1.0, is_array=True)
    # Far from all draws, only the noise moves the chain.
    arguments.check_positive(noise_scale, 'noise_scale', 0.2)
    stochastic_target.check(target_log_prob_fn, target_is_stochastic)
    self._parameters = dict(
      target_log_prob_fn=target_log_prob_fn,
      surrogate=surrogate,
      step_size=step_size,
      noise_scale=noise_scale,
      target_is_stochastic=target_is_stochastic,
      name=name,
    )

  def learned_at(self, results):
    return dict(
      step_size=np.asarray(results.step_size),
      surrogate=kernel_hamiltonian.constant_surrogate(
        self.surrogate, results.surrogate_params
      ),
    )

  target_log_prob_fn = _argument('target_log_prob_fn')
  surrogate = _argument('surrogate')
  step_size = _argument('step_size')
  noise_scale = _argument('noise_scale')
  target_is_stochastic = _argument('target_is_stochastic')

  def cost(self, adapting):
    """Returns the target calls of one step per chain."""
    del adapting
    return interfaces.Cost(target=1)

  def bootstrap_results(self, init_state):
    """Evaluates the target at `init_state`, with an empty history."""
    with tf.name_scope(f'{self.name}_bootstrap'):
      init_state = state_parts.as_tensors(init_state)
      log_prob = self._evaluate(init_state, stochastic_target.bootstrap_seed())
      proposal.check_log_prob(log_prob, init_state)
      flat = state_parts.flatten(init_state, ps.rank(log_prob))
      params = self.surrogate.init(
        state_parts.event_size(flat), flat.dtype, random.sanitize(0)
      )
      return KernelAdaptiveResults(
        target_log_prob=log_prob,
        log_acceptance_correction=tf.zeros_like(log_prob),
        surrogate_params=params,
        step_size=tf.convert_to_tensor(self.step_size, dtype=flat.dtype),
        noise=tf.zeros_like(flat),
        seed=tf.zeros([2], tf.int32),
      )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Draws y; the results have the log density of y and the correction."""
    previous = previous_kernel_results
    params, step_size = previous.surrogate_params, previous.step_size
    num_chain_dims = ps.rank(previous.target_log_prob)
    seed = random.sanitize(seed)
    noise_seed, target_seed = stochastic_target.split_seed(
      seed, self.target_is_stochastic
    )
    x = state_parts.flatten(current_state, num_chain_dims)

    # 1. Draw and move.
    factor_x = self._factor(params, x)
    noise = random.normal(ps.shape(x), x.dtype, noise_seed)
    y = x + step_size * tf.linalg.matvec(factor_x, noise)

    # 2. Evaluate the target at the proposal.
    proposed_state = state_parts.unflatten_like(
      y, current_state, num_chain_dims
    )
    log_prob = self._evaluate(
      proposed_state, target_seed, previous.target_log_prob.shape
    )

    # 3. Correct for the different covariance at y.
    factor_y = self._factor(params, y)
    back = tf.linalg.triangular_solve(
      factor_y, ((x - y) / step_size)[..., tf.newaxis]
    )[..., 0]
    correction = 0.5 * tf.reduce_sum(noise**2 - back**2, axis=-1)
    correction += _log_abs_det(factor_x) - _log_abs_det(factor_y)
    return proposed_state, previous._replace(
      target_log_prob=log_prob,
      log_acceptance_correction=correction,
      noise=noise,
      seed=seed,
    )

  def _evaluate(self, state, seed, shape=None):
    return stochastic_target.evaluate(
      self.target_log_prob_fn, state, seed, self.target_is_stochastic, shape
    )

  def _factor(self, params, x):
    """Returns the Cholesky factor of gamma^2 I + M H M^T, [chains..., d, d]."""
    identity = tf.linalg.eye(ps.shape(x)[-1], dtype=x.dtype)
    return tf.linalg.cholesky(
      self.noise_scale**2 * identity + _local_covariance(params, x)
    )


def _local_covariance(params, x):
  """Returns M H M^T at x, [chains..., d, d].

  Only the m rows with draws count. With different weights, H is
  m (diag(w) - w w^T). With equal weights, H is I - 1 1^T / m.
  """
  weights = params.weights
  offsets = params.points - x[..., tf.newaxis, :]
  kernels = tf.exp(
    -tf.reduce_sum(offsets**2, axis=-1, keepdims=True) / params.bandwidth
  )
  columns = 4.0 / params.bandwidth * kernels * offsets  # M^T, [..., n, d].
  mean = tf.linalg.matvec(columns, weights, transpose_a=True)
  num_draws = tf.math.count_nonzero(weights > 0.0, dtype=x.dtype)
  rows = tf.sqrt(num_draws * weights)[:, tf.newaxis] * (
    columns - mean[..., tf.newaxis, :]
  )
  return tf.linalg.matmul(rows, rows, transpose_a=True)


def _log_abs_det(factor):
  return tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)
