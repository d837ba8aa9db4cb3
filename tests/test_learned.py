"""What was learned as TFP's own HMC."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets

_START = tf.constant(np.random.default_rng(0).normal(size=(3, 2)))


def _results(kernel, start=_START):
  return kernel.bootstrap_results(start)


def test_tfp_takes_the_mean_of_a_range_that_is_given():
  for kernel, mean in (
    (
      tfpa.fisher_divergence_hamiltonian(
        targets.standard_normal, 0, num_leapfrog_steps=(1, 5)
      ),
      3,
    ),
    (
      tfpa.entropy_adaptive_hamiltonian(
        targets.standard_normal, 0, num_leapfrog_steps=5
      ),
      5,
    ),
    (tfpa.gradient_adaptive_langevin(targets.standard_normal, 0), 1),
  ):
    hmc = tfpa.as_tfp_kernel(kernel, _results(kernel))
    assert hmc.parameters['num_leapfrog_steps'] == mean


def test_the_kernel_of_tfp_stays_behind_a_bijector():
  def log_normal(x):
    return tf.reduce_sum(-0.5 * tf.math.log(x) ** 2 - tf.math.log(x), axis=-1)

  kernel = tfp.mcmc.TransformedTransitionKernel(
    tfpa.entropy_adaptive_hamiltonian(log_normal, 0, num_leapfrog_steps=3),
    tfp.bijectors.Exp(),
  )
  start = tf.exp(_START)
  theirs = tfpa.as_tfp_kernel(kernel, _results(kernel, start))
  state, _ = theirs.one_step(
    start, theirs.bootstrap_results(start), seed=tf.constant([1, 2])
  )
  # The logarithms are standard normal: the same step without a bijector.
  plain = tfpa.entropy_adaptive_hamiltonian(
    targets.standard_normal, 0, num_leapfrog_steps=3
  )
  hmc = tfpa.as_tfp_kernel(plain, _results(plain))
  expected, _ = hmc.one_step(
    _START, hmc.bootstrap_results(_START), seed=tf.constant([1, 2])
  )
  np.testing.assert_allclose(tf.math.log(state), expected, rtol=1e-10)
  assert np.any(state != start)
