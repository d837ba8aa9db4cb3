"""Steps of theta shaped by a factor: law, ratio, refusals."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.latent import hyperparameter_model as model

tfd = tfp.distributions


_FACTOR = np.array([[1.6, 0.0], [1.2, 0.4]])


def _bare(
  hyperprior=model.hyperprior, log_likelihood=model.log_likelihood, **options
):
  """Returns the kernel without wrappers, theta's steps of shape _FACTOR."""
  return tfpa.proposals.LatentGaussianHyperparameters(
    log_likelihood,
    model.prior_fn,
    hyperprior(),
    lambda *args: tfpa.MetropolisHastings(
      tfpa.proposals.UncalibratedAuxiliaryGradient(*args)
    ),
    hyper_factor=_FACTOR,
    **options,
  )


def test_steps_of_theta_have_the_covariance_of_the_factor():
  kappa, num_chains = 1e-4, 4000
  kernel = _bare(hyper_step_size=kappa)
  start = model.start(num_chains)
  (_, theta), results = kernel.one_step(
    start, kernel.bootstrap_results(start), seed=(3, 4)
  )
  moved = np.asarray(results.hyper_is_accepted)
  steps = np.stack(
    [(theta[name] - start[1][name]).numpy()[moved] for name in sorted(theta)]
  )
  assert moved.sum() > 1000
  whitened = np.linalg.solve(kappa * _FACTOR, steps)
  error = np.sqrt(2.0 / whitened.shape[-1])
  covariance = whitened @ whitened.T / whitened.shape[-1]
  np.testing.assert_allclose(covariance, np.eye(2), atol=4.0 * error)


def test_ratio_with_a_factor_is_that_of_dense_densities():
  kernel = _bare(joint=False, hyper_step_size=0.3)
  start = model.start(40)
  (x, theta), results = kernel.one_step(
    start, kernel.bootstrap_results(start), seed=(3, 4)
  )
  accepted = np.flatnonzero(results.hyper_is_accepted)
  assert 5 < len(accepted) < 38
  for i in accepted:
    old, new = (
      {name: np.exp(parts[name][i]) for name in parts}
      for parts in (start[1], theta)
    )
    step = [np.log(new[name] / old[name]) for name in sorted(old)]
    forth, back = (
      model.log_normal(sign * np.array(step), 0.0, 0.09 * _FACTOR @ _FACTOR.T)
      for sign in (1.0, -1.0)
    )
    ratio = (
      model.dense_log_joint(x[i].numpy(), **new)
      - model.dense_log_joint(x[i].numpy(), **old)
      + back
      - forth
    )
    assert results.hyper_log_accept_ratio[i].numpy() == pytest.approx(
      ratio, abs=1e-9
    )


def _largest_shift(joint, temper):
  """Returns how far a step moves statistics of exact draws, in errors.

  Every chain has data of its own, drawn from theta and x drawn before: its
  state is a draw from its posterior.
  """
  num_chains = 20_000
  rng = np.random.default_rng(11)
  theta = {
    name: rng.normal(loc, scale, size=num_chains)
    for name, (loc, scale) in model.LOG_NORMAL.items()
  }
  matrices = model.kernel_matrix(
    np.exp(theta['amplitude']), np.exp(theta['length_scale']), np
  )
  noise = rng.normal(size=(2, num_chains, model.D))
  x = model.MEAN + np.einsum(
    'nij,nj->ni', np.linalg.cholesky(matrices), noise[0]
  )
  data = x + np.sqrt(model.NOISE) * noise[1]

  def log_likelihood(x):
    miss = tf.constant(data) - x
    return -0.5 * temper * tf.reduce_sum(miss**2, axis=-1) / model.NOISE

  kernel = _bare(
    log_likelihood=log_likelihood,
    joint=joint,
    delta=0.6,
    hyper_step_size=0.4,
  )
  start = tf.constant(x), tf.nest.map_structure(tf.constant, theta)
  (after, theta_after), results = kernel.one_step(
    start, kernel.bootstrap_results(start), seed=(5, 6)
  )
  assert np.mean(results.hyper_is_accepted) > 0.05

  def statistics(x, theta):
    a, b = (np.asarray(theta[name]) for name in sorted(theta))
    size = np.log(np.sum((x - model.MEAN) ** 2, axis=-1))
    miss = np.sum((x - data) ** 2, axis=-1)
    return np.stack([a, b, a * a, b * b, a * b, a * size, b * size, size, miss])

  shift = statistics(after.numpy(), theta_after) - statistics(x, theta)
  error = shift.std(axis=-1) / np.sqrt(num_chains)
  return np.max(np.abs(shift.mean(axis=-1) / error))


@pytest.mark.parametrize('joint', [True, False])
def test_a_step_with_a_factor_leaves_the_posterior_invariant(joint):
  # Nine statistics: beyond 3.9 errors once in a thousand seeds.
  assert _largest_shift(joint, temper=1.0) < 3.9


@pytest.mark.parametrize('joint', [True, False])
def test_a_tempered_likelihood_is_detected(joint):
  assert _largest_shift(joint, temper=1.2) > 8.0


def test_a_factor_of_another_size_is_refused():
  kernel = tfpa.proposals.LatentGaussianHyperparameters(
    **{**_bare().parameters, 'hyper_factor': np.eye(3)}
  )
  with pytest.raises(ValueError, match=r'\[2, 2\] matrix, as theta has 2'):
    kernel.bootstrap_results(model.start(2))
