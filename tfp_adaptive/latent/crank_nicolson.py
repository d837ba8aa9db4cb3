"""Crank-Nicolson proposals, with and without gradients, for latent fields.

In coordinates centered at the mean,

  pCNL  y ~ N(2 / (2 + delta) x + delta / (2 + delta) C g(x),
              delta (delta + 4) / (2 + delta)^2 C)
  CNL   y = R (2 x + delta g(x) + sqrt(2 delta) e) - x,  e ~ N(0, I)

Here C is the prior's covariance, and R = C (C + delta / 2 I)^-1. pCN and CN are
pCNL and CNL without the gradient g, and leave N(0, C) invariant.

Sources: Cotter, Roberts, Stuart and White (2013), MCMC methods for functions;
Titsias and Papaspiliopoulos (2018), section 3.2,
https://arxiv.org/abs/1610.09641. The second paper has two misprints: C instead
of C^2 in the covariance of CNL, and k of pCNL (`_correction`) without y . g(y).
"""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.interfaces import types
from tfp_adaptive.latent import latent_proposal


@arguments.by_keyword('crank_nicolson(log_likelihood_fn, 500, prior=prior)')
def crank_nicolson(
  log_likelihood_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  prior: interfaces.GaussianPrior,
  langevin: bool = False,
  preconditioned: bool = True,
  target_accept_prob: float | None = None,
  delta: float = 0.1,
  short_step_share: float = 0.2,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds a Crank-Nicolson sampler (pCN, pCNL, CNL).

  Args:
    log_likelihood_fn: See `marginal_gradient`; pCN needs no gradient.
    num_adaptation_steps: Steps that tune delta; then delta is fixed.
    prior: See `marginal_gradient`.
    langevin: Whether to use the gradient of the log-likelihood.
    preconditioned: Whether the noise has the prior's covariance C. If not (CN
      and CNL), C must have an inverse.
    target_accept_prob: Wanted mean acceptance, in (0, 1); 0.55 with gradient,
      0.25 without, by default.
    delta: First value; dimensionless if preconditioned, else a variance.
    short_step_share: See `marginal_gradient`.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the likelihood or the prior has the wrong type.
    ValueError: If a number is out of its range, or the prior does not suit the
      sampler.

  References:
    Cotter, Roberts, Stuart and White (2013); Titsias and Papaspiliopoulos
    (2018), section 3.2, https://arxiv.org/abs/1610.09641.

  Example:
    prior = tfpa.gaussian_priors.random_walk(0.1, 50, initial_scale=1.0)
    log_likelihood = lambda x: tf.reduce_sum(2.0 * x - tf.exp(x), axis=-1)
    kernel = tfpa.crank_nicolson(log_likelihood, 500, prior=prior)
    result = tfpa.sample(kernel, tf.zeros([4, 50]), num_results=500)
  """
  if target_accept_prob is None:
    target_accept_prob = 0.55 if langevin else 0.25
  return latent_proposal.adapted(
    UncalibratedCrankNicolson(
      log_likelihood_fn, prior, delta, langevin, preconditioned, name
    ),
    num_adaptation_steps,
    target_accept_prob,
    short_step_share,
  )


class UncalibratedCrankNicolson(latent_proposal.UncalibratedLatentProposal):
  """Proposes by a Crank-Nicolson step of the Langevin diffusion.

  delta is a variance in squared units of the state for CN and CNL, and
  dimensionless for pCN and pCNL. Put `MetropolisHastings` around this kernel.
  """

  def __init__(
    self,
    log_likelihood_fn,
    prior,
    delta=0.1,
    langevin=False,
    preconditioned=True,
    name=None,
  ):
    """Builds the kernel; no Tensor is created here.

    Args:
      log_likelihood_fn: f, called as TFP calls targets; returns [chains...].
      prior: An `interfaces.GaussianPrior`, from `tfpa.gaussian_priors`.
      delta: [].
      langevin: Whether to use the gradient of the log-likelihood.
      preconditioned: Whether the noise has the prior's covariance C. If not, C
        must have an inverse.
      name: Prefix of the names of bootstrap ops.
    """
    super().__init__(log_likelihood_fn, prior, delta, name)
    if not preconditioned and prior.is_singular:
      raise ValueError(
        f'CN and CNL need the inverse of C, but the prior {prior.name!r} is '
        'singular to working precision. Use `preconditioned=True` (pCN, pCNL), '
        'or build the prior with `jitter`.'
      )
    self._parameters['langevin'] = langevin
    self._parameters['preconditioned'] = preconditioned

  @property
  def uses_gradient(self):
    return self._parameters['langevin']

  def _functions(self, prior, variance):
    functions = prior.covariance(prior.params)
    if self._parameters['preconditioned']:
      return functions, None
    return functions, prior.smoother(prior.params, variance)

  def _propose(self, functions, delta, current, seed):
    covariance, smoother = functions
    noise = latent_proposal.noise_like(current.state, seed)
    if smoother is not None:
      moved = 2.0 * current.state + tf.sqrt(2.0 * delta) * noise
      if self.uses_gradient:
        moved += delta * current.grads
      return smoother.gain(moved) - current.state, ()
    spread = tf.sqrt(delta * (delta + 4.0)) / (2.0 + delta)
    y = 2.0 / (2.0 + delta) * current.state + spread * covariance.draw(noise)
    if self.uses_gradient:
      y += delta / (2.0 + delta) * covariance.multiply(current.grads)
    return y, ()

  def _correction(self, functions, delta, drawn, current, proposed):
    """Returns k(x, y) - k(y, x), which is 0 without gradient.

    With g = g(y),

      CNL   k = 1/2 (x - y) . g + delta / 4 ((x + y) . C^-1 g - g . g)
      pCNL  k = ((2 + delta) x . g - 2 y . g - delta / 2 g . C g) / (4 + delta)
    """
    del drawn
    if not self.uses_gradient:
      return tf.zeros_like(current.state[..., 0])
    covariance, smoother = functions
    x, y = current.state, proposed.state
    change = proposed.grads - current.grads
    total = proposed.grads + current.grads
    if smoother is not None:
      terms = 0.5 * (x - y) * total + 0.25 * delta * (
        (x + y) * covariance.solve(change) - total * change
      )
    else:
      terms = (
        (2.0 + delta) * (x * proposed.grads - y * current.grads)
        - 2.0 * (y * proposed.grads - x * current.grads)
        - 0.5 * delta * total * covariance.multiply(change)
      ) / (4.0 + delta)
    return tf.reduce_sum(terms, axis=-1)
