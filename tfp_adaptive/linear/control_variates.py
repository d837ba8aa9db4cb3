"""Control variates that reduce the noise of MALA's gradient.

With g(y) held constant, the gradient of min(0, r) in the tangent E is

  1{r < 0} F,   F = -1/2 h (e + h / 2)^T,   h = a - b.

Near the best C, h is about a multiple of e + a / 2. F is then mostly a multiple
of e e^T, which is noise around a multiple of I. Two identities reduce this
noise.

1. For any target, e is independent of x. With c from earlier steps,

     E[c (e (e + a / 2)^T - I)] = 0.

2. In the stationary chain, a swap of x and y turns r into -r and multiplies the
   density by e^r. With the logistic function sigma,

     E[sign(r) sigma(r) (F + F')] = 0,

   where F' = -1/2 h (e + a)^T is the F of the reverse move. F' is near F, so
   that the weight of F becomes about sigma(|r|) instead of 1 or 0.

Functions return a control variate as zeros, [chains...], with its gradient.
Their `slope` is c, [], and their `ratio` is r, [chains...]. `pull_x`, `pull_y`
and `noise` are a, b and e, [chains..., d]. `event_sum` sums over the event.

No single chain may dominate, but min(0, r) is not bounded below. In a region
too narrow for the step, one chain with r = -1000 would move a shared factor
more than a hundred chains with r near -1. With `bound_log_ratio`, the speed
measure therefore replaces r in min(0, r) by

  R atan(r / R),   derivative 1 / (1 + (r / R)^2),   R = 3,

which is close to r where moves are accepted. On a Gaussian target the best
shape stays the same: if C whitens the target, the distribution of r is
invariant to rotations. The gradient of the mean of any function of r is then a
multiple of I.
"""

import tensorflow as tf

_SLOPE_SMOOTHING = 0.1
_MAX_SLOPE = 2.0
_MAX_LOG_RATIO = 5.0  # A chain with a larger |r| is hardly stationary.
_BOUND = 3.0  # R.


def fast_control_variate(slope, factor, ratio, live, pulls, noise, event_sum):
  """Returns the sum of both control variates, with g(y) held constant.

  `live` is C^T (g(x) - g(y)) under the tape. `pulls` are a and b, constants.
  """
  if factor.params is not None:
    # The control variates are derivatives in E, which raw params do not have.
    return tf.zeros_like(ratio)
  return center(slope, factor, pulls[0], noise) + direction_balance(
    ratio, live, pulls[0], noise, event_sum
  )


def center(slope, factor, pull_x, noise):
  """Returns c (e^T E (e + a / 2) - log |det (I + E)|)."""
  return slope * factor.centered_stretch(noise, noise + 0.5 * pull_x)


def direction_balance(ratio, difference, pull_x, noise, event_sum):
  """Returns sign(r) sigma(r) (F + F') / 2 along E; 0 if |r| is large.

  `difference` is a - b, [chains..., d], under the tape.
  """
  right = noise + 0.5 * pull_x + 0.25 * tf.stop_gradient(difference)
  both = -0.5 * event_sum(difference * right)
  is_moderate = tf.abs(ratio) < _MAX_LOG_RATIO
  weight = tf.where(is_moderate, tf.sign(ratio) * tf.sigmoid(ratio), 0.0)
  weight *= _influence(ratio)
  return weight * (both - tf.stop_gradient(both))


def mean_slope(mean, ratio, pull_x, pull_y, noise):
  """Returns the next c, the running mean of -1{r < 0} trace(F) / d."""
  difference = pull_x - pull_y
  slope = 0.5 * difference * (noise + 0.5 * difference)
  weight = tf.where(ratio < 0.0, _influence(ratio), 0.0)
  slope = tf.reduce_mean(weight[..., tf.newaxis] * slope)
  slope = tf.where(tf.math.is_finite(slope), slope, mean)
  return mean + _SLOPE_SMOOTHING * (
    tf.clip_by_value(slope, 0.0, _MAX_SLOPE) - mean
  )


def state_balance(ratio, pull_x, pull_y, event_sum):
  """Returns the control variate for the slow noise of the exact gradient.

  For a Gaussian target the exact gradient is near (a a^T - b b^T) / 2 where
  r < 0. Its noise follows the state, and lasts as long as the autocorrelation
  of the chain. In the stationary chain, an accepted move and its reverse are
  equally likely. For any target, E[min(1, e^r) (a a^T - b b^T)] is therefore 0.
  Both pulls are under the tape.
  """
  accept_prob = tf.exp(tf.minimum(ratio, 0.0)) * _influence(ratio)
  difference = -0.25 * event_sum(pull_x**2 - pull_y**2)
  return accept_prob * (difference - tf.stop_gradient(difference))


def bounded(log_ratio):
  """Returns R atan(r / R), in (-R pi / 2, R pi / 2)."""
  return _BOUND * tf.atan(log_ratio / _BOUND)


def _influence(log_ratio):
  """Returns the derivative of `bounded`, in (0, 1]."""
  return 1.0 / (1.0 + (log_ratio / _BOUND) ** 2)
