"""Auxiliary MALA: the auxiliary construction without a Gaussian prior.

  u ~ N(x, t I),  z = u + t g(x),  y ~ N(z, t I),  t = delta / 2,

accepted given u or z, where MALA integrates them out: it shows what the
auxiliary variable costs. Source: Titsias and Papaspiliopoulos (2018), section
2.2, https://arxiv.org/abs/1610.09641.
"""

from tfp_adaptive.latent import flat_prior
from tfp_adaptive.latent.auxiliary_gradient import UncalibratedAuxiliaryGradient

__all__ = ['UncalibratedAuxiliaryLangevin']


class UncalibratedAuxiliaryLangevin(UncalibratedAuxiliaryGradient):
  """Proposes as MALA does, and is accepted less often.

  `log_likelihood_fn` of the base class is the log density of the target here.
  It needs `MetropolisHastings` around it.
  """

  def __init__(
    self, target_log_prob_fn, step_size=0.1, auxiliary='u', name=None
  ):
    """Builds the kernel; no Tensor is created here.

    Args:
      target_log_prob_fn: Log density, differentiable, called as TFP calls
        targets; returns [chains...].
      step_size: delta, [], a variance in units of the state.
      auxiliary: `'z'` or `'u'`, the variable that the ratio is conditioned on.
      name: Prefix of op names.
    """
    super().__init__(
      target_log_prob_fn, flat_prior.FLAT, step_size, auxiliary, name
    )
    self._parameters = dict(
      target_log_prob_fn=target_log_prob_fn,
      step_size=step_size,
      auxiliary=auxiliary,
      name=name,
    )

  @property
  def log_likelihood_fn(self):
    return self._parameters['target_log_prob_fn']

  @property
  def prior(self):
    return flat_prior.FLAT
