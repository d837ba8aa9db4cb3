"""Kernel for a latent Gaussian field and the hyperparameters of its prior.

  pi(x, theta) = exp f(x) N(x | m(theta), C(theta)) p(theta)

Source: Titsias and Papaspiliopoulos (2018), Auxiliary gradient-based sampling
algorithms, section 4, https://arxiv.org/abs/1610.09641.
"""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import random
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.latent import hyperparameter_moves

_MOST_FAILURES = 0.01  # A larger share of failed priors gets a warning.


class LatentHyperparameterResults(NamedTuple):
  """Results of `LatentGaussianHyperparameters`."""

  # Results of the last update of the field; the innermost `target_log_prob` is
  # the log-likelihood f.
  inner_results: Any
  prior_params: Any  # Mean and decomposition of the prior at theta, per chain.
  hyper_log_prob: tf.Tensor  # log p of unconstrained theta, [chains...].
  hyper_step_size: tf.Tensor  # kappa, [].
  # L, lower triangular, shared by the chains, [num_hyper, num_hyper]. The step
  # of unconstrained theta is kappa L e with e standard normal.
  hyper_factor: tf.Tensor
  # Log ratio of the last move of theta, [chains...], and whether it was
  # accepted, [chains...] bool.
  hyper_log_accept_ratio: tf.Tensor
  hyper_is_accepted: tf.Tensor
  # Whether the last move was rejected because the prior at the proposed theta
  # had no finite density, [chains...] bool.
  prior_has_failed: tf.Tensor
  seed: tf.Tensor  # [2] int32.


class LatentGaussianHyperparameters(kernel_base.Kernel):
  """Updates the field at fixed theta, then proposes a new theta.

  The state is a pair `(x, theta)`: the field [chains..., event...] and the
  unconstrained hyperparameters, a structure of Tensors [chains..., ...]. The
  prior is decomposed once in a step, at the proposed theta.
  """

  is_calibrated = True
  has_prior_apart = True

  def __init__(
    self,
    log_likelihood_fn,
    prior_fn,
    hyperprior,
    make_latent_kernel_fn,
    joint=True,
    num_latent_updates=1,
    delta=0.1,
    hyper_step_size=0.1,
    hyper_factor=None,
    bijector=None,
    latent_uses_gradient=True,
    name=None,
  ):
    """Builds the kernel; no Tensor is created here.

    Args:
      log_likelihood_fn: f, called as TFP calls targets; returns [chains...].
      prior_fn: theta -> `interfaces.GaussianPrior` with params per chain.
        Called as TFP calls functions of a structure: `fn(theta)`,
        `fn(*parts)`, `fn(**parts)`.
      hyperprior: A `tfp.distributions.Distribution` of theta, or a function of
        unconstrained theta that returns its log density, [chains...].
      make_latent_kernel_fn: (log_likelihood_fn, prior, delta) -> kernel of
        the field, for example `tfpa.MetropolisHastings` around a proposal for
        latent models.
      joint: Whether theta and x move together; else theta alone.
      num_latent_updates: Updates of the field in a step, a positive int.
      delta: delta of the field's kernel, [].
      hyper_step_size: kappa, the scale of the step of unconstrained theta, [].
      hyper_factor: L, the shape of the step, lower triangular,
        [num_hyper, num_hyper], in the order of the flattened structure; by
        default the identity.
      bijector: Unconstrained theta -> theta; by default the bijector of
        `hyperprior`, or the identity if `hyperprior` is a function.
      latent_uses_gradient: Whether an update of the field costs a gradient.
      name: Prefix of the names of bootstrap ops.
    """
    _check_functions(log_likelihood_fn, prior_fn, hyperprior)
    arguments.check_count(num_latent_updates, 'num_latent_updates', 1)
    arguments.check_positive(delta, 'delta', 0.1)
    arguments.check_positive(hyper_step_size, 'hyper_step_size', 0.1)
    self._keep(locals())

  def learned_at(self, results):
    accepted = results.inner_results.accepted_results
    return dict(
      delta=np.asarray(accepted.step_size),
      hyper_step_size=np.asarray(results.hyper_step_size),
      hyper_factor=np.asarray(results.hyper_factor),
    )

  def scalars_at(self, results):
    return dict(
      step_size=results.inner_results.accepted_results.step_size,
      hyper_step_size=results.hyper_step_size,
    )

  def cost(self, adapting):
    del adapting
    count, is_joint = (
      self._parameters[name] for name in ('num_latent_updates', 'joint')
    )
    num_gradients = count * self._parameters['latent_uses_gradient'] + is_joint
    return interfaces.Cost(target=count + is_joint, gradient=num_gradients)

  def constrain(self, theta):
    """Returns the hyperparameters as arguments of `prior_fn`."""
    bijector = self._bijector()
    return theta if bijector is None else bijector.forward(theta)

  def bootstrap_results(self, init_state):
    """Decomposes the prior at the first theta and evaluates f."""
    with tf.name_scope(f'{self.name}_bootstrap'):
      x, theta = state_parts.as_tensors(init_state)
      prior = self._prior(theta)
      inner = self._latent_kernel(prior).bootstrap_results(x)
      if not self._parameters['joint']:
        _check_invertible(prior, inner.accepted_results.coordinates)
      log_likelihood = inner.accepted_results.target_log_prob
      hyper_log_prob = self._hyper_log_prob(theta)
      _check_chains(log_likelihood, hyper_log_prob)
      return LatentHyperparameterResults(
        inner_results=inner,
        prior_params=prior.params,
        hyper_log_prob=hyper_log_prob,
        hyper_step_size=tf.convert_to_tensor(
          self._parameters['hyper_step_size'], dtype=hyper_log_prob.dtype
        ),
        hyper_factor=self._init_factor(theta, hyper_log_prob),
        hyper_log_accept_ratio=tf.zeros_like(hyper_log_prob),
        hyper_is_accepted=tf.ones_like(hyper_log_prob, tf.bool),
        prior_has_failed=tf.zeros_like(hyper_log_prob, tf.bool),
        seed=tf.zeros([2], tf.int32),
      )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Updates the field, then theta."""
    previous = previous_kernel_results
    seed = random.sanitize(seed)
    latent_seed, theta_seed, move_seed, accept_seed = random.split(seed, 4)
    x, theta = current_state

    # 1. Propose theta' and decompose its prior.
    proposed_theta = _step_theta(theta, previous, theta_seed)
    proposed_prior = self._prior(proposed_theta)
    prior = proposed_prior._replace(params=previous.prior_params)

    # 2. Update the field at theta.
    x, inner = self._update_field(prior, x, previous.inner_results, latent_seed)

    # 3. Move to theta', and accept or reject.
    latent = inner.accepted_results
    proposed_log_prob = self._hyper_log_prob(proposed_theta)
    move = (
      hyperparameter_moves.joint_move
      if self._parameters['joint']
      else hyperparameter_moves.gibbs_move
    )
    log_ratio, landing = move(
      prior, proposed_prior, self._evaluator(x), x, latent, move_seed
    )
    log_ratio = tfp_private.safe_sum(
      [log_ratio, proposed_log_prob, -previous.hyper_log_prob]
    )
    log_uniform = random.log_uniform(
      ps.shape(log_ratio), log_ratio.dtype, accept_seed
    )
    is_accepted = log_uniform < log_ratio

    # 4. Choose by chain.
    def choose(proposed, current):
      return tf.nest.map_structure(
        lambda p, c: _where(is_accepted, p, c), proposed, current
      )

    accepted = latent._replace(
      target_log_prob=choose(landing.log_likelihood, latent.target_log_prob),
      coordinates=choose(landing.coordinates, latent.coordinates),
      grads_coordinates=choose(
        landing.grads_coordinates, latent.grads_coordinates
      ),
    )
    state = choose((landing.state, proposed_theta), (x, theta))
    return tf.nest.pack_sequence_as(
      current_state, tf.nest.flatten(state)
    ), previous._replace(
      inner_results=inner._replace(accepted_results=accepted),
      prior_params=choose(proposed_prior.params, previous.prior_params),
      hyper_log_prob=choose(proposed_log_prob, previous.hyper_log_prob),
      hyper_log_accept_ratio=log_ratio,
      hyper_is_accepted=is_accepted,
      prior_has_failed=landing.has_failed,
      seed=seed,
    )

  def warnings_after(self, results, trace):
    failed = trace.get('prior_has_failed')
    share = 0.0 if failed is None or not failed.size else float(np.mean(failed))
    if share > _MOST_FAILURES:
      dtype = results.hyper_log_prob.dtype.name
      yield (
        f'{share:.1%} of the proposed hyperparameters were rejected because '
        f'their prior has no finite density in {dtype}: the covariance is '
        'singular to rounding, or overflows. The posterior of the '
        'hyperparameters may be cut off there. Use float64, or build the prior '
        'with more `jitter`.'
      )

  def _update_field(self, prior, x, inner, seed):
    """Runs the field's kernel at fixed theta."""
    kernel = self._latent_kernel(prior)
    count = self._parameters['num_latent_updates']
    if count == 1:
      return kernel.one_step(x, inner, seed=seed)
    _, x, inner = tf.while_loop(
      lambda i, *_: i < count,
      lambda i, x, inner: (
        i + 1,
        *kernel.one_step(x, inner, seed=random.fold_in(seed, i)),
      ),
      (0, x, inner),
      maximum_iterations=count,
    )
    return x, inner

  def _evaluator(self, x):
    """Returns (prior, coordinates) -> (field, f, gradient of f)."""

    def evaluate(prior, coordinates):
      proposal = self._latent_kernel(prior).inner_kernel
      return proposal.evaluate_at(coordinates, x)

    return evaluate

  def _init_factor(self, theta, hyper_log_prob):
    num_hyper = sum(state_parts.part_sizes(theta, ps.rank(hyper_log_prob)))
    dtype = hyper_log_prob.dtype
    factor = self._parameters['hyper_factor']
    if factor is None:
      return tf.eye(num_hyper, dtype=dtype)
    factor = tf.convert_to_tensor(factor, dtype=dtype)
    if factor.shape != (num_hyper, num_hyper):
      raise ValueError(
        f'`hyper_factor` must be a lower triangular [{num_hyper}, {num_hyper}] '
        f'matrix, as theta has {num_hyper} numbers, but has shape '
        f'{factor.shape}.'
      )
    return factor

  def _latent_kernel(self, prior):
    return self._parameters['make_latent_kernel_fn'](
      self._parameters['log_likelihood_fn'],
      prior,
      self._parameters['delta'],
    )

  def _prior(self, theta):
    prior = tfp_private.call_fn(
      self._parameters['prior_fn'], self.constrain(theta)
    )
    if not isinstance(prior, interfaces.GaussianPrior):
      raise TypeError(
        '`prior_fn` must return an `interfaces.GaussianPrior`, but returned '
        f'{type(prior).__name__}. Write for example `lambda amplitude: '
        'tfpa.gaussian_priors.cholesky(kernel=..., index_points=...)`.'
      )
    return prior

  def _bijector(self):
    """Returns the map from unconstrained theta; None for the identity."""
    bijector = self._parameters['bijector']
    if bijector is not None:
      return bijector
    hyperprior = self._parameters['hyperprior']
    if not isinstance(hyperprior, tfp.distributions.Distribution):
      return None
    return hyperprior.experimental_default_event_space_bijector()

  def _hyper_log_prob(self, theta):
    """Returns log p of unconstrained theta, with the Jacobian, [chains...]."""
    hyperprior = self._parameters['hyperprior']
    if not isinstance(hyperprior, tfp.distributions.Distribution):
      return tfp_private.call_fn(hyperprior, theta)
    return tfp.distributions.TransformedDistribution(
      hyperprior, tfp.bijectors.Invert(self._bijector())
    ).log_prob(theta)


def _step_theta(theta, results, seed):
  """Draws theta' = theta + kappa L e."""
  num_chain_dims = ps.rank(results.hyper_log_prob)
  flat = state_parts.flatten(theta, num_chain_dims)
  noise = random.normal(ps.shape(flat), flat.dtype, seed)
  step = tf.linalg.matvec(results.hyper_factor, noise)
  return state_parts.unflatten_like(
    flat + results.hyper_step_size * step, theta, num_chain_dims
  )


def _where(is_accepted, proposed, current):
  """Selects by chain; a Tensor without chain dimensions stays as it is."""
  num_chain_dims = is_accepted.shape.rank
  if not is_accepted.shape.is_compatible_with(proposed.shape[:num_chain_dims]):
    return current
  extra = proposed.shape.rank - is_accepted.shape.rank
  mask = tf.reshape(
    is_accepted, ps.concat([ps.shape(is_accepted), [1] * extra], axis=0)
  )
  return tf.where(mask, proposed, current)


def _check_functions(log_likelihood_fn, prior_fn, hyperprior):
  for name, function in (
    ('log_likelihood_fn', log_likelihood_fn),
    ('prior_fn', prior_fn),
  ):
    if not callable(function):
      raise TypeError(
        f'`{name}` must be callable, but got {type(function).__name__}.'
      )
  is_law = isinstance(hyperprior, tfp.distributions.Distribution)
  if not is_law and not callable(hyperprior):
    raise TypeError(
      '`hyperprior` must be a `tfp.distributions.Distribution` of the '
      'hyperparameters, or a function of unconstrained ones that returns their '
      f'log density, but got {type(hyperprior).__name__}.'
    )


def _check_invertible(prior, coordinates):
  """Refuses a singular prior, where its values are known."""
  if tf.inside_function():
    return
  # The density at the mean is not finite only if the prior is the reason.
  log_prob = hyperparameter_moves.log_prob(prior, tf.zeros_like(coordinates))
  if not np.all(np.isfinite(log_prob)):
    raise ValueError(
      'With `joint=False`, theta moves by the density of the prior, but the '
      f'prior {prior.name!r} is singular to working precision at the start. '
      'Write `joint=True`, build the prior with `jitter`, or take '
      '`tfpa.gaussian_priors.cholesky`.'
    )


def _check_chains(log_likelihood, hyper_log_prob):
  if hyper_log_prob.shape != log_likelihood.shape:
    raise ValueError(
      '`log_likelihood_fn` and `hyperprior.log_prob` must both return one '
      f'number per chain, but have shapes {log_likelihood.shape} and '
      f'{hyper_log_prob.shape}. The state is `(x, theta)` with x [chains..., '
      'event...] and every part of theta [chains..., ...].'
    )
