"""Densities and settings that a stranger writes, and what they are told.

Each is refused with a sentence that says what to write; none gives numbers
without a word, none an error of TensorFlow. Right programs beside them go on to
the budget, which is too small.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa

tfb = tfp.bijectors
tfd = tfp.distributions

_THREE = tf.TensorSpec([3])
_PAIR = [tf.TensorSpec([2]), tf.TensorSpec([3])]
_NAMED = {'a': tf.TensorSpec([2]), 'b': tf.TensorSpec([3])}
_START = np.random.default_rng(0).normal(size=[4, 3]).astype(np.float32)
_DATA = [1.0, 2.0, 3.0, 4.0]
_TOO_FEW = '`max_gradients=500` is too few'


def _normal(x):
  return -0.5 * tf.reduce_sum(x**2, axis=-1)


def _two(a, b):
  return _normal(a) + _normal(b)


def _two_in_one(state):
  return _normal(state[0]) + _normal(state[1])


def _positive(x):
  return -tf.reduce_sum(x, axis=-1)


def _if(x):
  return _normal(x) if x[0, 0] > 0.0 else -_normal(x)


def _posterior(model, **options):
  """Runs a program that goes no further than to the first starts."""
  budget = dict(num_draws=100, num_chains=4, min_ess=20, progress=False)
  return tfpa.sample_posterior(
    model, **budget | {'max_gradients': 500} | options
  )


@pytest.mark.parametrize(
  'density, options, message',
  [
    (lambda x: -tf.reduce_sum(x**2, axis=0), {}, r'shape \(3,\) for 4 chains'),
    (
      lambda x: _normal(x) + tf.random.normal([4]),
      {},
      'mixes chains, or is random',
    ),
    (
      lambda x: tf.cast(_normal(x), tf.float64),
      {},
      r'is float64, of unknowns of float32. Write `init=tf.TensorSpec\(shape',
    ),
    (
      lambda x: _normal(x - tf.constant(np.zeros(3))),
      {},
      'Write all data and constants in the dtype of the unknowns',
    ),
    (
      lambda x: _normal(x - tf.zeros([4, 2])),
      {},
      'Do the shapes of the data fit the model',
    ),
    (lambda x: -0.5 * np.sum(np.square(x), -1), {}, 'without numpy, scipy'),
    (_if, {}, 'Write `tf.where` where it says `if`'),
    (lambda x: None, {}, 'returned None.* Is its `return` missing'),
    (lambda x: {}['data'], {}, "cannot be computed. KeyError said: 'data'"),
    (_two, {}, r'takes \(a, b\), but is called .* with one argument'),
    (
      _two_in_one,
      dict(init=_PAIR),
      r'takes \(state\), .* 2 parts of a list .* `def log_density\(x0, x1\):`',
    ),
    (
      lambda x, y: _two(x, y),
      dict(init=_NAMED),
      r'takes \(x, y\), .* dict by name. Write `def log_density\(a, b\):`',
    ),
    (_normal, dict(init=None), '`init` says what the unknowns are'),
    (_normal, dict(init=[]), '`init` has no parts'),
    (_normal, dict(init=(3,)), r'A shape is written `tf.TensorSpec\(\[3\]\)`'),
    (_normal, dict(init=tf.TensorSpec([None, 3])), 'chains are not one of the'),
    (_normal, dict(init=tf.TensorSpec([0])), 'a number on every axis, 1 or mo'),
    (_normal, dict(init=np.zeros([4, 3], int)), 'shapes as floats'),
    (_normal, dict(init=_START[:3]), 'one row for each of 4 chains'),
    (_normal, dict(init=_START[0]), r'mean, write `tf.TensorSpec\(\[3\]\)`'),
    (_two, dict(init=[_PAIR[0], _START]), 'starts for all, or shapes for all'),
    (_normal, dict(init=0.0 * _START), 'All chains start at one point'),
    (_positive, dict(bijectors=tfb.Exp), 'with its parentheses'),
    (_positive, dict(bijectors='exp'), "`tfb.Bijector`.*but got 'exp'"),
    (
      _two,
      dict(init=[tf.TensorSpec([2], tf.float64), _PAIR[1]]),
      'one dtype, but these are x0 float64, x1 float32',
    ),
    (_two, dict(init=_NAMED, bijectors={'c': tfb.Exp()}), r"got \['c'\]"),
    (
      _two,
      dict(init=_PAIR, bijectors=tfb.Exp()),
      'one, but `init` has 2 parts',
    ),
    (_normal, dict(y=_DATA), 'Bind its data before'),
    (_normal, dict(num_burnin=100), "'num_burnin' is no argument"),
    # Right ones.
    (_normal, {}, _TOO_FEW),
    (_normal, dict(init=_START), _TOO_FEW),
    (_two, dict(init=_NAMED), _TOO_FEW),
    (
      lambda x: _normal(x[..., 0]),
      dict(init=tf.TensorSpec([2, 2]), bijectors=tfb.CorrelationCholesky()),
      _TOO_FEW,
    ),
  ],
)
def test_a_wrong_density_is_refused(density, options, message):
  with pytest.raises(ValueError, match=message):
    _posterior(density, **{'init': _THREE, **options})


_NUMBER = 'must be a positive number'
_SEED = '`seed` must be an int, a pair of ints'


@pytest.mark.parametrize(
  'settings, message',
  [
    (dict(num_draws=0), '`num_draws` must be an int of at least 100'),
    (dict(num_draws=_DATA), r'`num_draws` .* `sample_posterior\(model, y=y\)`'),
    (dict(min_ess=400), 'write `num_draws=200`'),
    (dict(num_chains=1), '`num_chains` must be an int of at least 2'),
    (dict(min_ess=-1), f'`min_ess` {_NUMBER}'),
    (dict(min_ess=np.inf), 'and finite, but got inf. .*`min_ess=400`'),
    (dict(max_gradients=np.inf), 'and finite, but got inf. .* `1e9` for any'),
    (dict(max_gradients=None), 'but got None. .*max_gradients=100_000`'),
    (dict(max_seconds=0), 'number, but got 0. .*`None` for any'),
    (dict(seed=[1, 2, 3]), _SEED),
    # Right ones: numbers of all dtypes are taken.
    (dict(max_seconds=None), _TOO_FEW),
    (dict(max_seconds=np.inf), _TOO_FEW),
    (dict(max_gradients=np.int64(500), min_ess=np.float32(20.0)), _TOO_FEW),
    (dict(seed=tf.constant([1, 2], tf.int64)), _TOO_FEW),
    (dict(seed=np.uint32([1, 2**32 - 1])), _TOO_FEW),
  ],
  ids=str,
)
def test_wrong_settings_are_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    _posterior(_normal, init=_THREE, **settings)


def _steps():
  yield tfd.Normal(0.0, 1.0)


@pytest.mark.parametrize(
  'model, message',
  [
    (tfd.Normal(0.0, 1.0), 'pass its `log_prob` without calling it'),
    (tfd.Normal(0.0, 1.0).log_prob(_START), 'without calling it'),
    (None, 'a log density, a function, but got NoneType'),
    (tfd.JointDistributionCoroutine, 'must be a `tfd.JointDistribution`'),
    (_steps, 'Write `@tfd.JointDistributionCoroutineAutoBatched` above'),
    (
      tfp.mcmc.HamiltonianMonteCarlo(_normal, 0.5, 3),
      'but got HamiltonianMonteCarlo',
    ),
  ],
)
def test_what_is_no_model_is_refused(model, message):
  with pytest.raises(TypeError, match=message):
    _posterior(model, init=_THREE)


@pytest.mark.full
def test_an_improper_density_does_not_converge():
  posterior = tfpa.sample_posterior(
    lambda x: _normal(x[..., :1]) + 0.0 * x[..., 1],
    init=tf.TensorSpec([2]),
    max_gradients=5000,
    num_draws=200,
    num_chains=4,
    min_ess=50,
    progress=False,
  )
  assert not posterior.converged
  assert any('in x[1], above' in sentence for sentence in posterior.failed)
