"""Maps of all real numbers onto the supports of a joint distribution.

TFP's own, but for positive numbers: these are exponentials in place of
softplus. Of a scale the logarithm is what others are normal given: their
precision is exp(-2 u), which conditional Gaussians hold exactly, and softplus
bends it. It is also what Stan, PyMC and NumPyro sample.

Some of TFP's maps are wrong: those of Wishart laws reach no small diagonal,
those of directions one orthant alone, and that of `LKJ` has another Jacobian.
"""

import tensorflow_probability as tfp

__all__ = ['bijector_of', 'instead_of']

tfb = tfp.bijectors
tfd = tfp.distributions

# Laws onto whose support TFP's map is wrong -> what to write.
_INSTEAD = (
  (
    (tfd.VonMisesFisher, tfd.SphericalUniform, tfd.PowerSpherical),
    'whose map of TFP reaches directions without a negative coordinate alone. '
    'Draw a vector of `tfd.Sample(tfd.Normal(0., 1.), d)`, divide it by its '
    'length where the model needs a direction, and add the log density of '
    'that direction to a log density of your own',
  ),
  (
    (tfd.LKJ,),
    'whose map of TFP has a wrong Jacobian. Draw its factor L of '
    '`tfd.CholeskyLKJ`, with the same arguments, and write '
    '`tf.matmul(L, L, transpose_b=True)` where the model needs the matrix',
  ),
)


def bijector_of(model):
  """Returns the map onto the support of a joint distribution's unknowns.

  Args:
    model: `tfd.JointDistribution`, or one with pins.
  """
  # Of one class with pins, of another for models that are vectorized.
  default = model.experimental_default_event_space_bijector()
  return type(default)(model, bijector_fn=_of_part)


def _of_part(law):
  if isinstance(law, tfd.JointDistribution):  # A model inside of the model.
    return bijector_of(law)
  return _by_exp(law.experimental_default_event_space_bijector())


def instead_of(law):
  """Returns what is wrong with TFP's map of a law, or `None`: a clause."""
  for laws, clause in _INSTEAD:
    if isinstance(law, laws):
      return clause
  return None


def _by_exp(bijector):
  """Returns the bijector with exp where it begins with softplus."""
  if isinstance(bijector, tfb.Softplus):
    is_plain = bijector.hinge_softness is None and bijector.low is None
    return tfb.Exp() if is_plain else bijector
  if isinstance(bijector, tfb.Chain):
    *others, first = bijector.bijectors
    kinds = list(map(type, bijector.bijectors))
    if kinds == [tfb.TransformDiagonal, tfb.FillScaleTriL]:
      # Both make the diagonal positive: together it is at least log 2.
      return tfb.FillScaleTriL(diag_bijector=tfb.Exp(), diag_shift=None)
    return tfb.Chain([*others, _by_exp(first)])
  if bijector is not None and 'sample_shape' in bijector.parameters:
    return bijector.copy(bijector=_by_exp(bijector.bijector))
  return bijector
