"""Exact draws of a funnel: what is far off is what tails do not vouch for."""

import numpy as np

from experiments.studies import exact_draws


def test_moments_that_tails_vouch_for_have_the_errors_they_say():
  scores = np.abs(exact_draws.worst_scores(num_seeds=10, num_draws=1000))
  all_moments, vouched = scores.T
  assert np.sum(all_moments > 4.0) >= 2
  # The worst of some eleven, of ten sets.
  assert np.all(vouched < 4.0) and np.mean(vouched) > 1.0
