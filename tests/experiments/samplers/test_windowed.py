"""What windowed NUTS does around TFP's sampler."""

import time

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from experiments.samplers import windowed
from experiments.targets import gaussians
from experiments.targets.base import BuildContext
from experiments.targets.base import Form

_ADAPTATION_SECONDS, _SECONDS_PER_RESULT = 0.2, 0.01
_NUM_TUNING = 5


class _Program:
  """Stands for the compiled sampler: results are its start, repeated."""

  def __init__(self):
    self.num_results = set()

  def experimental_get_tracing_count(self):
    return len(self.num_results)

  def __call__(self, start, seed, num_results):
    del seed
    self.num_results.add(num_results)
    time.sleep(_ADAPTATION_SECONDS + _SECONDS_PER_RESULT * num_results)
    states = tf.repeat(start[tf.newaxis], num_results, axis=0)
    return states, {
      'leapfrogs_taken': tf.ones([num_results]),
      'tuning_leapfrogs': tf.fill([_NUM_TUNING], 3.0),
    }


def test_a_wide_density_is_sampled_to_its_last_bit():
  target = gaussians.AnisotropicGaussian(
    name='anisotropic_gaussian', event_size=100, exponent=6.0
  ).build(BuildContext('float32'))
  joint = windowed.joint_distribution(target)
  pinned = joint.experimental_pin(y=tf.zeros([0]))
  x = 1e3 * np.random.default_rng(0).normal(size=(4, 100)).astype(np.float32)
  for found, expected in zip(
    tfp.math.value_and_gradient(pinned.unnormalized_log_prob, tf.constant(x)),
    tfp.math.value_and_gradient(target.target_log_prob_fn, tf.constant(x)),
  ):
    np.testing.assert_array_equal(found, expected)


def test_draws_of_a_form_are_mapped_back():
  form = Form(None, lambda x: 2.0 * x, lambda x: 0.5 * x)
  sample_fn = windowed.sampler(_Program(), form, time_adaptation=False)
  start = np.ones([3, 2], np.float32)
  result = sample_fn(init_state=start, num_results=24, seed=(1, 2))
  np.testing.assert_array_equal(result.states, np.stack([start] * 24))
  assert result.seconds['adaptation'] == 0.0
  assert result.seconds['sampling'] >= _ADAPTATION_SECONDS
  # What both phases took of the target is counted, each for itself.
  assert result.trace['extra']['leapfrogs_taken'].sum() == 24
  assert result.adaptation_trace['extra']['leapfrogs_taken'].sum() == 15
