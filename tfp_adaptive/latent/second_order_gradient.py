"""Second-order marginal proposal for factorizing likelihoods, Markov priors.

g and H are the gradient and the diagonal Hessian of f at x, clipped to H <= 0.
In coordinates centered at the mean,

  y ~ N(A b / t, A + A^2 / t)
  A = (C^-1 + I / t - H)^-1,   b = x + t (g - H x)

This is the posterior under the log-likelihood expanded to second order at x,
with the auxiliary variable integrated out. With the banded precision P = C^-1,
M = t A^-1 = t (P - H) + I is banded too. The mean is M^-1 b, and the covariance
t M^-1 (M + I) M^-1.

Source: Titsias and Papaspiliopoulos (2018), Auxiliary gradient-based sampling
algorithms, discussion, https://arxiv.org/abs/1610.09641. The sign of H x in
print contradicts their expansion.
"""

import math
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import xla_gradients
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.interfaces import types
from tfp_adaptive.latent import latent_proposal
from tfp_adaptive.latent.priors import markov_prior
from tfp_adaptive.linalg import banded_cholesky as cholesky


class Expansion(NamedTuple):
  """Gradient and diagonal Hessian of f, not clipped, [chains..., d] each."""

  gradient: tf.Tensor
  curvature: tf.Tensor


@arguments.by_keyword(
  'second_order_gradient(log_likelihood_fn, 500, prior=prior)'
)
def second_order_gradient(
  log_likelihood_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  prior: interfaces.GaussianPrior,
  target_accept_prob: float = 0.55,
  delta: float = 0.1,
  short_step_share: float = 0.2,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds the second-order marginal sampler, for likelihoods that factorize.

  It uses the curvature of the likelihood, so that delta can be large even if
  the data are informative. With a quadratic concave log-likelihood every
  proposal is accepted, at any delta.

  Args:
    log_likelihood_fn: See `marginal_gradient`; of the form sum_i f_i(x_i),
      twice differentiable. Where f_i is convex its curvature is taken as 0.
    num_adaptation_steps: Steps that tune delta; then delta is fixed.
    prior: A prior with banded precision: `tfpa.gaussian_priors.markov`,
      `autoregression`, `random_walk` or `state_space`.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    delta: First value, a variance in squared units of the state.
    short_step_share: See `marginal_gradient`.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the likelihood or the prior has the wrong type.
    ValueError: If a number is out of its range, or the prior does not suit the
      sampler.

  References:
    Titsias and Papaspiliopoulos (2018), discussion,
    https://arxiv.org/abs/1610.09641.

  Example:
    prior = tfpa.gaussian_priors.random_walk(0.1, 50, initial_scale=1.0)
    log_likelihood = lambda x: tf.reduce_sum(2.0 * x - tf.exp(x), axis=-1)
    kernel = tfpa.second_order_gradient(log_likelihood, 500, prior=prior)
    result = tfpa.sample(kernel, tf.zeros([4, 50]), num_results=500)
  """
  return latent_proposal.adapted(
    UncalibratedSecondOrderGradient(log_likelihood_fn, prior, delta, name),
    num_adaptation_steps,
    target_accept_prob,
    short_step_share,
  )


class UncalibratedSecondOrderGradient(
  latent_proposal.UncalibratedLatentProposal
):
  """Proposes from the posterior under f expanded to second order at x.

  The likelihood should factorize, f(x) = sum_i f_i(x_i). Its Hessian is then
  diagonal, and costs one product with a vector of ones. Otherwise the row sums
  of the Hessian are used. The sampler stays exact, but its proposals are worse.
  Where f_i is convex its curvature is taken as 0, as in
  `UncalibratedMarginalGradient`, so that A stays positive definite.

  Every chain has its own A, and each state needs the factors of M and M + I, in
  O(d). `grads_coordinates` of the results is an `Expansion`. Put
  `MetropolisHastings` around this kernel.
  """

  def __init__(
    self,
    log_likelihood_fn,
    prior,
    delta=0.1,
    name=None,
  ):
    """Builds the kernel; no Tensor is created here.

    Args:
      log_likelihood_fn: f, twice differentiable, called as TFP calls targets;
        returns [chains...].
      prior: A prior with banded precision: `tfpa.gaussian_priors.markov`,
        `autoregression`, `random_walk` or `state_space`.
      delta: [], a variance in squared units of the state.
      name: Prefix of the names of bootstrap ops.

    Raises:
      TypeError: If the prior has no banded precision.
    """
    super().__init__(log_likelihood_fn, prior, delta, name)
    is_markov = isinstance(prior.params, markov_prior.MarkovParams)
    # A block of copies has the bands of one copy.
    if not is_markov or (
      prior.params.bands[0].shape[-1] != math.prod(prior.event_shape)
    ):
      raise TypeError(
        f'The second-order proposal needs a prior with banded precision, but '
        f'{prior.name!r} has none. Use `tfpa.gaussian_priors.markov`, '
        '`autoregression`, `random_walk` or `state_space`, or '
        '`tfpa.marginal_gradient`, which takes any prior.'
      )

  def cost(self, adapting):
    del adapting
    return interfaces.Cost(target=1, gradient=1, hessian_vector=1)

  def _evaluate(self, state, shape=None):
    """Returns f, [chains...], and its `Expansion`."""
    del shape
    xla_gradients.register()
    parts = tf.nest.flatten(state)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(parts)
      log_likelihood, grads = state_parts.value_and_gradient(
        self.log_likelihood_fn, tf.nest.pack_sequence_as(state, parts)
      )
      total = tf.add_n([tf.reduce_sum(g) for g in tf.nest.flatten(grads)])
    curvature = tape.gradient(
      total, parts, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    num_chain_dims = ps.rank(log_likelihood)
    return log_likelihood, Expansion(
      state_parts.flatten(grads, num_chain_dims),
      state_parts.flatten(curvature, num_chain_dims),
    )

  def _functions(self, prior, variance):
    """Returns the function from a point to the Gaussian of its proposal."""

    def gaussian(point):
      curvature = tf.minimum(point.grads.curvature, 0.0)
      noisy, wider = markov_prior.noisy_factors(
        prior.params.bands, variance, -curvature
      )
      bands = prior.params.bands
      diag = 1.0 + variance * (bands[0] - curvature)
      matrix = (diag, *(variance * band for band in bands[1:]))
      pulled = point.state + variance * (
        point.grads.gradient - curvature * point.state
      )
      return noisy, wider, matrix, pulled

    return gaussian

  def _propose(self, functions, delta, current, seed):
    noise = latent_proposal.noise_like(current.state, seed)
    noisy, wider, _, pulled = gaussian = functions(current)
    spread = tf.sqrt(0.5 * delta)
    pushed = cholesky.multiply_factor(wider, noise, adjoint=True)
    y = cholesky.solve(noisy, pulled + spread * pushed)
    return y, (gaussian, noise)

  def _correction(self, functions, delta, drawn, current, proposed):
    """Returns log N(y | 0, C) - log N(x | 0, C) + log q(x | y) - log q(y | x).

    The exponent of q(y | x) follows from the drawn noise. The exponent of
    q(x | y) follows from the whitened residual M x - b at y.
    """
    here, noise = drawn
    there = noisy, wider, matrix, pulled = functions(proposed)
    residual = cholesky.solve_factor(
      wider,
      cholesky.multiply(matrix, current.state) - pulled,
      adjoint=True,
    )
    log_det = lambda g: g[0].log_det - 0.5 * g[1].log_det
    square = lambda v: tf.reduce_sum(v**2, axis=-1)
    params = self.prior.params
    energy = lambda s: square(cholesky.multiply_factor(params.factor, s))
    return (
      0.5 * (energy(current.state) - energy(proposed.state))
      + 0.5 * (square(noise) - 2.0 / delta * square(residual))
      + log_det(there)
      - log_det(here)
    )
