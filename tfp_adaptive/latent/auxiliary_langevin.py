"""Auxiliary MALA: the auxiliary construction without a Gaussian prior.

  u ~ N(x, t I),  z = u + t g(x),  y ~ N(z, t I)

The acceptance ratio is conditioned on u or z. MALA integrates u out. Compare
both samplers to see what the auxiliary variable costs.

Source: Titsias and Papaspiliopoulos (2018), section 2.2,
https://arxiv.org/abs/1610.09641.
"""

from typing import Literal

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.interfaces import types
from tfp_adaptive.latent import latent_proposal
from tfp_adaptive.latent.auxiliary_gradient import UncalibratedAuxiliaryGradient


@arguments.by_keyword('auxiliary_langevin(target_log_prob_fn, 500)')
def auxiliary_langevin(
  target_log_prob_fn: types.LogProbFn,
  num_adaptation_steps: int,
  *,
  auxiliary: Literal['z', 'u'] = 'u',
  target_accept_prob: float = 0.55,
  delta: float = 0.1,
  short_step_share: float = 0.2,
  name: str | None = None,
) -> tfp.mcmc.TransitionKernel:
  """Builds auxiliary MALA, for comparison with MALA, which mixes better.

  Args:
    target_log_prob_fn: Log density up to a constant, differentiable, called as
      TFP calls it; returns [chains...].
    num_adaptation_steps: Steps that tune delta; then delta is fixed.
    auxiliary: The field that the ratio is conditioned on: `'u'`, x with noise,
      or `'z'`, u moved along the gradient.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    delta: First value, a variance in squared units of the state.
    short_step_share: See `marginal_gradient`.
    name: Prefix of the names of bootstrap ops.

  Returns:
    A `tfp.mcmc.TransitionKernel`.

  Raises:
    TypeError: If the target has the wrong type.
    ValueError: If a number is out of its range.

  References:
    Titsias and Papaspiliopoulos (2018), section 2.2,
    https://arxiv.org/abs/1610.09641.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.auxiliary_langevin(target.log_prob, 500)
    result = tfpa.sample(kernel, tf.zeros([4, 3]), num_results=500)
  """
  return latent_proposal.adapted(
    UncalibratedAuxiliaryLangevin(target_log_prob_fn, delta, auxiliary, name),
    num_adaptation_steps,
    target_accept_prob,
    short_step_share,
  )


class UncalibratedAuxiliaryLangevin(UncalibratedAuxiliaryGradient):
  """Proposes as MALA does, and is accepted less often.

  `log_likelihood_fn` of the base class is the log density of the target here.
  Put `MetropolisHastings` around this kernel.
  """

  def __init__(self, target_log_prob_fn, delta=0.1, auxiliary='u', name=None):
    """Builds the kernel; no Tensor is created here.

    Args:
      target_log_prob_fn: Log density, differentiable, called as TFP calls
        targets; returns [chains...].
      delta: [], a variance in squared units of the state.
      auxiliary: `'z'` or `'u'`, the variable that the ratio is conditioned on.
      name: Prefix of the names of bootstrap ops.
    """
    super().__init__(target_log_prob_fn, FLAT, delta, auxiliary, name)
    self._keep(locals())

  @property
  def log_likelihood_fn(self):
    return self._parameters['target_log_prob_fn']

  @property
  def prior(self):
    return FLAT


def _smoother(params, variance):
  del params
  return interfaces.Smoother(
    gain=lambda v: v,
    draw=lambda v, e: v + tf.sqrt(variance) * e,
    draw_marginal=lambda v, e: v + tf.sqrt(2.0 * variance) * e,
    solve_marginal=lambda v: 0.5 * v,
    log_marginal=_improper,
  )


def _improper(*_):
  raise ValueError('A flat prior has no density.')


# The limit of a wide prior, R = I. With this prior, the marginal gradient
# proposal is MALA, and the auxiliary gradient proposal is auxiliary MALA.
FLAT = interfaces.GaussianPrior(
  name='flat',
  event_shape=None,
  params=(),
  to_coordinates=lambda params, x: x,
  from_coordinates=lambda params, s: s,
  pull=lambda params, g: g,
  covariance=_improper,
  smoother=_smoother,
  is_singular=True,
)
