"""Steps of theta shaped by a factor: their covariance and their ratio."""

import numpy as np
import pytest

import tfp_adaptive as tfpa
from tests.latent import hyperparameter_model as model

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
