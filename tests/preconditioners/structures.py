"""Every structure with what its tests need: params, gradients, scalings."""

import numpy as np
import tensorflow as tf

from tests.contracts import registry

EVENT_SIZE = 6
_SIZES = [2, EVENT_SIZE - 2]  # Sizes of the parts of `per_part`.


def initial(part, dtype=tf.float64, scale=0.7):
  """Returns params of C = scale * I."""
  size = _SIZES if part.name == 'per_part' else EVENT_SIZE
  return part.init(size, dtype, tf.constant(scale, dtype))


def random_like(structure, scale, seed=0):
  """Returns normal numbers in the shapes of a structure."""
  rng = np.random.default_rng(seed)
  return tf.nest.map_structure(
    lambda leaf: tf.constant(scale * rng.normal(size=leaf.shape)), structure
  )


def perturbed(part, params, size, seed):
  """Returns params of the same structure, moved at random by `size`."""
  noise = random_like(params, size, seed)
  params = tf.nest.map_structure(lambda p, n: p + n, params, noise)
  return part.project(params) if part.project else params


def arrange(name, **options):
  """Returns a part and params of a generic C of its structure."""
  part = registry.preconditioner(name, **options)
  return part, perturbed(part, initial(part), 0.2, seed=1)


def dense(part, params):
  """Returns C, [d, d]."""
  return part.operator(params).to_dense().numpy()


def gradient(part, params, rows, weights=None):
  """Returns the gradient of the mean of log N(x | 0, C C^T) over rows x."""
  whitened = np.linalg.solve(dense(part, params), rows.T).T
  weights = 1.0 / len(rows) if weights is None else weights
  outer = part.outer(
    params,
    tf.constant(weights * whitened),
    tf.constant(whitened),
    lambda: tf.constant(rows),
  )
  return tf.nest.map_structure(
    lambda o, det: o - det, outer, part.log_det_gradient(params)
  )


def scaled(name, params, scales):
  """Returns params of diag(scales) C."""
  s = scales
  if name == 'diagonal':
    return s * params
  if name == 'cholesky':
    return s[:, np.newaxis] * params
  if name == 'arrow':
    path, rest = s[:-2], s[-2:]
    diag, upper, cross, corner = params
    return diag / path, upper / path[1:], cross / rest, corner / rest
  if name == 'per_part':
    first = _SIZES[0]
    return (
      scaled('diagonal', params[0], s[:first]),
      scaled('tridiagonal', params[1], s[first:]),
    )
  return tuple(band / s[k:] for k, band in enumerate(params))
