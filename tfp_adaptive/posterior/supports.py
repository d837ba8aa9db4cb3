"""Maps of all real numbers onto the supports of a joint distribution.

TFP's own, but for positive numbers: these are exponentials in place of
softplus. Of a scale the logarithm is what others are normal given: their
precision is exp(-2 u), which conditional Gaussians hold exactly, and softplus
bends it. It is also what Stan, PyMC and NumPyro sample.
"""

import tensorflow_probability as tfp

__all__ = ['bijector_of']

tfb = tfp.bijectors


def bijector_of(model):
  """Returns the map onto the support of a joint distribution's unknowns.

  Args:
    model: `tfd.JointDistribution`, or one with pins.
  """
  # Of one class with pins, of another for models that are vectorized.
  default = model.experimental_default_event_space_bijector()
  return type(default)(
    model,
    bijector_fn=lambda law: _by_exp(
      law.experimental_default_event_space_bijector()
    ),
  )


def _by_exp(bijector):
  """Returns the bijector with exp where it begins with softplus."""
  if isinstance(bijector, tfb.Softplus):
    is_plain = bijector.hinge_softness is None and bijector.low is None
    return tfb.Exp() if is_plain else bijector
  if isinstance(bijector, tfb.Chain):
    *others, first = bijector.bijectors
    return tfb.Chain([*others, _by_exp(first)])
  if bijector is not None and 'sample_shape' in bijector.parameters:
    return bijector.copy(bijector=_by_exp(bijector.bijector))
  return bijector
