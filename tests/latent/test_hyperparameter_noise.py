"""Draws of a step of field and hyperparameters do not depend on each other."""

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa

_NUM_CHAINS = 20_000


def test_the_noise_of_the_joint_move_knows_nothing_of_the_field_s_decision():
  # Fields of one number, so that chain by chain one draw would do for both.
  drawn = []

  def prior_fn(amplitude):
    prior = tfpa.gaussian_priors.spectral(
      tf.exp(amplitude)[..., tf.newaxis, tf.newaxis]
    )

    def smoother(params, variance):
      functions = prior.smoother(params, variance)

      def draw(rows, noise):
        drawn.append(noise)
        return functions.draw(rows, noise)

      return functions._replace(draw=draw)

    return prior._replace(smoother=smoother)

  kernel = tfpa.proposals.LatentGaussianHyperparameters(
    lambda x: tf.reduce_sum(tf.cos(3.0 * x), axis=-1),
    prior_fn,
    lambda amplitude: -0.5 * amplitude**2,
    lambda *args: tfpa.MetropolisHastings(
      tfpa.proposals.UncalibratedAuxiliaryGradient(*args)
    ),
    delta=1.0,
  )
  state = (
    tf.constant(np.random.default_rng(0).normal(size=(_NUM_CHAINS, 1))),
    tf.zeros([_NUM_CHAINS], tf.float64),
  )
  _, results = kernel.one_step(
    state, kernel.bootstrap_results(state), seed=(1, 2)
  )
  of_field, of_move = drawn
  is_accepted = results.inner_results.is_accepted.numpy()
  assert 0.2 < np.mean(is_accepted) < 0.8
  squares = of_move[:, 0].numpy() ** 2
  correlations = [
    np.corrcoef(squares, is_accepted)[0, 1],
    np.corrcoef(of_move[:, 0], of_field[:, 0])[0, 1],
    np.corrcoef(squares, of_field[:, 0] ** 2)[0, 1],
  ]
  # Standard errors.
  assert np.max(np.abs(correlations)) < 5.0 / _NUM_CHAINS**0.5
