"""What the series of log det(I + D) is drawn with: number of terms, signs."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfp_adaptive.core import random
from tfp_adaptive.linear import log_det


@pytest.mark.parametrize('num_fixed, prob', [(2, 0.5), (0, 0.3), (3, 0.8)])
def test_the_number_of_terms_has_the_stated_law(num_fixed, prob):
  num_draws = 4000

  @tf.function(autograph=False)
  def draws():
    return tf.map_fn(
      lambda i: log_det.Series(num_fixed, prob).draw_num_terms(
        tf.float32, random.fold_in(tf.constant([3, 4]), i)
      ),
      tf.range(num_draws),
      fn_output_signature=tf.int32,
    )

  extra = draws().numpy() - num_fixed
  assert extra.min() == 0
  cells = 6
  counts = np.bincount(np.minimum(extra, cells - 1), minlength=cells)

  def p_value(prob):
    law = (1.0 - prob) * prob ** np.arange(cells)
    law[-1] = prob ** (cells - 1)
    return stats.chisquare(counts, num_draws * law).pvalue

  assert p_value(prob) > 1e-3
  assert p_value(prob + 0.05) < 1e-6  # The negative control.
