"""Wrong runs of one kernel are refused or warned of.

A refusal says what to write. No run gives numbers without a word, and none
raises an error of TensorFlow.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import target_call
from tfp_adaptive.driver import diagnosis
from tfp_adaptive.driver import sample as sample_lib

tfb = tfp.bijectors
tfd = tfp.distributions

_THREE = tf.TensorSpec([3])
_START = np.random.default_rng(0).normal(size=[4, 3]).astype(np.float32)


_normal = targets.standard_normal


def _two_in_one(state):
  return _normal(state[0]) + _normal(state[1])


def _py_function(x):
  value = tf.py_function(
    lambda v: -0.5 * np.sum(v.numpy() ** 2, -1), [x], x.dtype
  )
  return tf.ensure_shape(value, x.shape[:-1])


def _langevin(density):
  return tfpa.gradient_adaptive_langevin(density, 10)


def _metropolis(density):
  return tfpa.adaptive_metropolis(density, 10)


_GAUSSIAN = tfd.MultivariateNormalDiag(tf.zeros([3]))


@pytest.mark.parametrize(
  'density, start, message',
  [
    (_normal, _THREE, '`init_state` must be where'),
    (_normal, np.zeros([4, 3], int), 'must be of floating numbers'),
    (_normal, _START.tolist(), 'rows of one array'),
    (_two_in_one, [_START, _START], r'2 parts of a list.*density\(x0, x1\):`'),
    (_GAUSSIAN.log_prob, _START[:, :2], 'Do the shapes of the data fit'),
    (_GAUSSIAN.log_prob, _START.astype(np.float64), 'data and constants in'),
    (lambda x: None, _START, 'returned None'),
    (_py_function, _START, 'has no gradient'),
    (lambda x: _normal(x) - np.inf, _START, 'the start of chain 0'),
    (_normal, np.zeros([2, 100_000], np.float32), '100000 coordinates'),
  ],
)
def test_a_density_and_a_start_that_do_not_fit_are_refused(
  density, start, message
):
  with pytest.raises((TypeError, ValueError), match=message):
    tfpa.sample(_langevin(density), start, num_results=5, progress=False)


def test_a_density_in_numpy_is_refused():
  kernel = _metropolis(lambda x: -0.5 * np.sum(np.square(x), axis=-1))
  with pytest.raises(ValueError, match='without numpy, scipy'):
    tfpa.sample(kernel, _START, num_results=5, progress=False)


@pytest.mark.parametrize('kernel', [_normal, tfp.mcmc.HamiltonianMonteCarlo])
def test_what_is_no_kernel_is_refused(kernel):
  with pytest.raises(TypeError, match='`kernel` must be a `tfp.mcmc.Trans'):
    tfpa.sample(kernel, _START, num_results=5)


@pytest.mark.parametrize(
  'name, values',
  [
    ('num_results', [0, 2.5, True, None]),
    ('num_burnin_steps', [-1, 1.0]),
    ('num_steps_between_results', [-1]),
    ('block_size', [0, '10']),
    ('seed', [None, True, 'a', (1, 2, 3), (0.5, 1.0), 2**62, (0, 2**32)]),
    ('checkpoint_dir', [True, '']),
    ('draws_dir', [3]),
    ('trace_fn', [lambda state, results: None]),
  ],
)
def test_a_wrong_argument_is_refused_by_name(name, values):
  kernel = _langevin(_normal)
  for value in values:
    run = dict(num_results=5, jit_compile=False, progress=False) | {name: value}
    with pytest.raises(ValueError, match=f'`{name}` '):
      tfpa.sample(kernel, _START, **run)


def _in_python(error):
  """Returns a density in Python that raises far out, where no chain starts."""

  def value(rows):
    rows = np.asarray(rows)
    if np.any(np.abs(rows) > 2.5):
      raise error
    return np.float32(-0.5 * np.sum(rows**2, axis=-1))

  def density(x):
    values = tf.numpy_function(value, [x], tf.float32)
    return tf.ensure_shape(values, x.shape[:-1])

  return density


def _with_an_assertion(x):
  near = tf.debugging.assert_less(tf.abs(x), 2.5, message='x is too far')
  with tf.control_dependencies([near]):
    return _normal(x)


def _with_a_check_of_numbers(x):
  far = tf.where(tf.abs(x) > 2.5, np.nan, x)
  return tf.debugging.check_numerics(_normal(far), 'my check')


@pytest.mark.parametrize(
  'density, said',
  [
    (_in_python(ValueError('no root\nfound')), 'ValueError: no root found. L'),
    (_with_an_assertion, 'assertion failed: [x is too far]'),
    (_with_a_check_of_numbers, 'my check : Tensor had NaN values'),
  ],
)
def test_a_density_that_raises_in_some_region_is_told_in_the_words_of_users(
  density, said
):
  with pytest.raises(ValueError) as raised:
    tfpa.sample(
      _metropolis(density),
      np.zeros([4, 3], np.float32),
      num_results=500,
      jit_compile=False,
      progress=False,
    )
  text = str(raised.value)
  assert text.startswith('The log density raised an error while it was sampled')
  assert said in text and '`checkpoint_dir`' in text
  assert '{{' not in text and 'Traceback' not in text and '\n' not in text


def test_what_is_no_fault_of_the_density_is_raised_as_it_is():
  error = tf.errors.ResourceExhaustedError(None, None, 'OOM')
  assert target_call.failed(error) is error


@pytest.mark.parametrize(
  'kernel, message',
  [
    (_metropolis(lambda x: -tf.reduce_sum(x**2)), 'all of it is one chain'),
    (
      _metropolis(lambda x: _normal(x - tf.reduce_mean(x, axis=0))),
      'another chain moves: it mixes chains',
    ),
    (
      _metropolis(lambda x: _normal(x) + tf.random.uniform([4])),
      'it mixes chains, or is random',
    ),
    # Chains of targets of their own.
    (_metropolis(lambda x: _normal(x) + np.float32([1, 2, 3, 4])), None),
    (
      tfp.mcmc.UncalibratedRandomWalk(_normal),
      'UncalibratedRandomWalk is not calibrated',
    ),
    (_metropolis(_normal), None),
    (tfp.mcmc.RandomWalkMetropolis(_normal), None),
    (
      tfp.mcmc.TransformedTransitionKernel(_metropolis(_normal), tfb.Exp()),
      None,
    ),
  ],
)
def test_a_run_that_may_be_meant_is_warned_of(kernel, message):
  said = _warned_of(kernel, np.abs(_START))
  assert len(said) == (message is not None)
  assert all(message in sentence for sentence in said)


def _warned_of(kernel, start):
  start = tf.constant(start)
  results = kernel.bootstrap_results(start)
  return list(diagnosis.warnings_before(kernel, start, results))


def test_mixed_chains_are_seen_behind_a_large_constant():
  mixed = _metropolis(lambda x: _normal(x - tf.reduce_mean(x, 0)) - 1e5)
  (said,) = _warned_of(mixed, _START.astype(np.float64))
  assert said.startswith('The log density of a chain changes')


def test_a_kernel_that_did_not_adapt_has_not_failed_to_settle():
  kernel = tfpa.gradient_adaptive_langevin(_normal, 0)
  results = kernel.bootstrap_results(tf.constant(_START))
  accepted = dict(is_accepted=np.ones([1000, 4], bool))
  assert not list(kernel.warnings_after(results, accepted))


def test_a_cost_does_not_fall_when_results_are_known():
  kernel = tfpa.gradient_adaptive_langevin(_normal, 10)
  results = kernel.bootstrap_results(tf.constant(_START))
  known = tfpa.cost_per_step(kernel, True, results)
  assert known == tfpa.cost_per_step(kernel, True)


def test_a_run_with_a_time_limit_is_not_judged(monkeypatch):
  def interrupted(*args):
    raise KeyboardInterrupt

  monkeypatch.setattr(diagnosis, 'worst_coordinates', interrupted)
  given = sample_lib.Arguments(
    _metropolis(_normal), _START, 200, jit_compile=False
  )
  assert len(sample_lib.sample_until(lambda: 60.0, given).states) == 200


def test_chains_that_start_alike_are_seen_to_be_mixed():
  start = _START[[0, 0, 0, 3]]
  mixed = _metropolis(lambda x: _normal(x - tf.reduce_mean(x, axis=0)))
  (said,) = _warned_of(mixed, start)
  assert 'another chain moves: it mixes chains' in said
  assert not _warned_of(_metropolis(_normal), start)
  assert not _warned_of(_metropolis(_normal), start[:1])
