"""Auxiliary gradient proposals (aGrad-z, aGrad-u) for latent Gaussian models.

In coordinates centered at the mean,

  u ~ N(x, t I),  z = u + t g(x),  y ~ N(R z, t R).

Both proposals draw the same y. They differ in the variable that the acceptance
ratio is conditioned on, z or u.

Source: Titsias and Papaspiliopoulos (2018), Auxiliary gradient-based sampling
algorithms, section 3.3, https://arxiv.org/abs/1610.09641.
"""

from typing import Literal

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import random
from tfp_adaptive.interfaces import types
from tfp_adaptive.latent import latent_proposal


@arguments.by_keyword('auxiliary_gradient(log_likelihood_fn, 500, prior=prior)')
def auxiliary_gradient(
  log_likelihood_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  prior: interfaces.GaussianPrior,
  auxiliary: Literal['z', 'u'] = 'z',
  target_accept_prob: float = 0.55,
  delta: float = 0.1,
  short_step_share: float = 0.2,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds an auxiliary gradient sampler (aGrad-z, aGrad-u).

  Args:
    log_likelihood_fn: See `marginal_gradient`.
    num_adaptation_steps: Steps that tune delta; then delta is fixed.
    prior: See `marginal_gradient`.
    auxiliary: The field that the ratio is conditioned on: `'u'`, x with noise,
      or `'z'`, u moved along the gradient.
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
    Titsias and Papaspiliopoulos (2018), section 3.3,
    https://arxiv.org/abs/1610.09641.

  Example:
    prior = tfpa.gaussian_priors.random_walk(0.1, 50, initial_scale=1.0)
    log_likelihood = lambda x: tf.reduce_sum(2.0 * x - tf.exp(x), axis=-1)
    kernel = tfpa.auxiliary_gradient(
      log_likelihood, 500, prior=prior, auxiliary='u'
    )
    result = tfpa.sample(kernel, tf.zeros([4, 50]), num_results=500)
  """
  return latent_proposal.adapted(
    UncalibratedAuxiliaryGradient(
      log_likelihood_fn, prior, delta, auxiliary, name
    ),
    num_adaptation_steps,
    target_accept_prob,
    short_step_share,
  )


class UncalibratedAuxiliaryGradient(latent_proposal.UncalibratedLatentProposal):
  """Proposes from the posterior of the field given z, a moved copy of x.

  z is a noisy copy of x, moved along the gradient. Mixing is better with `'u'`.
  With `'z'`, y is independent of x given z, which joint moves with
  hyperparameters need. Put `MetropolisHastings` around this kernel.
  """

  def __init__(
    self, log_likelihood_fn, prior, delta=0.1, auxiliary='z', name=None
  ):
    """Builds the kernel; no Tensor is created here.

    Args:
      log_likelihood_fn: f, called as TFP calls targets; returns [chains...].
      prior: An `interfaces.GaussianPrior`, from `tfpa.gaussian_priors`.
      delta: [], a variance in squared units of the state.
      auxiliary: `'z'` or `'u'`, the variable that the ratio is conditioned on.
      name: Prefix of the names of bootstrap ops.
    """
    super().__init__(log_likelihood_fn, prior, delta, name)
    if auxiliary not in ('z', 'u'):
      raise ValueError(
        f"`auxiliary` must be 'z' or 'u', but got {auxiliary!r}."
      )
    self._parameters['auxiliary'] = auxiliary

  def _propose(self, functions, delta, current, seed):
    first, second = random.split(seed, 2)
    noise = latent_proposal.noise_like(current.state, first)
    u = current.state + tf.sqrt(0.5 * delta) * noise
    z = u + 0.5 * delta * current.grads
    y = functions.draw(z, latent_proposal.noise_like(current.state, second))
    return y, (u, z)

  def _correction(self, functions, delta, drawn, current, proposed):
    """Returns q(z, y) - q(z, x), or j(x, y, u) - j(y, x, u).

      q(z, y) = (z - y - t / 2 g(y)) . g(y), in the paper g(z, y)
      j(x, y, u) = (x - R (u + t / 2 g(y))) . g(y)

    R is linear and symmetric, so that only R (g(y) - g(x)) is needed.
    """
    u, z = drawn
    if self._parameters['auxiliary'] == 'z':

      def fit(point):
        return (z - point.state - 0.25 * delta * point.grads) * point.grads

      return tf.reduce_sum(fit(proposed) - fit(current), axis=-1)
    change = proposed.grads - current.grads
    total = proposed.grads + current.grads
    terms = (
      current.state * proposed.grads
      - proposed.state * current.grads
      - (u + 0.25 * delta * total) * functions.gain(change)
    )
    return tf.reduce_sum(terms, axis=-1)
