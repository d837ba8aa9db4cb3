"""RealNVP: affine coupling layers with bounded factors, times a scale.

  (a, b) -> (a, b g(s(a)) + t(a)),   then the same with a and b exchanged

a and b are halves of the coordinates, s and t networks, and g is in (1/2, 2).

Sources: Dinh, Sohl-Dickstein and Bengio (2017), Density estimation using real
NVP, https://arxiv.org/abs/1605.08803; Hirt, Titsias and Dellaportas (2021),
section 4.5, https://arxiv.org/abs/2110.14625.
"""

import math

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import arguments
from tfp_adaptive.core import random
from tfp_adaptive.core import shown
from tfp_adaptive.core import state_parts
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.transport.maps import scaled as scaled_lib

tfb = tfp.bijectors

_SCALE_BOUNDS = (0.5, 2.0)  # Range of g.


@shown.remembers_call
def real_nvp(num_pairs=1, hidden_sizes=(50, 50), init_scale=None, seed=0):
  """Builds a RealNVP that starts as the identity times a scale.

  The first layer of a pair shifts and scales the second half b of coordinates
  by functions of the first half a. The second layer shifts and scales a by
  functions of b. g is a sigmoid onto (1/2, 2), and s, t are the outputs of one
  network per layer. Further pairs have the coordinates in a random order.
  The last layer of each network starts at zero.

  Args:
    num_pairs: Pairs of coupling layers; the paper has one.
    hidden_sizes: Units of the hidden layers of each network.
    init_scale: First scale of all coordinates, in units of the state: a
      positive float or a function of the event size. By default the adaptation
      finds this scale.
    seed: Seed of the first weights and of the orders, an int.

  Returns:
    An `interfaces.Transport`.

  Raises:
    ValueError: If an argument is not one of those allowed. At the start of a
      kernel, if the state has fewer than two coordinates.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.transport_adaptive_hamiltonian(
      target.log_prob,
      num_adaptation_steps=1000,
      num_leapfrog_steps=3,
      transport=tfpa.transports.real_nvp(hidden_sizes=(10,)),
    )
  """
  _check(num_pairs, hidden_sizes)

  def init_network(event_size, dtype):
    num_first = _num_first(event_size)
    sizes = (num_first, event_size - num_first)
    return tuple(
      _init_layer(*order, hidden_sizes, dtype, (seed, 2 * pair + i))
      for pair in range(num_pairs)
      for i, order in enumerate((sizes, sizes[::-1]))
    )

  def network(params):
    event_size = params[0][0][0].shape[0] + params[1][0][0].shape[0]
    return _RealNVP(
      layers=tuple(_coupling(layer) for layer in params),
      orders=_orders(event_size, num_pairs, seed),
    )

  return scaled_lib.scaled(init_network, network, 'real_nvp', init_scale)


def _num_first(event_size):
  if not isinstance(event_size, (int, np.integer)):
    raise ValueError(
      'The sizes of the networks follow from the event size, but the state '
      'has an unknown one. Give `init_state` a static event shape.'
    )
  if event_size < 2:
    raise ValueError(
      'A coupling layer needs two coordinates or more, but the state has '
      f'{event_size}. Use `tfpa.transports.scaled` with a bijector of one '
      'coordinate, or a sampler with a preconditioner.'
    )
  return (event_size + 1) // 2


def _init_layer(num_inputs, num_outputs, hidden_sizes, dtype, seed):
  """Returns ((weights, bias), ...) of a network whose outputs are zero."""
  sizes = (num_inputs, *hidden_sizes)
  layers = []
  for i, (fan_in, fan_out) in enumerate(zip(sizes[:-1], sizes[1:])):
    draw = random.normal(
      [fan_in, fan_out], dtype, random.fold_in(random.sanitize(seed), i)
    )
    # Glorot initialization.
    weights = draw * (2.0 / (fan_in + fan_out)) ** 0.5
    layers.append((weights, tf.zeros([fan_out], dtype)))
  last = tf.zeros([sizes[-1], 2 * num_outputs], dtype)
  return (*layers, (last, tf.zeros([2 * num_outputs], dtype)))


class _RealNVP(tfb.Bijector):
  """Pairs of coupling layers; one pass gives the rows and the log det.

  Each layer is a function from one half of the coordinates to the scale and
  shift of the other. `orders` has the order of the coordinates for each pair.
  """

  def __init__(self, layers, orders):
    self._layers = layers
    self._orders = orders
    self._passed = {}  # id of rows -> rows, mapped rows and log det.
    super().__init__(forward_min_event_ndims=1, name='real_nvp')

  def _pass(self, rows):
    """Returns mapped rows and log det; the result is cached for each Tensor."""
    if id(rows) not in self._passed:
      mapped, log_det = rows, 0.0
      for k, order in enumerate(self._orders):
        halves = _halves(mapped, order)
        for i in (0, 1):
          scale, shift = self._layers[2 * k + i](halves[i])
          halves[1 - i] = halves[1 - i] * scale + shift
          log_det += tf.reduce_sum(tf.math.log(scale), axis=-1)
        mapped = _join(halves, order)
      self._passed[id(rows)] = (rows, mapped, log_det)
    return self._passed[id(rows)][1:]

  def _forward(self, x):
    return self._pass(x)[0]

  def _forward_log_det_jacobian(self, x):
    return self._pass(x)[1]

  def _inverse(self, y):
    for k, order in reversed(list(enumerate(self._orders))):
      halves = _halves(y, order)
      for i in (1, 0):
        scale, shift = self._layers[2 * k + i](halves[i])
        halves[1 - i] = (halves[1 - i] - shift) / scale
      y = _join(halves, order)
    return y


def _halves(rows, order):
  """Returns the two halves of the coordinates, in the given order if any."""
  if order is not None:
    rows = tf.gather(rows, order, axis=-1)
  num_first = _num_first(rows.shape[-1])
  return [rows[..., :num_first], rows[..., num_first:]]


def _join(halves, order):
  rows = tf.concat(halves, axis=-1)
  return rows if order is None else tf.gather(rows, np.argsort(order), axis=-1)


def _orders(event_size, num_pairs, seed):
  """Returns an order of the coordinates per pair, `None` for the first pair."""
  return (None,) + tuple(
    np.random.default_rng([seed, pair]).permutation(event_size)
    for pair in range(1, num_pairs)
  )


def _coupling(params):
  """Returns the function from one half to the scale and shift of the other."""
  low, high = _SCALE_BOUNDS
  # g(0) = 1 with this offset, so that a layer starts as the identity.
  offset = math.log((1.0 - low) / (high - 1.0))

  def scale_and_shift(rows):
    outputs = _network(params, rows)
    score, shift = tf.split(outputs, 2, axis=-1)
    return low + (high - low) * tf.sigmoid(score + offset), shift

  return scale_and_shift


def _network(params, rows):
  """Returns the network's outputs for rows [..., num_inputs]."""
  chains = ps.shape(rows)[:-1]
  rows = state_parts.as_rows(rows)
  for weights, bias in params[:-1]:
    # Softplus has a second derivative, through which curvature is learned.
    rows = tf.math.softplus(tf.matmul(rows, weights) + bias)
  weights, bias = params[-1]
  outputs = tf.matmul(rows, weights) + bias
  return tf.reshape(outputs, ps.concat([chains, [outputs.shape[-1]]], axis=0))


def _check(num_pairs, hidden_sizes):
  arguments.check_count(num_pairs, 'num_pairs', 1)
  if not all(isinstance(size, int) and size > 0 for size in hidden_sizes):
    raise ValueError(
      '`hidden_sizes` must be positive ints, one per hidden layer, but got '
      f'{hidden_sizes!r}.'
    )
