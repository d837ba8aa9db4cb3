"""Cross-validated fits drive long trajectories on a banana."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_adaptive.surrogate.models import kernel_exponential_family_finite
from tfp_adaptive.surrogate.models import score_matching
from tfp_adaptive.surrogate.models import surrogate_frame
from tfp_adaptive.surrogate.models.kernel_exponential_family_finite import (
  _basis as finite_basis,
)

_SIZE, _BEND, _VARIANCE = 8, 0.03, 100.0
_NUM_POINTS, _NUM_FEATURES = 1000, 500
_STEP_SIZE, _NUM_LEAPFROG_STEPS = 0.5, 20


def _draw(num, rng):
  x = rng.normal(size=(num, _SIZE))
  x[:, 0] *= _VARIANCE**0.5
  x[:, 1] += _BEND * (x[:, 0] ** 2 - _VARIANCE)
  return x


def _log_prob(x):
  straight = x[:, 1] - _BEND * (x[:, 0] ** 2 - _VARIANCE)
  rest = np.sum(x[:, 2:] ** 2, axis=-1)
  return -0.5 * (x[:, 0] ** 2 / _VARIANCE + straight**2 + rest)


def _exact_score(x):
  straight = x[:, 1] - _BEND * (x[:, 0] ** 2 - _VARIANCE)
  score = -x
  score[:, 0] = -x[:, 0] / _VARIANCE + 2.0 * _BEND * straight * x[:, 0]
  score[:, 1] = -straight
  return score


def _acceptance(score, num=400):
  """Returns mean acceptance of trajectories of unit mass from exact draws."""
  rng = np.random.default_rng(11)
  x = _draw(num, rng)
  momentum = rng.normal(size=x.shape)
  energy = _log_prob(x) - 0.5 * np.sum(momentum**2, axis=-1)
  momentum += 0.5 * _STEP_SIZE * score(x)
  for step in range(_NUM_LEAPFROG_STEPS):
    x = x + _STEP_SIZE * momentum
    half = 0.5 if step == _NUM_LEAPFROG_STEPS - 1 else 1.0
    momentum += half * _STEP_SIZE * score(x)
  change = _log_prob(x) - 0.5 * np.sum(momentum**2, axis=-1) - energy
  return np.mean(np.exp(np.minimum(change, 0.0)))


@pytest.mark.nightly
def test_the_chosen_fit_accepts_where_a_bad_choice_does_not():
  surrogate = kernel_exponential_family_finite(_NUM_POINTS, _NUM_FEATURES)
  weights = tf.fill([_NUM_POINTS], tf.constant(1 / _NUM_POINTS, tf.float64))
  fit = tf.function(surrogate.fit, jit_compile=True, autograph=False)
  score = tf.function(surrogate.score, jit_compile=True, autograph=False)

  def draws(seed):
    return tf.constant(_draw(_NUM_POINTS, np.random.default_rng(seed)))

  def acceptance(params):
    return _acceptance(lambda x: score(params, tf.constant(x)).numpy())

  accepted = []
  for seed in range(3):
    params = surrogate.init(_SIZE, tf.float64, (seed, 2))
    for _ in range(3):
      params = fit(params, draws(seed), weights, tf.constant([0, 0]))
    accepted.append(acceptance(params))
  bad = acceptance(_at_a_bad_choice(params, draws(2), weights))
  assert _acceptance(_exact_score) > 0.9
  assert np.mean(accepted) > 0.75
  assert bad < 0.5


def _at_a_bad_choice(params, points, weights):
  """Returns params whose kernel is too wide, without a base."""
  z = surrogate_frame.whiten(params.frame, points)
  choice = score_matching.Choice(
    *[tf.constant(value, tf.float64) for value in (1e3, 1.0, 0.0, 0.0)]
  )
  identity = tf.eye(_SIZE, dtype=tf.float64)
  maps = identity / (1e3 * _SIZE) ** 0.5
  solve = tf.function(
    lambda z: score_matching.solve(
      finite_basis(_NUM_FEATURES),
      maps,
      params.data,
      choice,
      score_matching.Draws(z, weights),
      identity,
    )[0],
    autograph=False,
  )
  return params._replace(
    map=maps, precision=0.0 * identity, coefficients=solve(z), choice=choice
  )
