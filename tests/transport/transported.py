"""HMC behind a map, written in numpy independently of the library."""

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.transport import hamiltonian as module

Proposal = module.UncalibratedTransportedHamiltonian
NUM_STEPS = 3
STEP_SIZE = 0.7
NETWORK = tfpa.transports.real_nvp(hidden_sizes=(4,))


def banana(x):
  bent = x[..., 1] + 0.5 * (x[..., 0] ** 2 - 1.0)
  return -0.5 * (x[..., 0] ** 2 + 2.0 * bent**2)


def gradient(x):
  return targets.value_and_gradient(banana, tf.constant(x))[1]


def draws(num_draws, seed=0):
  """Returns exact draws of `banana`, [num_draws, 2]."""
  x = np.random.default_rng(seed).normal(size=(num_draws, 2)) * [1.0, 0.5**0.5]
  x[:, 1] -= 0.5 * (x[:, 0] ** 2 - 1.0)
  return x


def _coupling(layer, row):
  """Returns the scale, from 1/2 to 2 and 1 at zero, and the shift."""
  (first, bias), (last, last_bias) = [
    (np.asarray(w), np.asarray(b)) for w, b in layer
  ]
  outputs = np.log1p(np.exp(row @ first + bias)) @ last + last_bias
  return 0.5 + 1.5 / (1.0 + 2.0 * np.exp(-outputs[..., :1])), outputs[..., 1:]


def _map(params, z):
  """Returns f(z) and log |det Df(z)| of `NETWORK`; float64 or complex."""
  rows, log_det = [z[..., :1], z[..., 1:]], 0.0
  for moved, layer in ((1, params.network[0]), (0, params.network[1])):
    scale, shift = _coupling(layer, rows[1 - moved])
    rows[moved] = rows[moved] * scale + shift
    log_det = log_det + np.log(scale[..., 0])
  log_scale = 10.0 * np.asarray(params.raw_scale)
  stacked = np.concatenate(rows, axis=-1) * np.exp(log_scale)
  return stacked, log_det + log_scale.sum()


def _inverse(params, q):
  """Returns f^-1(q)."""
  z = q * np.exp(-10.0 * np.asarray(params.raw_scale))
  rows = [z[..., :1], z[..., 1:]]
  for moved, layer in ((0, params.network[1]), (1, params.network[0])):
    scale, shift = _coupling(layer, rows[1 - moved])
    rows[moved] = (rows[moved] - shift) / scale
  return np.concatenate(rows, axis=-1)


def _slope(params, z, gradient):
  """Returns Df^T gradient + grad log |det Df| by complex steps."""
  columns = []
  for i in range(z.shape[-1]):
    position, log_det = _map(params, z + 1e-30j * np.eye(z.shape[-1])[i])
    columns.append(np.sum(gradient * position.imag, axis=-1) + log_det.imag)
  return np.stack(columns, axis=-1) / 1e-30


def numpy_trajectory(params, q, noise, gradients=None):
  """Returns q_L, log |det Df| at both ends, w_L; gradients live or given."""
  z, velocity = _inverse(params, q), noise
  start = gradient(q)
  log_det_start = _map(params, z)[1]
  velocity = velocity + 0.5 * STEP_SIZE * _slope(params, z, start)
  for done in range(NUM_STEPS):
    z = z + STEP_SIZE * velocity
    position, log_det = _map(params, z)
    grad = gradient(position) if gradients is None else gradients[done]
    kick = 0.5 if done == NUM_STEPS - 1 else 1.0
    velocity = velocity + kick * STEP_SIZE * _slope(params, z, grad)
  return position, (log_det, log_det_start), velocity


def numpy_log_ratio(params, q, noise, gradients=None):
  end, (log_det, log_det_start), velocity = numpy_trajectory(
    params, q, noise, gradients
  )
  log_prob = (
    banana(tf.constant(end)).numpy()
    if gradients is None
    else np.sum(gradients[-1] * end, axis=-1)
  )
  kinetic = 0.5 * np.sum(velocity**2 - noise**2, axis=-1)
  start = banana(tf.constant(q)).numpy()
  return log_prob - start + log_det - log_det_start - kinetic


def fixed(transport, params):
  return transport._replace(
    init=lambda event_size, dtype, scale: tf.nest.map_structure(
      tf.constant, params
    ),
    init_scale=1.0,
  )
