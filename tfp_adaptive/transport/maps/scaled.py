"""A transport from any network of bijectors: f(z) = exp(10 r) network(z).

The scale exp(10 r) of every coordinate, with a param r, is outside of the
network. The network then works on numbers of order one in any units of the
state, and the adaptation can find a first scale.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import interfaces
from tfp_adaptive.core import shown

tfb = tfp.bijectors

# An optimizer changes all params at one rate. A log scale is ten times its
# param, so that scales are learned ten times faster than weights.
_GAIN = 10.0


class ScaledParams(NamedTuple):
  """Params of the map."""

  raw_scale: tf.Tensor  # r, a tenth of the log scales, [event_size].
  network: Any  # Params of the network.


@shown.remembers_call
def scaled(init_network, network, name='scaled', init_scale=None):
  """Builds a transport from a network of bijectors.

    q = f(z) = exp(10 raw_scale) * network(z)

  Args:
    init_network: Function (event_size, dtype) -> params of the network, a
      structure of Tensors. The map should start close to the identity. The
      function must return the same numbers at every call: use a fixed seed.
    network: Function (params) -> a new `tfp.bijectors.Bijector` of rows
      [..., event_size], twice differentiable: no ReLU.
    name: Name of the transport.
    init_scale: First scale of all coordinates, in units of the state: a
      positive float or a function of the event size. By default the adaptation
      finds this scale.

  Returns:
    An `interfaces.Transport`.

  Raises:
    TypeError: If `init_network` or `network` is not callable.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    transport = tfpa.transports.scaled(
      init_network=lambda size, dtype: tf.zeros([size], dtype),
      network=lambda shift: tfp.bijectors.Shift(shift),
    )
    kernel = tfpa.transport_adaptive_hamiltonian(
      target.log_prob, 1000, num_leapfrog_steps=3, transport=transport
    )
  """
  for argument, value in (('init_network', init_network), ('network', network)):
    if not callable(value):
      raise TypeError(
        f'`{argument}` must be a function, but got {value!r}. Pass a function '
        'that builds a new result at every call, because a bijector caches '
        'values that must not outlive one step.'
      )

  def init(event_size, dtype, scale):
    ones = tf.ones([event_size], dtype)
    return ScaledParams(
      raw_scale=tf.math.log(tf.cast(scale, dtype)) / _GAIN * ones,
      network=init_network(event_size, dtype),
    )

  return interfaces.Transport(
    name=name,
    init=init,
    bijector=lambda params: tfb.Chain(
      [tfb.Scale(log_scale=_GAIN * params.raw_scale), network(params.network)]
    ),
    scales=lambda params: tf.exp(_GAIN * params.raw_scale),
    rescale=lambda params, factor: params._replace(
      raw_scale=params.raw_scale + tf.math.log(factor) / _GAIN
    ),
    init_scale=init_scale,
  )
