"""What replica exchange refuses, and what to write in its place."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets


@pytest.mark.parametrize(
  'options, error, message',
  [
    (dict(num_replicas=1), ValueError, 'at least 2'),
    (dict(num_replicas=2.0), ValueError, 'num_replicas=10'),
    (dict(min_inverse_temperature=0.0), ValueError, 'reference'),
    (dict(min_inverse_temperature=1.0), ValueError, 'min_inverse_temp'),
    (dict(min_inverse_temperature='x'), ValueError, 'min_inverse_temp'),
    (dict(target=3), TypeError, 'target_log_prob_fn'),
    (dict(kernel_fn=3), TypeError, 'kernel_fn'),
    (dict(num_adaptation_steps=-1), ValueError, 'num_adaptation_steps'),
    (dict(reference=3), TypeError, 'reference'),
    (
      dict(reference=tfp.distributions.Normal([0.0, 0.0], 1.0)),
      ValueError,
      'tfd.Independent',
    ),
    (
      dict(
        kernel_fn=lambda target, num_adaptation_steps: (
          tfp.mcmc.MetropolisAdjustedLangevinAlgorithm(target, 0.1)
        )
      ),
      ValueError,
      'builder of `tfpa`',
    ),
    (
      dict(
        kernel_fn=lambda target, num_adaptation_steps: tfpa.crank_nicolson(
          target,
          tfpa.gaussian_priors.spectral(covariance=np.eye(2)),
          num_adaptation_steps,
        )
      ),
      ValueError,
      'its proposal is built on that prior',
    ),
  ],
)
def test_wrong_arguments_are_refused_with_what_to_write(
  options, error, message
):
  arguments = dict(target=targets.standard_normal, num_adaptation_steps=10)
  arguments.update(options)
  with pytest.raises(error, match=message):
    tfpa.replica_exchange(
      arguments.pop('target'),
      arguments.pop('num_adaptation_steps'),
      **arguments,
    )


def test_a_target_that_is_an_estimate_is_refused():
  with pytest.raises(ValueError, match='requires a `seed`'):
    tfpa.replica_exchange(lambda x, seed: targets.standard_normal(x), 10)


def test_a_start_outside_of_the_reference_is_refused():
  def unit_interval(x):
    inside = tf.reduce_all((x > 0.0) & (x < 1.0), axis=-1)
    return tf.where(inside, 0.0 * x[..., 0], -np.inf)

  kernel = tfpa.replica_exchange(
    targets.standard_normal,
    10,
    3,
    tfpa.fisher_divergence_langevin,
    reference=unit_interval,
  )
  with pytest.raises(ValueError, match='reference'):
    kernel.bootstrap_results(tf.constant(np.full((2, 2), 3.0)))
