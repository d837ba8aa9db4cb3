"""Random walks of order 1 and 2, with a proper start."""

import tensorflow as tf

from tfp_adaptive.core import arguments
from tfp_adaptive.core import shown
from tfp_adaptive.latent.priors.autoregression import autoregression

# Autoregressions of order 1 and 2 whose differences of this order are noise.
_COEFFICIENTS = {1: (1.0,), 2: (2.0, -1.0)}


@shown.remembers_call
def random_walk(scale, num_steps, initial_scale, order=1, mean=0.0):
  """Builds the prior of a random walk, a stochastic level or trend.

  Differences of the given order are N(0, scale^2). A walk of order 2 is a
  discrete spline. The first `order` values are N(mean, initial_scale^2), which
  makes the prior proper.

  Args:
    scale: Standard deviation of the differences, positive, [] or [chains...];
      float32 or float64. A Python float becomes float32.
    num_steps: d, Python int, above `order`.
    initial_scale: Standard deviation of the first values, [] or [chains...].
    order: 1 or 2.
    mean: Mean of the field, [], [d], or [chains..., 1 or d].

  Returns:
    An `interfaces.GaussianPrior` of states [chains..., d].

  Raises:
    ValueError: If `order` is not 1 or 2, or a shape is wrong.

  References:
    Rue and Held (2005), Gaussian Markov random fields, chapter 3.

  Example:
    prior = tfpa.gaussian_priors.random_walk(0.1, 100, initial_scale=1.0)
    draws = tfpa.gaussian_priors.sample(prior, [4], seed=(0, 1))
    print(draws.shape)  # (4, 100)
  """
  if order not in _COEFFICIENTS:
    raise ValueError(
      f'`order` must be 1 or 2, but is {order!r}. Write the precision of other '
      'walks for `tfpa.gaussian_priors.markov`.'
    )
  arguments.check_positive(scale, 'scale', 1.0, is_array=True)
  scale = tf.convert_to_tensor(1.0 * scale if isinstance(scale, int) else scale)
  return autoregression(
    tf.constant(_COEFFICIENTS[order], scale.dtype),
    scale,
    num_steps,
    mean=mean,
    initial_scale=initial_scale,
  )._replace(name='random_walk')
