"""Kept momenta, uniforms that move and mixtures of factors are exact."""

import numpy as np
import pytest
import tensorflow as tf

from experiments.studies import persistent_momentum
from tests.contracts import momenta

pytestmark = pytest.mark.full

# Of a normal, 6 of ten million are beyond 5.
_NUM_STEPS, _BOUND = 12, 5.0
_OTHER = np.array([[0.5, 0.3], [0.0, 1.0]])
_LAWS = {
  'range': dict(),
  'kept': dict(lengths=[[1, 1]] * 2, persistence=0.9),
  'kept, two steps': dict(lengths=[[2, 2]] * 2, persistence=0.7),
  'moved uniform': dict(
    lengths=[[1, 1]] * 2, persistence=0.9, drift=0.1, is_fresh=False
  ),
  'factors': dict(factors=[momenta.FACTOR, _OTHER], lengths=[[1, 1], [3, 3]]),
  'all': dict(
    factors=[momenta.FACTOR, _OTHER],
    lengths=[[1, 1], [3, 4]],
    persistence=0.8,
    drift=0.2,
    is_fresh=False,
  ),
}


def _law(
  factors=(momenta.FACTOR, momenta.FACTOR),
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
      momenta.log_prob, law, state, seed, _NUM_STEPS
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
  exact = tf.constant(momenta.draws(rng))
  state = persistent_momentum.start(momenta.log_prob, exact, [seed, 2])
  state, accepted = run(law, state, tf.constant([seed, 3]))
  found = state.point.position, state.point.velocity, state.uniform
  z = momenta.worst(*(part.numpy() for part in found), rng)
  return z, accepted.numpy().mean()


@pytest.mark.parametrize('name', _LAWS)
def test_exact_draws_stay_exact(name, exact_run):
  worst, accepted = _worst(exact_run, _law(**_LAWS[name]))
  assert worst < _BOUND
  # Rejections are what may go wrong.
  assert 0.5 < accepted < 0.95


@pytest.mark.nightly
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
