"""Models in three languages: the same data, and the same densities."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from experiments import models
from experiments.models import eight_schools
from experiments.run import store
from experiments.studies import rivals_densities

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_DENSITIES = _ROOT / 'records' / 'rivals_densities.jsonl'
# Data that are not bundled.
_WITH_DATA = {'heart', 'german'}
_BUNDLED = sorted(set(models.MODELS) - _WITH_DATA)
_MOST_ERRORS = 4.0  # Standard errors.


@pytest.mark.full
@pytest.mark.parametrize('name', _BUNDLED)
def test_the_density_is_that_of_the_other_languages(name):
  # PyMC and NumPyro are not here: their densities at these points are recorded.
  record = {r.case: r.record for r in store.read(_DENSITIES)}[name]
  module = models.load(name)
  model = module.tfp_model(**module.data())
  log_prob = tf.function(model.unnormalized_log_prob, autograph=False)
  found = log_prob(rivals_densities.points(model)).numpy()
  # Points differ, or agreement would say nothing.
  assert np.ptp(found) > 1e-2
  for language in ('numpyro', 'pymc'):
    np.testing.assert_allclose(found, record[language], rtol=2e-4, atol=2e-4)


def test_exact_means_of_schools_are_those_of_weighted_prior_draws():
  random = np.random.RandomState(0)
  size = 1_000_000
  spread = np.abs(5.0 * random.standard_cauchy(size))
  mean = 5.0 * random.normal(size=size)
  log_weights = np.zeros(size)
  draws = {'mean': mean, 'spread': spread}
  for j, (seen, error) in enumerate(zip(*eight_schools.data().values())):
    effect = mean + spread * random.normal(size=size)
    log_weights -= 0.5 * ((seen - effect) / error) ** 2
    draws[f'effect[{j}]'] = effect
  weights = np.exp(log_weights - log_weights.max())
  weights /= weights.sum()
  exact = models.exact_means('eight_schools')
  assert set(exact) == set(draws)
  for name, values in draws.items():
    found = weights @ values
    error = np.sqrt(np.sum((weights * (values - found)) ** 2))
    assert abs(found - exact[name]) < _MOST_ERRORS * error, name
    # The prior is so far away that it would be seen.
    assert abs(np.median(values) - exact[name]) > 8.0 * error, name
  assert models.exact_means('arma') == {}
