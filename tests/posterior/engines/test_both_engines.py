"""The host engine and compiled kernels draw from the same posteriors."""

import numpy as np
import pytest
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments import models
from tfp_adaptive.posterior import chains

# Small models: unbounded, positive and ordered unknowns, matrices and maps.
_MODELS = (
  'arma',
  'eight_schools',
  'eight_schools_non_centered',
  'garch',
  'hurdle',
  'mixture',
  'negative_binomial',
  'ordinal',
  'robust_regression',
  'survival',
)
_FAR = 4.5  # Standard errors.


def _moments(rows):
  """Returns means of draws and squares, and their errors, [2 d] each.

  Args:
    rows: [n, chains, d].
  """
  both = np.concatenate([rows, rows**2], axis=-1)
  sizes = tfp.mcmc.effective_sample_size(
    both, cross_chain_dims=1, filter_beyond_positive_pairs=True
  ).numpy()
  return both.mean((0, 1)), both.std((0, 1)) / np.sqrt(sizes)


def _distance(one, other):
  """Returns the largest difference of moments in standard errors."""
  (means, errors), (others, more) = one, other
  return np.max(np.abs(means - others) / np.hypot(errors, more))


@pytest.mark.nightly
@pytest.mark.parametrize('name', _MODELS)
def test_both_engines_have_the_same_moments(monkeypatch, name):
  module = models.load(name)

  def drawn(seed):
    model = module.tfp_model(**module.data())
    return tfpa.sample_posterior(model, seed=seed, progress=False)

  host = drawn(0)
  monkeypatch.setattr(chains, '_part_on_host', lambda *args: None)
  compiled = drawn(1)
  assert host.converged and compiled.converged
  center = host.unconstrained.mean((0, 1))
  scale = host.unconstrained.std((0, 1))
  rows = [(p.unconstrained - center) / scale for p in (host, compiled)]
  moments = list(map(_moments, rows))
  assert _distance(*moments) < _FAR
  # Power: deviations that are 15 % too large are told apart.
  assert _distance(moments[0], _moments(1.15 * rows[1])) > _FAR
