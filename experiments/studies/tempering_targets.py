"""Targets of several modes, each with a prior to temper towards.

Three are of the panel, in its coordinates. The fourth is a mixture of 25
Gaussians of deviation 0.1 with equal weights, on the grid {-4, -2, 0, 2, 4}^2:
neighbors are 20 deviations apart, and its moments are known.
"""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from inference_gym.internal import data as gym_data

from experiments.studies.panel.config import load_panel
from experiments.studies.panel.truth import coordinates
from experiments.studies.panel.truth import Truth

__all__ = ['Problem', 'SIZES', 'load', 'lorenz_prior', 'mixture']

_GRID = np.array([-4.0, -2.0, 0.0, 2.0, 4.0], np.float32)
_DEVIATION = 0.1

# Name -> (replicas, gradients per chain and replicas together, as the panel).
SIZES = {
  'NonIdentifiableQuarticMeasurementModel': (6, 50_000),
  'SyntheticPlasmaSpectroscopy': (20, 5_000),
  'ConvectionLorenzBridge': (9, 50_000),
  'mixture_of_25_gaussians': (6, 50_000),
}


class Problem(NamedTuple):
  """A target, what it is tempered towards, and what is known of it."""

  name: str
  target_log_prob_fn: Any
  # `None`: powers of the target.
  reference: Any
  event_size: int
  # States [..., event_size] to the coordinates of the truth.
  coordinates: Any
  # `panel.truth.Truth`, or `None`.
  truth: Any


def load(config, name):
  """Returns a `Problem`.

  Args:
    config: Path of the panel's.
    name: A key of `SIZES`.
  """
  if name == 'mixture_of_25_gaussians':
    return mixture()
  panel = load_panel(config)
  target, truth = panel.problem(name)
  if 'Lorenz' in name:
    prior = lorenz_prior(target.event_size)
  else:
    prior = tfp.distributions.Sample(
      tfp.distributions.Normal(0.0, 1.0), [target.event_size]
    )
  return Problem(
    name,
    target.target_log_prob_fn,
    prior,
    target.event_size,
    lambda states: coordinates(target, states),
    truth,
  )


class _LorenzPath(tfp.bijectors.Bijector):
  """Standard normal noise [..., 3 times] to the path that it drives.

  Times one after the other; the log determinant is a constant.
  """

  def __init__(self):
    values = gym_data.convection_lorenz_bridge()
    self._step = float(values['step_size'])
    self._scale = float(values['innovation_scale']) * self._step**0.5
    super().__init__(forward_min_event_ndims=1, is_constant_jacobian=True)

  def _after(self, point):
    """Returns where a point is drawn to in one step."""
    x, y, z = tf.unstack(point, axis=-1)
    drift = tf.stack(
      [10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z], axis=-1
    )
    return point + self._step * drift

  def _forward(self, noise):
    points, *rest = tf.unstack(_rows(noise), axis=-2)
    path = [points]
    for step in rest:
      path.append(self._after(path[-1]) + self._scale * step)
    return tf.reshape(tf.stack(path, axis=-2), tf.shape(noise))

  def _inverse(self, path):
    points = _rows(path)
    noise = (
      points[..., 1:, :] - self._after(points[..., :-1, :])
    ) / self._scale
    noise = tf.concat([points[..., :1, :], noise], axis=-2)
    return tf.reshape(noise, tf.shape(path))

  def _forward_log_det_jacobian(self, noise):
    return tf.cast((noise.shape[-1] - 3) * np.log(self._scale), noise.dtype)


def _rows(flat):
  return tf.reshape(flat, [*flat.shape[:-1], flat.shape[-1] // 3, 3])


def lorenz_prior(size=90):
  """Returns the law of a path of the Lorenz system, [3 times] flat."""
  noise = tfp.distributions.Sample(tfp.distributions.Normal(0.0, 1.0), [size])
  return tfp.distributions.TransformedDistribution(noise, _LorenzPath())


def mixture():
  """Returns the `Problem` of 25 Gaussians."""
  centers = np.stack(np.meshgrid(_GRID, _GRID), axis=-1).reshape(-1, 2)

  def log_prob(x):
    z = (x[..., tf.newaxis, :] - centers) / _DEVIATION
    return tf.reduce_logsumexp(-0.5 * tf.reduce_sum(z**2, axis=-1), axis=-1)

  square = np.mean(_GRID**2.0)
  variance = square + _DEVIATION**2
  # E x^4 = E m^4 + 6 E m^2 s^2 + 3 s^4.
  fourth = np.mean(_GRID**4.0) + 6 * square * _DEVIATION**2
  fourth += 3 * _DEVIATION**4
  ones = np.ones(2)
  return Problem(
    'mixture_of_25_gaussians',
    log_prob,
    None,
    2,
    lambda states: np.asarray(states, np.float64),
    Truth(
      0.0 * ones,
      variance**0.5 * ones,
      0.0 * ones,
      variance * ones,
      (fourth - variance**2) * ones,
      'closed form',
      'closed form',
    ),
  )
