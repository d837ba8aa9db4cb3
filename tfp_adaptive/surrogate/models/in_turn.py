"""One surrogate for the first fits, and another for later fits.

Early in a run states may be far from the bulk of the target, and a surrogate
whose score decays is safer. Later a surrogate of low cost is better.

Source: Strathmann et al. (2015), section 5, https://arxiv.org/abs/1506.02564.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import random
from tfp_adaptive.core import shown


class _Params(NamedTuple):
  """The number of fits, and the params of both surrogates."""

  num_fits: tf.Tensor  # [] of the state's dtype.
  first: Any
  then: Any


@shown.remembers_call
def in_turn(first, then, num_first_fits=2):
  """Returns a surrogate that is `first` for some fits, then `then`.

  `tfpa.kernel_hamiltonian` makes about five fits in 5000 adapting steps.

  Args:
    first: An `interfaces.Surrogate`, for example
      `kernel_exponential_family_lite(1000)`.
    then: Another surrogate, for example
      `kernel_exponential_family_finite(1000)`.
    num_first_fits: Fits of `first`, a positive int.

  Returns:
    An `interfaces.Surrogate`.

  Raises:
    ValueError: If the surrogates need histories of different sizes, or
      `num_first_fits` is no positive int.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    surrogate = tfpa.surrogates.in_turn(
      tfpa.surrogates.kernel_exponential_family_lite(500),
      tfpa.surrogates.kernel_exponential_family_finite(500),
    )
    kernel = tfpa.kernel_hamiltonian(target.log_prob, 1000, surrogate=surrogate)
  """
  if first.num_points != then.num_points:
    raise ValueError(
      'Both surrogates must use the same number of draws, but `first` uses '
      f'{first.num_points} and `then` uses {then.num_points}. Write for '
      'example `in_turn(kernel_exponential_family_lite(1000), '
      'kernel_exponential_family_finite(1000))`.'
    )
  arguments.check_count(num_first_fits, 'num_first_fits', 1)

  def init(event_size, dtype, seed):
    seeds = random.split(random.sanitize(seed), 2)
    return _Params(
      tf.zeros([], dtype),
      first.init(event_size, dtype, seeds[0]),
      then.init(event_size, dtype, seeds[1]),
    )

  def fit(params, points, weights, seed):
    is_first = params.num_fits < num_first_fits
    (of_first,) = control_flow.apply_if(
      is_first,
      lambda p: [first.fit(p, points, weights, seed)],
      params.first,
    )
    (of_then,) = control_flow.apply_if(
      tf.logical_not(is_first),
      lambda p: [then.fit(p, points, weights, seed)],
      params.then,
    )
    return _Params(params.num_fits + 1.0, of_first, of_then)

  def current(name):
    """Returns a function that calls `name` of the current surrogate."""
    return lambda params, *args: tf.cond(
      params.num_fits <= num_first_fits,
      lambda: getattr(first, name)(params.first, *args),
      lambda: getattr(then, name)(params.then, *args),
    )

  return interfaces.Surrogate(
    name=f'{first.name}_then_{then.name}',
    num_points=first.num_points,
    init=init,
    fit=fit,
    log_prob=current('log_prob'),
    score=current('score'),
    is_inside=current('is_inside'),
    update=_update_fn(first, then, num_first_fits),
  )


def _update_fn(first, then, num_first_fits):
  """Returns a function that adds draws to the current surrogate, or `None`."""
  if not (first.update or then.update):
    return None

  def update(params, rows):
    is_first = params.num_fits <= num_first_fits
    turns = ('first', first, is_first), ('then', then, tf.logical_not(is_first))
    for name, surrogate, is_its_turn in turns:
      if surrogate.update:
        (updated,) = control_flow.apply_if(
          is_its_turn,
          lambda p, surrogate=surrogate: [surrogate.update(p, rows)],
          getattr(params, name),
        )
        params = params._replace(**{name: updated})
    return params

  return update
