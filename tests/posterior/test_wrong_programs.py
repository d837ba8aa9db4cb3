"""Programs that a stranger writes from the pages, and what they are told.

Each is refused with a sentence that says what to write, or, where only a run
can tell, by its verdict; none gives numbers without a word, none an error of
TensorFlow. Right programs beside them go on to the budget, which is too small.
"""

import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tfp_adaptive.driver import diagnosis

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


def _py_function(x):
  value = tf.py_function(
    lambda v: -0.5 * np.sum(v.numpy() ** 2, -1), [x], x.dtype
  )
  return tf.ensure_shape(value, x.shape[:-1])


def _posterior(model, **options):
  """Runs a program that goes no further than to the first starts."""
  budget = dict(num_draws=100, num_chains=4, min_ess=20, progress=False)
  return tfpa.sample_posterior(
    model, **budget | {'max_gradients': 500}, **options
  )


@pytest.mark.parametrize(
  'density, options, message',
  [
    (lambda x: -tf.reduce_sum(x**2), {}, r'shape \(\) for 4 chains'),
    (lambda x: -(x**2), {}, r'shape \(4, 3\) for 4 chains'),
    (lambda x: -tf.reduce_sum(x**2, axis=0), {}, r'shape \(3,\) for 4 chains'),
    (
      lambda x: -tf.reduce_sum(x**2, axis=0),
      dict(init=tf.TensorSpec([4])),
      'another chain moves: it mixes chains',
    ),
    (
      lambda x: _normal(x - tf.reduce_mean(x, axis=0)),
      {},
      'another chain moves: it mixes chains',
    ),
    (
      lambda x: tfd.Normal(x, 1.0).log_prob(np.float32([1, 2, 30, 400])),
      dict(init=tf.TensorSpec([])),
      'another chain moves: it mixes chains',
    ),
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
      lambda x: _normal(x - np.zeros([4, 2], np.float32)),
      {},
      'Data whose shape does not fit fail so too',
    ),
    (
      lambda x: _normal(x - tf.zeros([4, 2])),
      {},
      'Do the shapes of the data fit the model',
    ),
    (lambda x: _normal(x) * np.nan, {}, 'not finite at the starts of 4 of 4'),
    (lambda x: -0.5 * np.sum(np.square(x), -1), {}, 'without numpy, scipy'),
    (lambda x: _normal(x.numpy()), {}, 'without numpy, scipy'),
    (_py_function, {}, 'without numpy, scipy, .* and `tf.py_function`'),
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
    (_normal, dict(init=_START.tolist()), r'rows `np.array\(\[...\]\)`'),
    (_normal, dict(init=tf.TensorSpec([None, 3])), 'chains are not one of the'),
    (_normal, dict(init=tf.TensorSpec([0])), 'a number on every axis, 1 or mo'),
    (_normal, dict(init=np.zeros([4, 3], int)), 'shapes as floats'),
    (_normal, dict(init=_START[:3]), 'one row for each of 4 chains'),
    (_normal, dict(init=_START[0]), r'mean, write `tf.TensorSpec\(\[3\]\)`'),
    (_two, dict(init=[_PAIR[0], _START]), 'starts for all, or shapes for all'),
    (_normal, dict(init=0.0 * _START), 'All chains start at one point'),
    (_normal, dict(init=_START * np.nan), 'not finite at the starts of 4 of 4'),
    (
      _positive,
      dict(init=-np.abs(_START), bijectors=tfb.Exp()),
      'not finite at the starts of 4 of 4',
    ),
    (_positive, dict(bijectors=tfb.Exp), 'with its parentheses'),
    (_positive, dict(bijectors='exp'), "`tfb.Bijector`.*but got 'exp'"),
    (_positive, dict(bijectors=[tfb.Exp(), None]), 'for each of x, `None`'),
    (_two, dict(init=_NAMED, bijectors={'c': tfb.Exp()}), r"got \['c'\]"),
    (
      _two,
      dict(init=_PAIR, bijectors=tfb.Exp()),
      'one, but `init` has 2 parts',
    ),
    (
      _normal,
      dict(bijectors=tfb.CorrelationCholesky()),
      'of events of 2 axes, but `init` of x has the shape',
    ),
    (_normal, dict(y=_DATA), 'Bind its data before'),
    (_normal, dict(num_burnin=100), "'num_burnin': no argument of this name"),
    # Right ones.
    (_normal, {}, _TOO_FEW),
    (_normal, dict(init=_START), _TOO_FEW),
    (_two, dict(init=_PAIR), _TOO_FEW),
    (_two, dict(init=_NAMED), _TOO_FEW),
    (_positive, dict(init=np.abs(_START), bijectors=tfb.Exp()), _TOO_FEW),
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


@pytest.mark.parametrize(
  'settings, message',
  [
    (dict(num_draws=0), '`num_draws` must be an int of at least 100'),
    (dict(num_draws='100'), "`num_draws` must be an int .* got '100'"),
    (dict(num_draws=_DATA), r'`num_draws` .* `sample_posterior\(model, y=y\)`'),
    (dict(num_draws=100, num_chains=4), 'write `num_draws=200`'),
    (dict(num_chains=1), '`num_chains` must be an int of at least 2'),
    (dict(min_ess=-1), '`min_ess` must be a positive number'),
    (dict(min_ess='many'), '`min_ess` must be a positive number'),
    (dict(min_ess=np.nan), '`min_ess` must be a positive number'),
    (dict(max_gradients=0), '`max_gradients` must be a positive number'),
    (dict(max_seconds='ten'), '`max_seconds` must be a positive number'),
    (dict(seed='abc'), '`seed` must be an int, a pair of ints'),
    (dict(seed=1.5), '`seed` must be an int, a pair of ints'),
    (dict(seed=[1, 2, 3]), '`seed` must be an int, a pair of ints'),
  ],
  ids=str,
)
def test_wrong_settings_are_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    tfpa.sample_posterior(_normal, init=_THREE, progress=False, **settings)


def _steps():
  yield tfd.Normal(0.0, 1.0)


@pytest.mark.parametrize(
  'model, message',
  [
    (tfd.Normal(0.0, 1.0), 'pass `log_prob`, without calling it'),
    (tfd.Normal(0.0, 1.0).log_prob(_START), 'without calling it'),
    ('eight schools', 'a log density, a function, but got str'),
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


def _joint(prior, law, autobatched=True):
  def model():
    x = yield tfd.JointDistributionCoroutine.Root(prior)
    yield law(x)

  if autobatched:
    return tfd.JointDistributionCoroutineAutoBatched(model)
  return tfd.JointDistributionCoroutine(model)


def _four(x):
  return tfd.Sample(tfd.Normal(x, 1.0), 4, name='seen')


_MEAN = tfd.Normal(0.0, 1.0, name='mean')
_RATE = tfd.Gamma(2.0, 1.0, name='rate')
_GOOD = _joint(_MEAN, _four)


class _Bare(tfd.Distribution):
  """A normal as a user writes one: a density and draws."""

  def __init__(self, loc, name):
    parameters = dict(locals())
    self._loc = tf.convert_to_tensor(loc)
    super().__init__(
      dtype=tf.float32,
      reparameterization_type=tfd.FULLY_REPARAMETERIZED,
      validate_args=False,
      allow_nan_stats=True,
      parameters=parameters,
      name=name,
    )

  def _batch_shape(self):
    return self._loc.shape

  def _event_shape(self):
    return tf.TensorShape([])

  def _log_prob(self, x):
    return -0.5 * (x - self._loc) ** 2

  def _sample_n(self, n, seed=None):
    shape = tf.concat([[n], tf.shape(self._loc)], axis=0)
    return self._loc + tf.random.stateless_normal(shape, [1, 2])


def _chain(x):
  return tfd.MarkovChain(
    tfd.Normal(0.0, 1.0), lambda _, y: tfd.Normal(x * y, 1.0), 4, name='y'
  )


def _masked(x):
  law = tfd.Masked(tfd.Normal(x * tf.ones(2), 1.0), [True, False])
  return tfd.Independent(law, 1, name='y')


@pytest.mark.parametrize(
  'model, data, message',
  [
    (_GOOD, dict(sen=_DATA), "'sen': no unknown part .* are mean, seen"),
    (_GOOD, dict(seen=_DATA[:3]), r'shape \(3,\), but the model draws \(4,\)'),
    (_GOOD, dict(seen=1.0), r'shape \(\), but the model draws \(4,\)'),
    (_GOOD, dict(seen=[_DATA, _DATA]), r'shape \(2, 4\), but the model draws'),
    (_GOOD, dict(seen=[1.0, np.nan, 2.0, 3.0]), "data 'seen' are not finite"),
    (_GOOD, dict(seen=[1.0, np.inf, 2.0, 3.0]), "data 'seen' are not finite"),
    (_GOOD, dict(seen=['a', 'b', 'c', 'd']), "data 'seen' are not finite num"),
    (_GOOD, dict(seen=[[1.0, 2.0], [3.0]]), "data 'seen' are not finite num"),
    (_GOOD, dict(seen=None), "data 'seen' are not finite numbers"),
    (
      _GOOD.experimental_pin(seen=[1.0, np.nan, 2.0, 3.0]),
      {},
      "data 'seen' are not finite numbers",
    ),
    (
      _GOOD.experimental_pin(seen=_DATA),
      dict(seen=_DATA),
      "'seen': no unknown part of the model",
    ),
    (_GOOD, dict(mean=0.0, seen=_DATA), 'nothing is left to be sampled'),
    (_GOOD, dict(seen=_DATA, init=_THREE), '`init` and `bijectors` belong to'),
    (_GOOD.log_prob, dict(seen=_DATA), 'joint distribution pass itself'),
    (
      _joint(_RATE, lambda x: tfd.Sample(tfd.Exponential(x), 2, name='y')),
      dict(y=[-1.0, 2.0]),
      r'from `tfd.Exponential`, and must be not negative, but -1.0 is among',
    ),
    (
      _joint(_MEAN, lambda x: tfd.Sample(tfd.Bernoulli(x), 2, name='y')),
      dict(y=[1, 2]),
      'must be 0 or 1, or between, but 2 is among them',
    ),
    (
      _joint(
        tfd.Poisson(3.0, name='k'), lambda k: tfd.Normal(k, 1.0, name='y')
      ),
      dict(y=2.0),
      'k is drawn from `Poisson`.* gradients need continuous',
    ),
    (
      _joint(
        tfd.Bernoulli(0.3, name='k'),
        lambda k: tfd.Normal(tf.cast(k, tf.float32), 1.0, name='y'),
      ),
      dict(y=2.0),
      'k is drawn from `Bernoulli`.* gradients need continuous',
    ),
    (
      _joint(
        tfd.Sample(tfd.Normal(0.0, 1.0), 3, name='w'),
        lambda w: tfd.Normal(w, 1.0, name='y'),
        autobatched=False,
      ),
      dict(y=_DATA[:3]),
      r'batch shape \[3\], where chains are to be',
    ),
    (
      _joint(
        tfd.Normal(np.float64(0.0), 1.0, name='mean'),
        lambda x: tfd.Normal(x, tf.constant(1.0), name='y'),
      ),
      dict(y=1.0),
      'cannot be built. Write all data and constants in the dtype',
    ),
    # Right ones.
    (_GOOD, dict(seen=_DATA), _TOO_FEW),
    # Of a law without a map onto its support, and of one that computes its map.
    (_joint(_MEAN, lambda x: _Bare(x, name='y')), dict(y=1.0), _TOO_FEW),
    (_joint(_MEAN, _chain), dict(y=_DATA), _TOO_FEW),
    # What is masked may be anything.
    (_joint(_MEAN, _masked), dict(y=[1.0, np.nan]), _TOO_FEW),
    (_GOOD, dict(seen=np.int64([1, 2, 3, 4])), _TOO_FEW),
    (_GOOD.experimental_pin(seen=_DATA), {}, _TOO_FEW),
    (
      _joint(_RATE, lambda x: tfd.Sample(tfd.Exponential(x), 2, name='y')),
      dict(y=[0.0, 2.0]),
      _TOO_FEW,
    ),
  ],
)
def test_a_wrong_model_or_its_data_are_refused(model, data, message):
  with pytest.raises(ValueError, match=message):
    _posterior(model, **data)


@pytest.mark.parametrize(
  'data, is_warned', [({}, True), ({'seen': _DATA}, False)]
)
def test_a_model_without_data_is_told_that_its_prior_is_sampled(
  data, is_warned
):
  with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter('always')
    with pytest.raises(ValueError, match=_TOO_FEW):
      _posterior(_GOOD, **data)
  assert ['No data were given' in str(w.message) for w in said] == [
    True
  ] * is_warned


def _langevin(density, num_adaptation_steps=10, **options):
  return tfpa.gradient_adaptive_langevin(
    density, num_adaptation_steps, **options
  )


def _metropolis(density):
  return tfpa.adaptive_metropolis(density, 10)


@pytest.mark.parametrize(
  'build, start, error, message',
  [
    (lambda: _langevin(_GOOD), _START, TypeError, 'must be callable'),
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
      lambda: _langevin(_normal),
      np.zeros([2, 100_000], np.float32),
      ValueError,
      r'100000 coordinates .* `preconditioner=tfpa.preconditioners.diagonal',
    ),
    (lambda: _normal, _START, TypeError, '`kernel` must be a `tfp.mcmc.Trans'),
  ],
)
def test_a_wrong_run_of_a_kernel_is_refused(build, start, error, message):
  with pytest.raises(error, match=message):
    tfpa.sample(build(), start, num_results=5, progress=False)


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
  start = tf.constant(np.abs(_START))
  results = kernel.bootstrap_results(start)
  said = list(diagnosis.warnings_before(kernel, start, results))
  assert len(said) == (message is not None)
  assert all(message in sentence for sentence in said)


@pytest.mark.full
def test_an_improper_density_does_not_converge():
  posterior = tfpa.sample_posterior(
    lambda x: _normal(x[..., :1]) + 0.0 * x[..., 1],
    init=tf.TensorSpec([2]),
    max_seconds=1,
    num_chains=4,
    progress=False,
  )
  assert not posterior.converged
  assert any('in x[1], above' in sentence for sentence in posterior.failed)
