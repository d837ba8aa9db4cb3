"""The params of a map in the form that adaptations take."""

import tensorflow as tf

from tfp_adaptive import interfaces


def as_learned(transport):
  """Returns the `interfaces.MapParams` of a transport."""
  return interfaces.MapParams(
    name=transport.name,
    init=transport.init,
    operator=lambda params: tf.linalg.LinearOperatorDiag(
      transport.scales(params), is_non_singular=True
    ),
    rescale=transport.rescale,
    project=lambda params: params,
    init_scale=transport.init_scale,
    fit=transport.fit,
  )


def check_fitted(criterion, optimizer):
  """Refuses a criterion or an optimizer: a fitted transport uses none."""
  if criterion is not None or optimizer is not None:
    raise ValueError(
      'This transport is fitted to pairs of states and gradients: it takes no '
      '`criterion` and no `optimizer`. Leave them out.'
    )


def check_momentum(transport, keep_momentum):
  """Refuses kept momenta for a map that is learned by gradient."""
  if keep_momentum:
    raise ValueError(
      f'`{transport.name}` learns by gradient, from steps whose momenta are '
      'drawn at every step. Leave `keep_momentum` out, or take a transport '
      'that is fitted to pairs, such as '
      '`tfpa.transports.conditional_gaussian()`.'
    )


def check_one_length(transport, num_leapfrog_steps, max_num_leapfrog_steps):
  """Refuses a range of lengths if the map is learned by gradient."""
  if transport.fit is not None:
    return
  given = [f'`num_leapfrog_steps={num_leapfrog_steps!r}`']
  if max_num_leapfrog_steps is not None:
    given.append(f'`max_num_leapfrog_steps={max_num_leapfrog_steps!r}`')
  if len(given) > 1 or not isinstance(num_leapfrog_steps, int):
    raise ValueError(
      f'`{transport.name}` learns by gradient, from trajectories of one length,'
      f' but got {" and ".join(given)}. Write for example '
      '`num_leapfrog_steps=5` alone. Lengths can vary only with a transport '
      'that is fitted to pairs, such as '
      '`tfpa.transports.conditional_gaussian()`.'
    )


def check(transport):
  """Refuses a value that is no transport."""
  if not isinstance(transport, interfaces.Transport):
    raise TypeError(
      f'`transport` must be an `interfaces.Transport`, but got {transport!r}. '
      'Write for example `transport=tfpa.transports.real_nvp()` (with '
      'parentheses).'
    )
