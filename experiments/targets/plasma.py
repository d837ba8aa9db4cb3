"""inference_gym's plasma spectroscopy, its forward model as a matrix product.

A sensor s sees the emission of wavelength w, which is linear between concentric
shells k. The emission is summed along a line of sight over points at radius r:

  mean[w, s] = sum_k A[s, k] e[w, k],
  A[s, k] = sum_p v_p max(0, 1 - |r[s, p] / d - k|)  over r[s, p] <= R

d is the distance of shells, R is the outermost radius, and v_p are the weights
of the trapezoidal rule. The gym interpolates first, again for every wavelength.
This file takes the same sums in another order, and a gradient takes about a
sixtieth of the time.

References: Langmore et al. (2021), Hamiltonian Monte Carlo in inverse
problems; inference_gym.targets.PlasmaSpectroscopy.
"""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from experiments.targets.jax_density import import_peer

# In TensorFlow's NumPy, Python's 0.0 would change all numbers to float64.
_ZERO = np.float32(0.0)


class _Constants(NamedTuple):
  """numpy float32 arrays of a model."""

  measurements: Any  # [num_wavelengths, num_sensors]
  wavelengths: Any  # [num_wavelengths, 1]
  center_wavelength: Any
  prior_scale: Any  # [num_shells, num_shells]
  envelope: Any  # [num_shells]
  points: Any  # [num_points] along a line of sight
  weights: Any  # [num_points]
  lines: Any  # [num_sensors, 1]: height of the lines of sight


def target_log_prob_fn(model):
  """Returns the density over u = (amplitude, temperature, velocity, shift).

  Returns:
    A function of [..., 3 num_shells + 1] float32 to [...], the model's
    unnormalized log probability.
  """
  constants = _constants(model)
  return lambda u: _log_prob(u, model, constants, tf.experimental.numpy)


def jax_log_prob_fn(model):
  """Returns the factory of the same density in JAX."""

  def factory():
    jnp = import_peer('jax.numpy')
    constants = _constants(model)
    return lambda u: _log_prob(u, model, constants, jnp)

  return factory


def _log_prob(u, model, constants, xp):
  """Returns the log density; `xp` is the NumPy of TensorFlow or of JAX."""
  mean = _mean_measurement(u, model, constants, xp)
  variance = (
    model.absolute_noise_scale**2 + model.relative_noise_scale**2 * mean**2
  )
  error = (constants.measurements - mean) ** 2 / variance
  log_likelihood = xp.sum(error + xp.log(variance), (-2, -1))
  log_prior = xp.sum(u**2, -1)
  size = constants.measurements.size + u.shape[-1]
  return -0.5 * (log_likelihood + log_prior + size * np.log(2 * np.pi))


def _mean_measurement(u, model, constants, xp):
  """Returns the means of [..., num_wavelengths, num_sensors]."""
  parts = [
    u[..., i * model.num_shells : (i + 1) * model.num_shells] for i in range(3)
  ]
  amplitude, temperature, velocity = (
    xp.einsum('ij,...j->...i', constants.prior_scale, part) for part in parts
  )
  amplitude = model.amplitude_scale * xp.logaddexp(amplitude, _ZERO)
  temperature = model.temperature_scale * xp.logaddexp(temperature, _ZERO)
  center = constants.center_wavelength * (1 - model.velocity_scale * velocity)
  bandwidth = constants.center_wavelength * xp.sqrt(temperature)
  density = amplitude * constants.envelope / (np.sqrt(2 * np.pi) * bandwidth)
  distance = constants.wavelengths - center[..., None, :]
  emissivity = density[..., None, :] * xp.exp(
    -0.5 * (distance / bandwidth[..., None, :]) ** 2
  )
  lengths = _lengths(u[..., -1], model, constants, xp)
  return xp.einsum('...wk,...sk->...ws', emissivity, lengths)


def _lengths(shift, model, constants, xp):
  """Returns A, [..., num_sensors, num_shells], for shifts [...]."""
  heights = constants.lines - shift[..., None, None]
  radii = xp.sqrt(constants.points**2 + heights**2)
  inside = radii <= model.outer_shell_radius
  spacing = model.outer_shell_radius / (model.num_shells - 1)
  shells = np.arange(model.num_shells, dtype=np.float32)
  hats = xp.maximum(_ZERO, 1.0 - abs(radii[..., None] / spacing - shells))
  weights = xp.where(inside, constants.weights, _ZERO)
  return xp.einsum('...sp,...spk->...sk', weights, hats)


def _constants(model):
  radius, num_shells = model.outer_shell_radius, model.num_shells
  num_points = model.num_integration_points
  points = np.linspace(-radius, radius, num_points)
  weights = np.full(num_points, points[1] - points[0])
  weights[[0, -1]] /= 2
  lines = np.linspace(-model.sensor_span, model.sensor_span, model.num_sensors)
  shells = np.linspace(0.0, radius, num_shells)[:, None]
  kernel = np.exp(-0.5 * ((shells - shells.T) / model.prior_length_scale) ** 2)
  noise = model.prior_diag_noise_variance
  covariance = (kernel + noise * np.eye(num_shells)) / (1 + noise)
  envelope = np.ones(num_shells)
  if model.use_bump_function:
    envelope = tfp.math.round_exponential_bump_function(
      tf.linspace(-1.0, 1.0, num_shells)
    )
  arrays = (
    model.measurements,
    np.asarray(model.wavelengths)[:, None],
    model.center_wavelength,
    np.linalg.cholesky(covariance),
    envelope,
    points,
    weights,
    lines[:, None],
  )
  return _Constants(*(np.asarray(array, np.float32) for array in arrays))
