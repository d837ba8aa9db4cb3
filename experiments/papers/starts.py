"""Where chains start: the same points for every method of a repeat."""

import numpy as np
import tensorflow as tf

from experiments.run.errors import ConfigError

_LEARNING_RATE = 0.1  # For `climb`, in units of the state.


def make_starts(config, target, repeat):
  """Returns starts [num_chains, event_size] in the target's dtype.

  Args:
    config: The `Config`, whose `init` and `seed` decide the starts.
    repeat: Number of the repeat; each repeat has its own starts.

  Raises:
    ConfigError: If the target lacks what `init.kind` needs.
  """
  rng = np.random.default_rng([config.seed, repeat])
  starts = _KINDS[config.init.kind](config, target, rng)
  return np.asarray(starts, target.dtype)


def climb(target_log_prob_fn, starts, num_steps):
  """Returns starts moved up the log density by Adam, each chain by itself.

  A sampler whose step is right for the bulk may never leave a far and steep
  start. Take few steps, because the mode of a hierarchical model is not typical
  of the model.

  Args:
    target_log_prob_fn: Function of [chains, event_size], returns [chains].
    starts: [chains, event_size].
  """

  @tf.function(jit_compile=True, autograph=False)
  def run(x):
    def body(step, x, mean, square):
      with tf.GradientTape() as tape:
        tape.watch(x)
        value = target_log_prob_fn(x)
      grads = tape.gradient(value, x)
      mean = 0.9 * mean + 0.1 * grads
      square = 0.999 * square + 0.001 * grads**2
      count = tf.cast(step + 1, x.dtype)
      unbiased = mean / (1 - 0.9**count)
      scale = tf.sqrt(square / (1 - 0.999**count)) + 1e-8
      return step + 1, x + _LEARNING_RATE * unbiased / scale, mean, square

    zeros = tf.zeros_like(x)
    return tf.while_loop(
      lambda step, *_: step < num_steps, body, (0, x, zeros, zeros)
    )[1]

  return run(tf.constant(starts)).numpy()


def _refuse(config, why, *allowed):
  raise ConfigError(
    f"init.kind: '{config.init.kind}' was given, but {why}; allowed are "
    f"{', '.join(map(repr, allowed))} and 'zeros'."
  )


def _normal(config, target, rng):
  default = 0.1 if config.init.kind == 'suggested' else 1.0
  shape = (config.num_chains, target.event_size)
  return (config.init.scale or default) * rng.normal(size=shape)


def _zeros(config, target, rng):
  del rng
  return np.zeros([config.num_chains, target.event_size])


def _prior(config, target, rng):
  if target.sample_prior is None:
    why = f'{target.name} has no prior to draw from'
    _refuse(config, why, 'normal', 'climb')
  seed = int(rng.integers(2**31 - 1))
  return target.sample_prior(config.num_chains, seed)


def _target_normal(config, target, rng):
  if target.covariance is None:
    why = f'the covariance of {target.name} is not known'
    _refuse(config, why, 'normal', 'climb')
  noise = _normal(config, target, rng)
  if target.covariance.ndim == 1:
    return target.mean + noise * np.sqrt(target.covariance)
  return target.mean + noise @ np.linalg.cholesky(target.covariance).T


def _suggested(config, target, rng):
  if target.suggested_start is None:
    _refuse(config, f'{target.name} suggests no start', 'normal', 'climb')
  return target.suggested_start + _normal(config, target, rng)


def _climb(config, target, rng):
  if target.target_log_prob_fn is None:
    why = f'the field of {target.name} has no density to climb'
    _refuse(config, why, 'prior', 'normal')
  if target.is_stochastic:
    why = f'{target.name} only estimates its density, without a gradient'
    _refuse(config, why, 'suggested', 'prior', 'normal')
  starts = np.asarray(_normal(config, target, rng), target.dtype)
  return climb(target.target_log_prob_fn, starts, config.init.num_steps)


_KINDS = {
  'climb': _climb,
  'normal': _normal,
  'prior': _prior,
  'suggested': _suggested,
  'target_normal': _target_normal,
  'zeros': _zeros,
}
