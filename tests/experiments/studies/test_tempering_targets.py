"""The prior of the Lorenz path: its draws and its density are of one law."""

import numpy as np
import pytest
import tensorflow as tf
from inference_gym import using_tensorflow as gym

from experiments.studies import tempering_targets


@pytest.mark.full
def test_the_path_s_prior_is_the_gym_s():
  law = tempering_targets.lorenz_prior()
  prior = gym.targets.ConvectionLorenzBridge().prior_distribution()
  paths = law.sample(6, seed=[1, 2])
  # Others than its own draws: noise on top, which the dynamics do not explain.
  paths = tf.concat([paths, paths + 0.02 * tf.sin(100.0 * paths)], axis=0)
  times = tf.unstack(tf.reshape(paths, [12, 30, 3]), axis=-2)
  expected = prior.log_prob(*times)
  np.testing.assert_allclose(law.log_prob(paths), expected, rtol=1e-4)
  assert np.ptp(expected) > 50.0


@pytest.mark.full
def test_noise_of_a_drawn_path_is_standard_normal():
  law = tempering_targets.lorenz_prior()
  noise = law.bijector.inverse(law.sample(2000, seed=[3, 4])).numpy()
  assert noise.shape == (2000, 90)
  assert abs(np.mean(noise)) < 4 / np.sqrt(noise.size)
  assert abs(np.mean(noise**2) - 1.0) < 4 * np.sqrt(2 / noise.size)
