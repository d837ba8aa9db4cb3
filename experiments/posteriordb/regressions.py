"""Linear regressions: of earnings, test scores, votes, bushes and diamonds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.posteriordb.posterior import Data
from experiments.posteriordb.posterior import flat_positive
from experiments.posteriordb.posterior import Posterior

__all__ = ['MODELS', 'blr', 'diamonds', 'kilpisjarvi', 'linear']

tfd = tfp.distributions

# Response, and the columns that are multiplied by beta[2], beta[3], ...
Columns = Callable[[Data], tuple[np.ndarray, list[np.ndarray]]]


def linear(columns: Columns, is_cauchy: bool = False) -> Callable[..., Any]:
  """Returns a model function: flat coefficients, an intercept first.

  Args:
    columns: Function from data to the response and its predictors.
    is_cauchy: Whether the prior of sigma is half Cauchy, and not flat.
  """

  def build(data: Data, dtype: tf.DType) -> Posterior:
    response, predictors = columns(data)
    design = np.stack([np.ones(len(response)), *predictors], axis=1)
    design = tf.constant(design, dtype)
    zero, scale = tf.constant(0.0, dtype), tf.constant(2.5, dtype)

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

    return Posterior(model, {'y': _cast(response, dtype)})

  return build


def kilpisjarvi(data: Data, dtype: tf.DType) -> Posterior:
  """A trend of summer temperatures, with normal priors.

  Args:
    data: Published data.
    dtype: tf.float32 or tf.float64.
  """
  x = tf.constant(data['x'], dtype)
  alpha_prior = [_cast(data[name], dtype) for name in ('pmualpha', 'psalpha')]
  beta_prior = [_cast(data[name], dtype) for name in ('pmubeta', 'psbeta')]

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    alpha = yield tfd.Normal(*alpha_prior, name='alpha')
    beta = yield tfd.Normal(*beta_prior, name='beta')
    sigma = yield flat_positive('sigma', dtype)
    yield tfd.Independent(tfd.Normal(alpha + beta * x, sigma), 1, name='y')

  return Posterior(model, {'y': _cast(data['y'], dtype)})


def blr(data: Data, dtype: tf.DType) -> Posterior:
  """A regression without intercept; all priors are normal.

  Args:
    data: Published data.
    dtype: tf.float32 or tf.float64.
  """
  design = tf.constant(data['X'], dtype)
  zero, ten = tf.constant(0.0, dtype), tf.constant(10.0, dtype)

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    prior = tfd.Normal(zero, ten)
    beta = yield tfd.Sample(prior, design.shape[1], name='beta')
    sigma = yield tfd.HalfNormal(ten, name='sigma')
    mean = tf.linalg.matvec(design, beta)
    yield tfd.Independent(tfd.Normal(mean, sigma), 1, name='y')

  return Posterior(model, {'y': _cast(data['y'], dtype)})


def diamonds(data: Data, dtype: tf.DType) -> Posterior:
  """Prices of diamonds: 24 centered predictors, an intercept at their means.

  Args:
    data: Published data.
    dtype: tf.float32 or tf.float64.
  """
  predictors = np.asarray(data['X'])[:, 1:]
  centered = tf.constant(predictors - predictors.mean(axis=0), dtype)
  zero, one, three, eight, ten = (
    tf.constant(number, dtype) for number in (0.0, 1.0, 3.0, 8.0, 10.0)
  )

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    size = centered.shape[1]
    b = yield tfd.Sample(tfd.Normal(zero, one), size, name='b')
    intercept = yield tfd.StudentT(three, eight, ten, name='Intercept')
    sigma = yield tfd.HalfStudentT(three, zero, ten, name='sigma')
    mean = intercept + tf.linalg.matvec(centered, b)
    yield tfd.Independent(tfd.Normal(mean, sigma), 1, name='y')

  return Posterior(model, {'y': _cast(data['Y'], dtype)})


def _cast(values, dtype):
  return np.asarray(values, dtype.as_numpy_dtype)


def _standardized(values):
  return (values - values.mean()) / values.std(ddof=1)


def _earn_height(data):
  return data['earn'], [data['height']]


def _log10earn_height(data):
  return np.log10(data['earn']), [data['height']]


def _logearn_height(data):
  return np.log(data['earn']), [data['height']]


def _logearn_height_male(data):
  return np.log(data['earn']), [data['height'], data['male']]


def _logearn_logheight_male(data):
  return np.log(data['earn']), [np.log(data['height']), data['male']]


def _logearn_interaction_z(data):
  height, male = _standardized(data['height']), data['male']
  return np.log(data['earn']), [height, male, height * male]


def _kidscore(*names):
  return lambda data: (data['kid_score'], [data[name] for name in names])


def _kidscore_interaction(data):
  school, quotient = data['mom_hs'], data['mom_iq']
  return data['kid_score'], [school, quotient, school * quotient]


def _kidscore_interaction_c(data):
  school, quotient = (
    data[name] - np.mean(data[name]) for name in ('mom_hs', 'mom_iq')
  )
  return data['kid_score'], [school, quotient, school * quotient]


def _kidscore_interaction_z(data):
  school, quotient = (
    _standardized(data[name]) / 2.0 for name in ('mom_hs', 'mom_iq')
  )
  return data['kid_score'], [school, quotient, school * quotient]


def _kidscore_mom_work(data):
  return data['kid_score'], [data['mom_work'] == level for level in (2, 3, 4)]


def _nes(data):
  ages = [data['age_discrete'] == level for level in (2, 3, 4)]
  names = 'real_ideo', 'race_adj', 'educ1', 'gender', 'income'
  ideology, race, *others = (data[name] for name in names)
  return data['partyid7'], [ideology, race, *ages, *others]


_BUSH = 'diam1', 'diam2', 'canopy_height', 'total_height', 'density'


def _mesquite(data):
  return data['weight'], [*(data[name] for name in _BUSH), data['group']]


def _logmesquite(data):
  logs = [np.log(data[name]) for name in _BUSH]
  return np.log(data['weight']), [*logs, data['group']]


def _log_volume(data):
  return np.log(data['diam1'] * data['diam2'] * data['canopy_height'])


def _log_area(data):
  return np.log(data['diam1'] * data['diam2'])


def _logmesquite_logvolume(data):
  return np.log(data['weight']), [_log_volume(data)]


def _logmesquite_logva(data):
  columns = [_log_volume(data), _log_area(data), data['group']]
  return np.log(data['weight']), columns


def _logmesquite_logvas(data):
  columns = [
    _log_volume(data),
    _log_area(data),
    np.log(data['diam1'] / data['diam2']),
    np.log(data['total_height']),
    np.log(data['density']),
    data['group'],
  ]
  return np.log(data['weight']), columns


# Name of the Stan program -> function of data and dtype.
MODELS: dict[str, Callable[[Data, tf.DType], Posterior]] = {
  'blr': blr,
  'diamonds': diamonds,
  'earn_height': linear(_earn_height),
  'kidscore_interaction': linear(_kidscore_interaction, is_cauchy=True),
  'kidscore_interaction_c': linear(_kidscore_interaction_c),
  'kidscore_interaction_z': linear(_kidscore_interaction_z),
  'kidscore_mom_work': linear(_kidscore_mom_work),
  'kidscore_momhs': linear(_kidscore('mom_hs'), is_cauchy=True),
  'kidscore_momhsiq': linear(_kidscore('mom_hs', 'mom_iq'), is_cauchy=True),
  'kidscore_momiq': linear(_kidscore('mom_iq'), is_cauchy=True),
  'kilpisjarvi': kilpisjarvi,
  'log10earn_height': linear(_log10earn_height),
  'logearn_height': linear(_logearn_height),
  'logearn_height_male': linear(_logearn_height_male),
  'logearn_interaction_z': linear(_logearn_interaction_z),
  'logearn_logheight_male': linear(_logearn_logheight_male),
  'logmesquite': linear(_logmesquite),
  'logmesquite_logva': linear(_logmesquite_logva),
  'logmesquite_logvas': linear(_logmesquite_logvas),
  'logmesquite_logvolume': linear(_logmesquite_logvolume),
  'mesquite': linear(_mesquite),
  'nes': linear(_nes),
}
