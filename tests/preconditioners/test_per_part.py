"""First scales of a factor with one structure per part."""

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa

_diagonal = tfpa.preconditioners.diagonal


def test_a_first_scale_of_a_block_multiplies_the_common_one():
  part = tfpa.preconditioners.per_part(
    [
      _diagonal(init_scale=2.0),
      _diagonal(),
      _diagonal(init_scale=lambda size: 5.0 / size),
    ]
  )
  params = part.init([1, 2, 4], tf.float64, tf.constant(3.0, tf.float64))
  np.testing.assert_allclose(
    np.diag(part.operator(params).to_dense()),
    [6.0, 3.0, 3.0, 3.75, 3.75, 3.75, 3.75],
  )
