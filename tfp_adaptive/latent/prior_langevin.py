"""Langevin proposal preconditioned by the prior (pMALA) for latent fields.

  y ~ N((1 - delta / 2) x + delta / 2 C g(x), delta C)

in coordinates centred at the mean. Source: Titsias and Papaspiliopoulos (2018),
section 3.2, https://arxiv.org/abs/1610.09641.
"""

import tensorflow as tf

from tfp_adaptive.latent import latent_proposal

__all__ = ['UncalibratedPriorLangevin']


class UncalibratedPriorLangevin(latent_proposal.UncalibratedLatentProposal):
  """Proposes by an Euler step of the Langevin diffusion with covariance C.

  Unlike pCNL it does not leave the prior alone where g = 0, and its acceptance
  falls with the number of coordinates. delta has no unit. It needs
  `MetropolisHastings` around it.
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
    """Prior, and k(x, y) - k(y, x) with the pseudo-inverse of C."""
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
