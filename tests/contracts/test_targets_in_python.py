"""Densities in Python code, whose results have no shape in a graph."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import registry
from tests.contracts import targets

_START = tf.constant(np.random.default_rng(0).normal(size=(4, 2)))


def _python(x):
  return tf.numpy_function(
    lambda x: -0.5 * np.sum(x**2, axis=-1), [x], tf.float64
  )


@pytest.mark.full
@pytest.mark.parametrize(
  'case',
  registry.tiered(
    [
      case
      for case in [*registry.SAMPLERS, cases.named('elliptical_slice')]
      if not case.uses_gradient
    ],
    registry.BASELINES,
  ),
)
def test_kernels_without_gradients_take_them_without_xla(case):
  python, tensorflow = (
    tfpa.sample(
      case.build(target, 10, size=2),
      _START,
      num_results=50,
      seed=3,
      jit_compile=False,
      progress=False,
    ).states
    for target in (_python, targets.standard_normal)
  )
  assert len(np.unique(tensorflow)) > 10
  np.testing.assert_allclose(python, tensorflow, rtol=1e-8)
