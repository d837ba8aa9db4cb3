"""What must agree for a run to be continued."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tests.contracts import targets
from tfp_adaptive import _version
from tfp_adaptive.driver import program_digest
from tfp_adaptive.driver import run_identity

_Plan = collections.namedtuple('Plan', ['num_results'])


def _described():
  kernel = tfp.mcmc.RandomWalkMetropolis(targets.standard_normal)
  state = tf.zeros([3, 2])
  program = program_digest.Program('12', {}, False)
  return run_identity.describe(
    kernel, _Plan(5), (1, 2), False, state, state, None, program
  )


@pytest.mark.parametrize('package', [tf, tfp, np, _version])
def test_other_versions_are_another_run(monkeypatch, package):
  saved = _described()
  assert run_identity.differences(saved, _described()) == []
  monkeypatch.setattr(package, '__version__', '0.0')
  (words,) = run_identity.differences(saved, _described())
  assert words.startswith('versions (saved ')
