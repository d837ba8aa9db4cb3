"""Gaussians and a funnel of any size, whose scales are known, in O(d).

The same function takes states of float32 and float64, so that the rounding of a
log density is seen.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy import signal

import tfp_adaptive as tfpa
from tfp_adaptive.core import stack
from tfp_adaptive.core import tfp_private

__all__ = ['LARGE', 'Large', 'funnel', 'path']

_COUPLING = 0.9  # Of neighbors of a path.
_parts = tfpa.preconditioners


class Large(NamedTuple):
  """A target with a builder."""

  builder: str
  options: dict
  num_adaptation_steps: int
  event_size: int
  target_log_prob_fn: Callable  # Of [chains, d], of any precision.
  draw: Callable  # (num_draws, seed) -> [num_draws, d], float64.
  # (kernel, results) -> [d], logs of learned scales over the true ones; what
  # all share is of no meaning.
  log_scales: Callable

  def log_prob_error(self):
    """Returns the largest rounding in float32 of a difference of two draws."""
    draws = tf.constant(self.draw(4, 2), tf.float32)
    exact = self.target_log_prob_fn(tf.cast(draws, tf.float64)).numpy()
    error = self.target_log_prob_fn(draws).numpy() - exact
    return float(np.ptp(error))


def path(builder, structure, coupling, event_size, steps, **options):
  """Returns a Gaussian path x_i = s_i u_i, u of variance one.

    u_i = coupling u_(i-1) + sqrt(1 - coupling^2) N(0, 1)

  Args:
    builder: Name of a sampler.
    structure: Name of a preconditioner.
    coupling: In [0, 1); 0: independent coordinates.
    event_size: d, int.
    steps: That adapt, int.
    **options: Of the builder.
  """
  scales, rest = _scales(event_size), 1.0 - coupling**2

  def target_log_prob_fn(x):
    u = x / tf.constant(scales, x.dtype)
    noise = (u[:, 1:] - coupling * u[:, :-1]) / rest**0.5
    return -0.5 * (u[:, 0] ** 2 + tf.reduce_sum(noise**2, axis=-1))

  def draw(num_draws, seed):
    noise = np.random.default_rng(seed).normal(size=(num_draws, event_size))
    noise[:, 1:] *= rest**0.5
    return scales * signal.lfilter([1.0], [1.0, -coupling], noise)

  precision = np.full(event_size, (1.0 + coupling**2) / rest)
  precision[[0, -1]] = 1.0 / rest

  def log_scales(kernel, results):
    found = _precision_diagonal(kernel, results, event_size)
    return -0.5 * np.log(found * scales**2 / precision)

  options = dict(options, preconditioner=getattr(_parts, structure)())
  return Large(
    *(builder, options, steps, event_size),
    *(target_log_prob_fn, draw, log_scales),
  )


def funnel(event_size, steps):
  """Returns a funnel x_0 ~ N(0, 1), x_i ~ N(0, s_i^2 exp(2 x_0)), by a map.

  Args:
    event_size: d, int.
    steps: That adapt, int.
  """
  scales = _scales(event_size)[1:]

  def target_log_prob_fn(x):
    z = x[:, 1:] / tf.constant(scales, x.dtype) * tf.exp(-x[:, :1])
    log_det = (event_size - 1) * x[:, 0]
    return -0.5 * (x[:, 0] ** 2 + tf.reduce_sum(z**2, axis=-1)) - log_det

  def draw(num_draws, seed):
    z = np.random.default_rng(seed).normal(size=(num_draws, event_size))
    z[:, 1:] *= scales * np.exp(z[:, :1])
    return z

  def log_scales(kernel, results):
    transport = stack.kernels(kernel)[-1].transport
    params = tfp_private.get_innermost(results, 'preconditioner_params')
    bijector = transport.bijector(params)
    ones = tf.concat([tf.zeros([1, 1]), tf.ones([1, event_size - 1])], axis=1)
    moved = bijector.forward(ones) - bijector.forward(tf.zeros_like(ones))
    return np.log(np.float64(moved[0, 1:])) - np.log(scales)

  transport = tfpa.transports.conditional_gaussian(
    drivers=(0,), exponents=(-2.0,), preconditioner=_parts.diagonal()
  )
  return Large(
    *('transport_adaptive_hamiltonian', dict(transport=transport), steps),
    *(event_size, target_log_prob_fn, draw, log_scales),
  )


def _scales(event_size):
  """Returns scales from 0.1 to 10, in no order, [d]."""
  scales = np.geomspace(0.1, 10.0, event_size)
  return np.random.default_rng(0).permutation(scales)


def _precision_diagonal(kernel, results, event_size):
  """Returns the diagonal of (C C^T)^-1, tridiagonal at most, [d].

  Columns three apart do not meet in a tridiagonal matrix: three products do.
  """
  learner = next(
    k for k in stack.kernels(kernel) if hasattr(k, 'preconditioner')
  )
  params = tfp_private.get_innermost(results, 'preconditioner_params')
  operator = learner.preconditioner.operator(params)
  found = np.empty(event_size)
  for first in range(3):
    probe = np.zeros(event_size, np.float32)
    probe[first::3] = 1.0
    product = operator.solvevec(operator.solvevec(probe), adjoint=True)
    found[first::3] = product.numpy()[first::3]
  return found


_MALA, _HMC = 'gradient_adaptive_langevin', 'fisher_divergence_hamiltonian'
# By name, size -> `Large`.
LARGE = {
  'MALA, diagonal': lambda d: path(_MALA, 'diagonal', 0.0, d, 1000),
  'MALA, tridiagonal': lambda d: path(_MALA, 'tridiagonal', _COUPLING, d, 1000),
  'Fisher HMC, diagonal': lambda d: path(_HMC, 'diagonal', 0.0, d, 100),
  'Fisher HMC, tridiagonal': lambda d: path(
    _HMC, 'tridiagonal', _COUPLING, d, 100
  ),
  # Half a megabyte of every coordinate: 4000 pairs are kept, and copied to fit.
  'conditional-Gaussian HMC': lambda d: funnel(min(d, 5000), 300),
}
