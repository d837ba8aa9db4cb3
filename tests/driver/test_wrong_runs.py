"""Runs of one kernel that a stranger writes, and what they are told.

Each is refused with a sentence that says what to write, or warned of where it
may be meant; none gives numbers without a word, none an error of TensorFlow.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tfp_adaptive.core import target_call
from tfp_adaptive.driver import diagnosis

tfb = tfp.bijectors
tfd = tfp.distributions

_THREE = tf.TensorSpec([3])
_START = np.random.default_rng(0).normal(size=[4, 3]).astype(np.float32)


def _normal(x):
  return -0.5 * tf.reduce_sum(x**2, axis=-1)


def _two(a, b):
  return _normal(a) + _normal(b)


def _two_in_one(state):
  return _normal(state[0]) + _normal(state[1])


def _py_function(x):
  value = tf.py_function(
    lambda v: -0.5 * np.sum(v.numpy() ** 2, -1), [x], x.dtype
  )
  return tf.ensure_shape(value, x.shape[:-1])


_NO_KERNEL = '`kernel` must be a `tfp.mcmc.Trans.*Write for example'
_MODEL = tfd.JointDistributionSequential([tfd.Normal(0.0, 1.0)])


def _langevin(density, num_adaptation_steps=10, **options):
  return tfpa.gradient_adaptive_langevin(
    density, num_adaptation_steps, **options
  )


def _metropolis(density):
  return tfpa.adaptive_metropolis(density, 10)


@pytest.mark.parametrize(
  'build, start, error, message',
  [
    (lambda: _langevin(_MODEL), _START, TypeError, 'must be callable'),
    (lambda: _langevin(_normal(_START)), _START, TypeError, 'be callable'),
    (lambda: _langevin(_normal, -1), _START, ValueError, 'a non-negative int'),
    (lambda: _langevin(_normal, 1e3), _START, ValueError, 'a non-negative int'),
    (
      lambda: _langevin(_normal, preconditioner='diagonal'),
      _START,
      TypeError,
      r'\(with parentheses\)',
    ),
    (lambda: _langevin(_normal), None, TypeError, '`init_state` must be where'),
    (lambda: _langevin(_normal), _THREE, TypeError, '`init_state` must be whe'),
    (
      lambda: _langevin(_normal),
      np.zeros([4, 3], int),
      TypeError,
      'must be of floating numbers',
    ),
    (
      lambda: _langevin(_normal),
      _START.tolist(),
      ValueError,
      r'the 4 parts of a list one by one \(rows of one array',
    ),
    (
      lambda: _langevin(_two_in_one),
      [_START, _START],
      ValueError,
      r'`def log_density\(x0, x1\):`',
    ),
    (
      lambda: _langevin(lambda x, y: _two(x, y)),
      {'a': _START, 'b': _START},
      ValueError,
      r'dict by name. Write `def log_density\(a, b\):`',
    ),
    (
      lambda: _langevin(_two),
      [_START, _START[:3]],
      ValueError,
      'Do the shapes of the data fit the model, and do chains come first',
    ),
    (
      lambda: _langevin(tfd.MultivariateNormalDiag(tf.zeros([2])).log_prob),
      _START,
      ValueError,
      'Do the shapes of the data fit the model',
    ),
    (
      lambda: _langevin(tfd.MultivariateNormalDiag(tf.zeros([3])).log_prob),
      _START.astype(np.float64),
      ValueError,
      'Write all data and constants in the dtype',
    ),
    (
      lambda: _langevin(lambda x: tf.cast(_normal(x), tf.float64)),
      _START,
      TypeError,
      'returned float64 for a state of float32',
    ),
    (lambda: _langevin(lambda x: None), _START, ValueError, 'returned None'),
    (lambda: _langevin(_py_function), _START, ValueError, 'has no gradient'),
    (
      lambda: _metropolis(lambda x: -0.5 * np.sum(np.square(x), axis=-1)),
      _START,
      ValueError,
      'without numpy, scipy',
    ),
    (
      lambda: _langevin(lambda x: _normal(x) - np.inf),
      _START,
      ValueError,
      r'not finite at the start of chain 0 \(-inf\)',
    ),
    (
      lambda: _langevin(lambda x: _normal(x) - np.inf),
      _START[0],
      ValueError,
      r'not finite at the start of the chain \(-inf\)',
    ),
    (
      lambda: _langevin(_normal),
      np.zeros([2, 100_000], np.float32),
      ValueError,
      r'100000 coordinates .* `preconditioner=tfpa.preconditioners.diagonal',
    ),
    (lambda: _normal, _START, TypeError, _NO_KERNEL),
    (lambda: tfp.mcmc.HamiltonianMonteCarlo, _START, TypeError, _NO_KERNEL),
  ],
)
def test_a_wrong_run_of_a_kernel_is_refused(build, start, error, message):
  with pytest.raises(error, match=message):
    tfpa.sample(build(), start, num_results=5, progress=False)


_COUNT = 'must be'
_SEED = 'must be an int, a pair'


@pytest.mark.parametrize(
  'options, message',
  [
    (dict(num_results=0), _COUNT),
    (dict(num_results=-1), _COUNT),
    (dict(num_results=2.5), _COUNT),
    (dict(num_results=True), _COUNT),
    (dict(num_results=None), _COUNT),
    (dict(num_burnin_steps=-1), _COUNT),
    (dict(num_burnin_steps=1.0), _COUNT),
    (dict(num_steps_between_results=-1), _COUNT),
    (dict(block_size=0), _COUNT),
    (dict(block_size='10'), _COUNT),
    (dict(seed=None), _SEED),
    (dict(seed=True), _SEED),
    (dict(seed='a'), _SEED),
    (dict(seed=(1, 2, 3)), _SEED),
    (dict(seed=(0.5, 1.0)), _SEED),
    (dict(trace_fn=lambda state, results: None), 'returned None'),
  ],
)
def test_a_wrong_argument_is_refused_by_name(options, message):
  (name,) = options
  run = dict(num_results=5, jit_compile=False, progress=False)
  with pytest.raises(ValueError, match=f'`{name}` {message}'):
    tfpa.sample(_langevin(_normal), _START, **run | options)


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
    (_in_python(KeyError('a')), "KeyError: 'a'. Let"),
    (_in_python(OverflowError('off the table')), 'OverflowError: off the t'),
    (_in_python(RuntimeError()), 'RuntimeError. Let'),
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


@pytest.mark.parametrize(
  'error',
  [
    tf.errors.ResourceExhaustedError(None, None, 'OOM when allocating tensor'),
    tf.errors.InternalError(None, None, 'CUDA failed'),
  ],
)
def test_what_is_no_fault_of_the_density_is_raised_as_it_is(error):
  assert target_call.failed(error) is error


@pytest.mark.full
def test_draws_before_a_density_raised_are_in_the_folder(tmp_path):
  calls = []

  def value(rows):
    calls.append(0)
    if len(calls) > 100:
      raise ValueError('far')
    return np.float32(-0.5 * np.sum(rows**2, axis=-1))

  def density(x):
    values = tf.numpy_function(value, [x], tf.float32)
    return tf.ensure_shape(values, x.shape[:-1])

  run = dict(num_results=500, jit_compile=False, progress=False, block_size=10)
  with pytest.raises(ValueError, match='ValueError: far'):
    tfpa.sample(_metropolis(density), _START, checkpoint_dir=tmp_path, **run)
  assert any(tmp_path.iterdir())


@pytest.mark.parametrize(
  'kernel, message',
  [
    (_metropolis(lambda x: -tf.reduce_sum(x**2)), 'all of it is one chain'),
    (_metropolis(lambda x: -(x**2)), 'every number of it is a chain'),
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


@pytest.mark.parametrize('start', [_START * 0.0, _START[[0, 0, 0, 3]]])
def test_chains_that_start_alike_are_seen_to_be_mixed(start):
  mixed = _metropolis(lambda x: _normal(x - tf.reduce_mean(x, axis=0)))
  (said,) = _warned_of(mixed, start)
  assert 'another chain moves: it mixes chains' in said
  assert not _warned_of(_metropolis(_normal), start)
  assert not _warned_of(_metropolis(_normal), start[:1])
