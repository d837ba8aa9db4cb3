"""Joint distributions and data that a stranger writes, and what they are told.

Each is refused with a sentence that says what to write; none gives numbers
without a word, none an error of TensorFlow. Right programs beside them go on to
the budget, which is too small.
"""

import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets

tfb = tfp.bijectors
tfd = tfp.distributions

_THREE = tf.TensorSpec([3])
_DATA = [1.0, 2.0, 3.0, 4.0]
_TOO_FEW = '`max_gradients=500` is too few'


def _posterior(model, **options):
  """Runs a program that goes no further than to the first starts."""
  budget = dict(num_draws=100, num_chains=4, min_ess=20, progress=False)
  return tfpa.sample_posterior(
    model, **budget | {'max_gradients': 500} | options
  )


def _joint(prior, law, autobatched=True):
  def model():
    x = yield tfd.JointDistributionCoroutine.Root(prior)
    yield law(x)

  if autobatched:
    return tfd.JointDistributionCoroutineAutoBatched(model)
  return tfd.JointDistributionCoroutine(model)


def _nested(**parts):
  """A model of which the parts given are one unknown."""
  return tfd.JointDistributionNamed(
    dict(
      inner=tfd.JointDistributionNamed(parts),
      y=lambda inner: tfd.Normal(tf.reduce_sum(inner['r']), 1.0),
    )
  )


_DATA_INSIDE = tfd.JointDistributionNamed(
  dict(
    rate=tfd.Gamma(2.0, 1.0),
    y=lambda rate: tfd.JointDistributionNamed(
      dict(a=tfd.Poisson(rate), b=tfd.Normal(rate, 1.0))
    ),
  )
)


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
      tf.float32, tfd.FULLY_REPARAMETERIZED, False, True, parameters, name=name
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


def _masked_labels(x):
  law = tfd.Masked(tfd.Bernoulli(x * tf.ones(2)), [True, False])
  return tfd.Independent(law, 1, name='y')


def _masked(x):
  law = tfd.Masked(tfd.Normal(x * tf.ones(2), 1.0), [True, False])
  return tfd.Independent(law, 1, name='y')


@pytest.mark.parametrize(
  'model, data, message',
  [
    (_GOOD, dict(sen=_DATA), "'sen' is .* mean, seen. Did you mean `seen`?"),
    (_GOOD, dict(seen=_DATA[:3]), r'shape \(3,\), but the model draws \(4,\)'),
    (
      _GOOD.experimental_pin(seen=[1.0, np.nan, 2.0, 3.0]), {},
      "data 'seen' are not finite numbers",
    ),
    (_GOOD, dict(mean=0.0, seen=_DATA), 'nothing is left to be sampled'),
    (_GOOD, dict(seen=_DATA, bijectors=[]), '`bijectors` belong to a density'),
    (_GOOD.log_prob, dict(seen=_DATA), 'pass a joint distribution itself'),
    (_GOOD.log_prob, dict(max_gradient=9), 'mean `max_gradients`?'),
    # The maps of other distributions are tested with their supports.
    (
      _nested(r=tfd.LKJ(2, 1.0)), dict(y=1.0),
      'inner.r is drawn from `tfd.LKJ`, whose map .*`tfd.CholeskyLKJ`',
    ),
    (
      _nested(r=tfd.Normal(0.0, 1.0), k=tfd.Poisson(3.0)), dict(y=1.0),
      'inner.k is drawn from `tfd.Poisson`.* gradients need continuous',
    ),
    (
      _joint(
        tfd.Sample(tfd.Normal(0.0, 1.0), 3, name='w'),
        lambda w: tfd.Normal(w, 1.0, name='y'),
        autobatched=False,
      ),
      dict(y=_DATA[:3]), r'batch shape \[3\], but batch axes are reserved',
    ),
    (
      _joint(
        tfd.Normal(np.float64(0.0), 1.0, name='mean'),
        lambda x: tfd.Normal(x, tf.constant(1.0), name='y'),
      ),
      dict(y=1.0), 'cannot be built. Write all data and constants in the dtype',
    ),
    # Right ones.
    (_GOOD, dict(seen=_DATA), _TOO_FEW),
    # A law without a map onto its support, and one that computes its map.
    (_joint(_MEAN, lambda x: _Bare(x, name='y')), dict(y=1.0), _TOO_FEW),
    (_joint(_MEAN, _chain), dict(y=_DATA), _TOO_FEW),
    (_DATA_INSIDE, dict(y=dict(a=3.0, b=1.0)), _TOO_FEW),
    (_DATA_INSIDE, dict(y=dict(a=1.5, b=1.0)), "'y.a' are drawn from.*Poisson"),
    (_DATA_INSIDE, dict(y=dict(a=1.0)), 'a model inside of the model: give a'),
    (
      _GOOD, dict(seen=np.ma.masked_array(_DATA, [False, True, False, False])),
      'Leave missing ones out',
    ),
    (_GOOD, dict(seen=np.ma.masked_array(_DATA)), _TOO_FEW),
    (
      _joint(_MEAN, _masked),
      dict(y=np.ma.masked_array([1.0, 7.0], [False, True])), _TOO_FEW,
    ),
    # What is masked may be anything.
    (_joint(_MEAN, _masked_labels), dict(y=np.array([1.0, np.nan])), _TOO_FEW),
    (_GOOD, dict(seen=np.int64([1, 2, 3, 4])), _TOO_FEW),
    (_GOOD.experimental_pin(seen=_DATA), {}, _TOO_FEW),
    (
      _joint(_RATE, lambda x: tfd.Sample(tfd.Exponential(x), 2, name='y')),
      dict(y=[0.0, 2.0]), _TOO_FEW,
    ),
  ],
)  # fmt: skip
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


# Densities and settings that a stranger writes, and what they are told.


_PAIR = [tf.TensorSpec([2]), tf.TensorSpec([3])]
_NAMED = {'a': tf.TensorSpec([2]), 'b': tf.TensorSpec([3])}
_START = np.random.default_rng(0).normal(size=[4, 3]).astype(np.float32)


_normal = targets.standard_normal


def _two(a, b):
  return _normal(a) + _normal(b)


def _positive(x):
  return -tf.reduce_sum(x, axis=-1)


def _if(x):
  return _normal(x) if x[0, 0] > 0.0 else -_normal(x)


@pytest.mark.parametrize(
  'density, options, message',
  [
    (
      lambda x: _normal(x) + tf.random.normal([4]), {},
      'mixes chains, or is random',
    ),
    (
      lambda x: tf.cast(_normal(x), tf.float64), {},
      r'is float64, of unknowns of float32. Write `init=tf.TensorSpec\(shape',
    ),
    (
      lambda x: _normal(x - tf.constant(np.zeros(3))), {},
      'Write all data and constants in the dtype of the unknowns',
    ),
    (
      lambda x: _normal(x - tf.zeros([4, 2])), {},
      'Do the shapes of the data fit the model',
    ),
    (lambda x: -0.5 * np.sum(np.square(x), -1), {}, 'without numpy, scipy'),
    (_if, {}, 'Write `tf.where` where it says `if`'),
    (lambda x: None, {}, 'returned None.* Is its `return` missing'),
    (lambda x: {}['data'], {}, "cannot be computed. KeyError said: 'data'"),
    (_two, {}, r'takes \(a, b\), but is called .* with one argument'),
    (
      lambda x, y: _two(x, y), dict(init=_NAMED),
      r'takes \(x, y\), .* dict by name. Write `def log_density\(a, b\):`',
    ),
    (_normal, dict(init=None), '`init` says what the unknowns are'),
    (_normal, dict(init=[]), '`init` has no parts'),
    (_normal, dict(init=(3,)), r'A shape is written `tf.TensorSpec\(\[3\]\)`'),
    (_normal, dict(init=tf.TensorSpec([None, 3])), 'chains are not one of the'),
    (_normal, dict(init=np.zeros([4, 3], int)), 'shapes as floats'),
    (_normal, dict(init=_START[:3]), 'one row for each of 4 chains'),
    (_normal, dict(init=_START[0]), r'mean, write `tf.TensorSpec\(\[3\]\)`'),
    (_two, dict(init=[_PAIR[0], _START]), 'starts for all, or shapes for all'),
    (_normal, dict(init=0.0 * _START), 'All chains start at one point'),
    (_positive, dict(bijectors=tfb.Exp), 'with its parentheses'),
    (
      _two, dict(init=[tf.TensorSpec([2], tf.float64), _PAIR[1]]),
      'one dtype, but these are x0 float64, x1 float32',
    ),
    (_two, dict(init=_NAMED, bijectors={'c': tfb.Exp()}), r"got \['c'\]"),
    (_normal, dict(y=_DATA), 'Bind its data before'),
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
)  # fmt: skip
def test_a_wrong_density_is_refused(density, options, message):
  with pytest.raises(ValueError, match=message):
    _posterior(density, **{'init': _THREE, **options})


_NUMBER = 'must be a positive number'
_SEED = '`seed` must be an int'


@pytest.mark.parametrize(
  'settings, message',
  [
    (dict(num_draws=0), '`num_draws` must be an int of at least 100'),
    (dict(num_draws=_DATA), r'`num_draws` .* `sample_posterior\(model, y=y\)`'),
    (dict(min_ess=400), 'write `num_draws=200`'),
    (dict(num_chains=1), '`num_chains` must be an int of at least 2'),
    (dict(min_ess=-1), f'`min_ess` {_NUMBER}'),
    (dict(min_ess=np.inf), 'and finite, but got inf. .*`min_ess=400`'),
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
    (None, 'a log density, a function, but got NoneType'),
    (tfd.JointDistributionCoroutine, 'must be a `tfd.JointDistribution`'),
    (_steps, 'Write `@tfd.JointDistributionCoroutineAutoBatched` above'),
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
