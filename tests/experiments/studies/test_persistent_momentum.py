"""Kept momenta, uniforms that move and mixtures of factors are exact."""

import numpy as np
import pytest
import tensorflow as tf

from experiments.studies import persistent_momentum

pytestmark = pytest.mark.full

_NUM_CHAINS, _DEGREES = 100_000, 9.0
# Of a normal, 6 of ten million are beyond 5.
_NUM_STEPS, _BOUND = 12, 5.0
_FACTOR = np.array([[1.0, 0.0], [0.8, 0.6]])
_OTHER = np.array([[0.5, 0.3], [0.0, 1.0]])
_LAWS = {
  'range': dict(),
  'kept': dict(lengths=[[1, 1]] * 2, persistence=0.9),
  'kept, two steps': dict(lengths=[[2, 2]] * 2, persistence=0.7),
  'moved uniform': dict(
    lengths=[[1, 1]] * 2, persistence=0.9, drift=0.1, is_fresh=False
  ),
  'factors': dict(factors=[_FACTOR, _OTHER], lengths=[[1, 1], [3, 3]]),
  'all': dict(
    factors=[_FACTOR, _OTHER],
    lengths=[[1, 1], [3, 4]],
    persistence=0.8,
    drift=0.2,
    is_fresh=False,
  ),
}


def _log_prob(x):
  """A correlated Student-t of covariance _FACTOR _FACTOR^T 9 / 7."""
  white = tf.linalg.matvec(np.linalg.inv(_FACTOR), x)
  square = tf.reduce_sum(white**2, axis=-1)
  return -0.5 * (_DEGREES + 2.0) * tf.math.log1p(square / _DEGREES)


def _draws(rng):
  normals = rng.normal(size=(_NUM_CHAINS, 2))
  chi = rng.chisquare(_DEGREES, size=(_NUM_CHAINS, 1))
  return normals * (_DEGREES / chi) ** 0.5 @ _FACTOR.T


def _law(
  factors=(_FACTOR, _FACTOR),
  lengths=((1, 3), (1, 3)),
  persistence=0.0,
  drift=0.0,
  is_fresh=True,
  step_size=1.3,
):
  return persistent_momentum.Law(
    tf.constant(step_size * np.array(factors)),
    tf.constant(lengths, tf.int32),
    tf.constant(persistence, tf.float64),
    tf.constant(drift, tf.float64),
    tf.constant(is_fresh),
  )


def _compiled():
  def run(law, state, seed):
    last, _, _, accepted = persistent_momentum.block(
      _log_prob, law, state, seed, _NUM_STEPS
    )
    return last, accepted

  return tf.function(run, autograph=False, jit_compile=True)


@pytest.fixture(scope='module')
def exact_run():
  """All laws have the same shapes, and one program."""
  return _compiled()


def _worst(run, law, seed=1):
  """Returns the largest z of what exact draws become, and the acceptance."""
  rng = np.random.default_rng(seed)
  exact, fresh = _draws(rng), _draws(rng)
  state = persistent_momentum.start(_log_prob, tf.constant(exact), [seed, 2])
  state, accepted = run(law, state, tf.constant([seed, 3]))
  found = _statistics(
    state.point.position.numpy(),
    state.point.velocity.numpy(),
    state.uniform.numpy(),
  )
  velocity = rng.normal(size=fresh.shape)
  uniform = rng.uniform(-1.0, 1.0, _NUM_CHAINS)
  expected = _statistics(fresh, velocity, uniform)
  error = (found.var(0) + expected.var(0)) / _NUM_CHAINS
  z = (found.mean(0) - expected.mean(0)) / error**0.5
  return np.abs(z).max(), accepted.numpy().mean()


def _statistics(x, v, u):
  """Bounded functions of x, v and u of each chain, [chains, n]."""
  white = x @ np.linalg.inv(_FACTOR).T
  radius = np.sqrt(np.sum(white**2, axis=-1, keepdims=True))
  parts = [np.tanh(white), np.tanh(v), u[:, np.newaxis], np.tanh(radius)]
  flat = np.concatenate(parts, axis=-1)
  pairs = flat[:, :, np.newaxis] * flat[:, np.newaxis]
  rows, columns = np.triu_indices(flat.shape[1])
  thresholds = radius < np.array([0.5, 1.0, 1.5, 2.5])
  height = np.abs(u)[:, np.newaxis] * np.concatenate([radius < 1.0, v**2], -1)
  return np.concatenate(
    [flat, pairs[:, rows, columns], thresholds, height], axis=-1
  )


@pytest.mark.parametrize('name', _LAWS)
def test_exact_draws_stay_exact(name, exact_run):
  worst, accepted = _worst(exact_run, _law(**_LAWS[name]))
  assert worst < _BOUND
  # Rejections are what may go wrong.
  assert 0.5 < accepted < 0.95


@pytest.mark.parametrize(
  'function, broken, name',
  [
    ('_turned', lambda velocity: velocity, 'kept'),
    ('_turned', lambda velocity: velocity, 'moved uniform'),
    ('_carried', lambda uniform, log_ratio: uniform, 'moved uniform'),
  ],
)
def test_a_broken_rule_is_seen(function, broken, name, monkeypatch):
  monkeypatch.setattr(persistent_momentum, function, broken)
  assert _worst(_compiled(), _law(**_LAWS[name]))[0] > 2 * _BOUND
