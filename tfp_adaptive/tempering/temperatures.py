"""Inverse temperatures at equal steps of the communication barrier.

Neighbors k and k + 1 reject a share r_k of their exchanges. The communication
barrier between 1 and b_k is

  Lambda(b_k) = r_0 + ... + r_(k-1).

Up to terms of third order in the distances, Lambda does not depend on the
temperatures in between. The best temperatures have equal steps of Lambda, so
that all exchanges are rejected equally often. Between two old values, b is
interpolated geometrically; between a value and 0, by a fourth power.

Source: Syed, Bouchard-Cote, Deligiannidis and Doucet (2022), Non-reversible
parallel tempering, https://arxiv.org/abs/1905.02939, sections 4.2 and 5.
"""

import numpy as np
import tensorflow as tf

_POWER = 4.0  # Power of the interpolation to b = 0.
_LEAST_RATE = 0.01  # Spreads temperatures even if nothing was rejected.
_SHORTEST_ROUND = 25  # In steps.


def first(num_replicas, least):
  """Returns the first inverse temperatures, from 1 to `least`, float64."""
  place = np.arange(num_replicas) / (num_replicas - 1.0)
  return least**place if least > 0.0 else (1.0 - place) ** _POWER


def equalize(inverse_temperatures, rejection_rates):
  """Returns inverse temperatures at equal steps of the barrier, [K]."""
  old = inverse_temperatures
  rates = tf.maximum(rejection_rates, _LEAST_RATE)
  barrier = tf.cumsum(rates)
  num_pairs = rates.shape[0]
  places = tf.cast(tf.range(1, num_pairs), rates.dtype) / num_pairs
  wanted = places * barrier[-1]
  # Share of each old interval that lies before a new temperature.
  shares = tf.clip_by_value(
    (wanted[:, tf.newaxis] - (barrier - rates)) / rates, 0.0, 1.0
  )
  hotter = old[1:]
  steps = tf.math.log(tf.where(hotter > 0.0, hotter / old[:-1], 1.0))
  factors = tf.where(
    hotter > 0.0, tf.exp(shares * steps), (1.0 - shares) ** _POWER
  )
  inner = old[0] * tf.reduce_prod(factors, axis=-1)
  return tf.concat([old[:1], inner, old[-1:]], axis=0)


def round_ends(num_adaptation_steps):
  """Returns the last step of each round of the temperatures.

  Each end is twice the end before. The last round ends in the middle of the
  adaptation, so that the samplers have time to adapt to the final temperatures.
  """
  ends = []
  end = num_adaptation_steps // 2
  while end >= _SHORTEST_ROUND:
    ends.append(end)
    end //= 2
  return tuple(reversed(ends))
