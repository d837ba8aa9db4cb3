"""The forms in which a volatility path can be sampled.

  h_t = mean + shock_scale a_t,  a_t = persistence a_{t-1} + e_t

'scaled' samples a, 'centered' h, 'zero_mean' h - mean, and 'non_centered' the
innovations e. The first innovation is in units of its own standard deviation.
Given the three globals, each form is a linear map of a. `_READERS` map from a
form, and `_WRITERS` map to a form.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from experiments.targets.autoregression import autoregress
from experiments.targets.autoregression import over_days
from experiments.targets.autoregression import sum_days

_NUM_GLOBALS = 3


class PathValues(NamedTuple):
  """The model's own variables, [chains..., 1] except the path."""

  # Innovations or a, which are Gaussian a priori, and their log density.
  scaled_path: tf.Tensor
  log_prior_of_path: tf.Tensor
  mean: tf.Tensor
  persistence: tf.Tensor
  shock_scale: tf.Tensor


def split(x):
  """Returns path, mean, and raw persistence and shock scale, [chains..., n]."""
  # `tf.split` is used once, because the gradient of a slice pads zeros.
  num_days = x.shape[-1] - _NUM_GLOBALS
  return tf.split(x, [num_days, *(1,) * _NUM_GLOBALS], axis=-1)


def read(x, form):
  """Returns the `PathValues` of a state in one of the `FORMS`.

  Args:
    x: [chains..., num_days + 3].
  """
  return _READERS[form](*split(x))


def convert(x, form, new_form):
  """Returns the same path and globals in another form, [chains..., d].

  Args:
    x: [chains..., num_days + 3].
  """
  values = read(x, form)
  path = _WRITERS[new_form](values)
  return tf.concat([path, *split(x)[1:]], axis=-1)


def _log_prior_of_path(path, raw_persistence):
  """Returns the log density of a, and the persistence."""
  persistence = tf.tanh(0.5 * raw_persistence)
  log_precision = (
    np.log(4.0)
    + tf.math.log_sigmoid(raw_persistence)
    + tf.math.log_sigmoid(-raw_persistence)
  )[..., 0]
  weights = over_days(persistence, path.shape[-1] - 1)
  innovations = path[..., 1:] - weights * path[..., :-1]
  first = tf.exp(log_precision) * tf.square(path[..., 0])
  quadratic = first + sum_days(tf.square(innovations))
  return 0.5 * (log_precision - quadratic), persistence


def _read_scaled(path, mean, raw_persistence, raw_shock_scale):
  log_prior, persistence = _log_prior_of_path(path, raw_persistence)
  shock_scale = tf.math.softplus(raw_shock_scale)
  return PathValues(path, log_prior, mean, persistence, shock_scale)


def _read_centered(path, mean, raw_persistence, raw_shock_scale):
  path -= over_days(mean, path.shape[-1])
  return _read_zero_mean(path, mean, raw_persistence, raw_shock_scale)


def _read_zero_mean(path, mean, raw_persistence, raw_shock_scale):
  num_days = path.shape[-1]
  shock_scale = tf.math.softplus(raw_shock_scale)
  path *= over_days(1.0 / shock_scale, num_days)
  log_prior, persistence = _log_prior_of_path(path, raw_persistence)
  log_prior -= num_days * tf.math.log(shock_scale[..., 0])
  return PathValues(path, log_prior, mean, persistence, shock_scale)


def _read_non_centered(standard, mean, raw, raw_shock_scale):
  first_scale = 0.5 * tf.math.rsqrt(tf.sigmoid(raw) * tf.sigmoid(-raw))
  innovations = tf.concat(
    [standard[..., :1] * first_scale, standard[..., 1:]], axis=-1
  )
  persistence = tf.tanh(0.5 * raw)
  return PathValues(
    autoregress(innovations, persistence),
    -0.5 * sum_days(tf.square(standard)),
    mean,
    persistence,
    tf.math.softplus(raw_shock_scale),
  )


def _write_centered(values):
  path = _write_zero_mean(values)
  return path + values.mean


def _write_zero_mean(values):
  return values.scaled_path * values.shock_scale


def _write_non_centered(values):
  path = values.scaled_path
  first = path[..., :1] * tf.sqrt(1.0 - tf.square(values.persistence))
  rest = path[..., 1:] - values.persistence * path[..., :-1]
  return tf.concat([first, rest], axis=-1)


_READERS = {
  'centered': _read_centered,
  'non_centered': _read_non_centered,
  'scaled': _read_scaled,
  'zero_mean': _read_zero_mean,
}
_WRITERS = {
  'centered': _write_centered,
  'non_centered': _write_non_centered,
  'scaled': lambda values: values.scaled_path,
  'zero_mean': _write_zero_mean,
}
FORMS = tuple(_READERS)
