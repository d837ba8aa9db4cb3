"""Linear regressions on earnings, test scores, votes, bushes and diamonds."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.models.posteriordb.posterior import cast
from experiments.models.posteriordb.posterior import constants
from experiments.models.posteriordb.posterior import Data
from experiments.models.posteriordb.posterior import flat_positive
from experiments.models.posteriordb.posterior import Posterior

tfd = tfp.distributions


def _linear(response, *columns, is_cauchy=False):
  """Returns a model function with flat coefficients, the intercept first.

  Args:
    *columns: Expressions of the columns of beta[2], beta[3], ...
    is_cauchy: Whether the prior of sigma is half Cauchy, and not flat.
  """

  def build(data: Data, dtype: tf.DType) -> Posterior:
    y, *predictors = (_evaluate(text, data) for text in (response, *columns))
    design = cast(np.stack([np.ones(len(y)), *predictors], axis=1), dtype)
    zero, scale = constants(dtype, 0.0, 2.5)

    @tfd.JointDistributionCoroutineAutoBatched
    def model():
      size = design.shape[1]
      beta = yield tfpa.ImproperUniform(size, dtype=dtype, name='beta')
      if is_cauchy:
        sigma = yield tfd.HalfCauchy(zero, scale, name='sigma')
      else:
        sigma = yield flat_positive('sigma', dtype)
      mean = tf.linalg.matvec(design, beta)
      yield tfd.Independent(tfd.Normal(mean, sigma), 1, name='y')

    return Posterior(model, {'y': cast(y, dtype)})

  return build


def _evaluate(text, data):
  functions = {'log': np.log, 'log10': np.log10, 'c': _centered, 'z': _scaled}
  return eval(text, {**functions, **data})  # All texts are in this file.


def _centered(values):
  return values - np.mean(values)


def _scaled(values):
  return _centered(values) / values.std(ddof=1)


def _kilpisjarvi(data, dtype):
  """A trend of summer temperatures, with normal priors."""
  x = tf.constant(data['x'], dtype)
  alpha_prior = [cast(data[name], dtype) for name in ('pmualpha', 'psalpha')]
  beta_prior = [cast(data[name], dtype) for name in ('pmubeta', 'psbeta')]

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    alpha = yield tfd.Normal(*alpha_prior, name='alpha')
    beta = yield tfd.Normal(*beta_prior, name='beta')
    sigma = yield flat_positive('sigma', dtype)
    yield tfd.Independent(tfd.Normal(alpha + beta * x, sigma), 1, name='y')

  return Posterior(model, {'y': cast(data['y'], dtype)})


def _blr(data, dtype):
  """A regression without intercept; all priors are normal."""
  design = tf.constant(data['X'], dtype)
  zero, ten = constants(dtype, 0.0, 10.0)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    prior = tfd.Normal(zero, ten)
    beta = yield tfd.Sample(prior, design.shape[1], name='beta')
    sigma = yield tfd.HalfNormal(ten, name='sigma')
    mean = tf.linalg.matvec(design, beta)
    yield tfd.Independent(tfd.Normal(mean, sigma), 1, name='y')

  return Posterior(model, {'y': cast(data['y'], dtype)})


def _diamonds(data, dtype):
  """Prices of diamonds: 24 centered predictors and an intercept."""
  predictors = data['X'][:, 1:]
  centered = tf.constant(predictors - predictors.mean(axis=0), dtype)
  zero, one, three, eight, ten = constants(dtype, 0.0, 1.0, 3.0, 8.0, 10.0)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    size = centered.shape[1]
    b = yield tfd.Sample(tfd.Normal(zero, one), size, name='b')
    intercept = yield tfd.StudentT(three, eight, ten, name='Intercept')
    sigma = yield tfd.HalfStudentT(three, zero, ten, name='sigma')
    mean = intercept + tf.linalg.matvec(centered, b)
    yield tfd.Independent(tfd.Normal(mean, sigma), 1, name='y')

  return Posterior(model, {'y': cast(data['Y'], dtype)})


_BUSH = ('diam1', 'diam2', 'canopy_height', 'total_height', 'density')
_LOG_BUSH = tuple(f'log({name})' for name in _BUSH)
_LOG_VOLUME = 'log(diam1 * diam2 * canopy_height)'
_LOG_AREA = 'log(diam1 * diam2)'
_NES = _linear(
  'partyid7',
  *('real_ideo', 'race_adj'),
  *(f'age_discrete == {level}' for level in (2, 3, 4)),
  *('educ1', 'gender', 'income'),
)

MODELS: dict[str, Callable[[Data, tf.DType], Posterior]] = {
  'diamonds-diamonds': _diamonds,
  'earnings-earn_height': _linear('earn', 'height'),
  'earnings-log10earn_height': _linear('log10(earn)', 'height'),
  'earnings-logearn_height': _linear('log(earn)', 'height'),
  'earnings-logearn_height_male': _linear('log(earn)', 'height', 'male'),
  'earnings-logearn_interaction_z': _linear(
    'log(earn)', 'z(height)', 'male', 'z(height) * male'
  ),
  'earnings-logearn_logheight_male': _linear(
    'log(earn)', 'log(height)', 'male'
  ),
  'kidiq-kidscore_interaction': _linear(
    'kid_score', 'mom_hs', 'mom_iq', 'mom_hs * mom_iq', is_cauchy=True
  ),
  'kidiq-kidscore_momhs': _linear('kid_score', 'mom_hs', is_cauchy=True),
  'kidiq-kidscore_momhsiq': _linear(
    'kid_score', 'mom_hs', 'mom_iq', is_cauchy=True
  ),
  'kidiq-kidscore_momiq': _linear('kid_score', 'mom_iq', is_cauchy=True),
  'kidiq_with_mom_work-kidscore_interaction_c': _linear(
    'kid_score', 'c(mom_hs)', 'c(mom_iq)', 'c(mom_hs) * c(mom_iq)'
  ),
  'kidiq_with_mom_work-kidscore_interaction_z': _linear(
    'kid_score',
    *('z(mom_hs) / 2', 'z(mom_iq) / 2', 'z(mom_hs) / 2 * z(mom_iq) / 2'),
  ),
  'kidiq_with_mom_work-kidscore_mom_work': _linear(
    'kid_score', *(f'mom_work == {level}' for level in (2, 3, 4))
  ),
  'kilpisjarvi_mod-kilpisjarvi': _kilpisjarvi,
  'mesquite-logmesquite': _linear('log(weight)', *_LOG_BUSH, 'group'),
  'mesquite-logmesquite_logva': _linear(
    'log(weight)', _LOG_VOLUME, _LOG_AREA, 'group'
  ),
  'mesquite-logmesquite_logvas': _linear(
    'log(weight)',
    *(_LOG_VOLUME, _LOG_AREA, 'log(diam1 / diam2)'),
    *('log(total_height)', 'log(density)', 'group'),
  ),
  'mesquite-logmesquite_logvolume': _linear('log(weight)', _LOG_VOLUME),
  'mesquite-mesquite': _linear('weight', *_BUSH, 'group'),
  **{
    f'nes{year}-nes': _NES
    for year in (1972, 1976, 1984, 1988, 1992, 1996, 2000)
  },
  'sblri-blr': _blr,
}
