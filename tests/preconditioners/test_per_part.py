"""First scales of a factor with one structure per part."""

import numpy as np
import pytest
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


@pytest.mark.parametrize(
  'scales, common',
  [((2.0, None), None), ((None, None), None), ((2.0, 0.5), 1.0)],
)
def test_the_common_scale_is_given_where_every_block_has_its_own(
  scales, common
):
  blocks = [_diagonal(init_scale=scale) for scale in scales]
  assert tfpa.preconditioners.per_part(blocks).init_scale == common
  assert tfpa.preconditioners.per_part(blocks, 0.3).init_scale == 0.3
