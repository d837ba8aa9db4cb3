"""Langevin proposal preconditioned by the prior (pMALA) for latent fields.

  y ~ N((1 - delta / 2) x + delta / 2 C g(x), delta C)

Coordinates are centered at the mean of the prior.

Source: Titsias and Papaspiliopoulos (2018), section 3.2,
https://arxiv.org/abs/1610.09641.
"""

import tensorflow as tf

from tfp_adaptive.latent import latent_proposal


def prior_preconditioned_langevin(
  log_likelihood_fn,
  num_adaptation_steps,
  *,
  prior,
  target_accept_prob=0.55,
  delta=0.01,
  short_step_share=0.2,
):
  """Builds MALA preconditioned by the prior covariance (pMALA).

  Args:
    log_likelihood_fn: See `tfpa.marginal_gradient`.
    prior: See `tfpa.marginal_gradient`.
    num_adaptation_steps: Steps that tune delta, which is fixed afterwards.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    delta: First value, without unit.
    short_step_share: See `tfpa.marginal_gradient`.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    ValueError: If an argument is not allowed.
  """
  return latent_proposal.adapted(
    UncalibratedPriorLangevin(log_likelihood_fn, prior, delta),
    num_adaptation_steps,
    target_accept_prob,
    short_step_share,
  )


class UncalibratedPriorLangevin(latent_proposal.UncalibratedLatentProposal):
  """Proposes by an Euler step of the Langevin diffusion with covariance C.

  Unlike pCNL, this proposal does not leave the prior invariant if g = 0. Its
  acceptance falls with the number of coordinates. delta has no unit. The
  proposal must be wrapped in `MetropolisHastings`.
  """

  def _functions(self, prior, variance):
    del variance
    return prior.covariance(prior.params)

  def _propose(self, functions, delta, current, seed):
    noise = latent_proposal.noise_like(current.state, seed)
    mean = (1.0 - 0.5 * delta) * current.state
    mean += 0.5 * delta * functions.multiply(current.grads)
    return mean + tf.sqrt(delta) * functions.draw(noise), ()

  def _correction(self, functions, delta, drawn, current, proposed):
    """Returns prior terms, and k(x, y) - k(y, x) by the pseudo-inverse of C."""
    del drawn
    x, y = current.state, proposed.state
    change = proposed.grads - current.grads
    total = proposed.grads + current.grads
    shrink = 1.0 - 0.5 * delta
    terms = (
      0.5 * (x - shrink * y) * proposed.grads
      - 0.5 * (y - shrink * x) * current.grads
      + 0.125 * delta * (x - y) * functions.solve(x + y)
      - 0.125 * delta * total * functions.multiply(change)
    )
    return tf.reduce_sum(terms, axis=-1)
