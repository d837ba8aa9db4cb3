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
    (_GOOD, dict(seen=_DATA, draws=500), "'draws' is .* mean `num_draws`?"),
    (_GOOD, dict(seen=_DATA, xyz=4), "'xyz' is .* value are mean, seen.$"),
    (_GOOD, dict(seen=_DATA[:3]), r'shape \(3,\), but the model draws \(4,\)'),
    (
      _GOOD.experimental_pin(seen=[1.0, np.nan, 2.0, 3.0]),
      {},
      "data 'seen' are not finite numbers",
    ),
    (
      _GOOD.experimental_pin(seen=_DATA),
      dict(seen=_DATA),
      "'seen' is neither an argument nor a part",
    ),
    (_GOOD, dict(mean=0.0, seen=_DATA), 'nothing is left to be sampled'),
    (
      _GOOD,
      dict(seen=_DATA, init=_THREE),
      '`init` has the parts x, but the unk',
    ),
    (_GOOD, dict(seen=_DATA, bijectors=[]), '`bijectors` belong to a density'),
    (_GOOD.log_prob, dict(seen=_DATA), 'pass a joint distribution itself'),
    (_GOOD.log_prob, dict(max_gradient=9), 'mean `max_gradients`?'),
    (
      _joint(_RATE, lambda x: tfd.Sample(tfd.Exponential(x), 2, name='y')),
      dict(y=[-1.0, 2.0]),
      r'from `tfd.Sample.tfd.Exponential.`, and must be not negative, but -1.0',
    ),
    # The maps of other distributions are tested with their supports.
    (
      _nested(r=tfd.LKJ(2, 1.0)),
      dict(y=1.0),
      'inner.r is drawn from `tfd.LKJ`, whose map .*`tfd.CholeskyLKJ`',
    ),
    (
      _nested(r=tfd.Normal(0.0, 1.0), k=tfd.Poisson(3.0)),
      dict(y=1.0),
      'inner.k is drawn from `tfd.Poisson`.* gradients need continuous',
    ),
    (
      _joint(
        tfd.Sample(tfd.Normal(0.0, 1.0), 3, name='w'),
        lambda w: tfd.Normal(w, 1.0, name='y'),
        autobatched=False,
      ),
      dict(y=_DATA[:3]),
      r'batch shape \[3\], but batch axes are reserved',
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
    (_DATA_INSIDE, dict(y=dict(a=3.0, b=1.0)), _TOO_FEW),
    (_DATA_INSIDE, dict(y=dict(a=1.5, b=1.0)), "'y.a' are drawn from.*Poisson"),
    (_DATA_INSIDE, dict(y=dict(a=1.0, b=np.nan)), "'y.b' are not finite"),
    (_DATA_INSIDE, dict(y=dict(a=1.0)), 'a model inside of the model: give a'),
    (
      _GOOD,
      dict(seen=np.ma.masked_array(_DATA, [False, True, False, False])),
      'Leave missing ones out',
    ),
    (_GOOD, dict(seen=np.ma.masked_array(_DATA)), _TOO_FEW),
    (
      _joint(_MEAN, _masked),
      dict(y=np.ma.masked_array([1.0, 7.0], [False, True])),
      _TOO_FEW,
    ),
    # What is masked may be anything.
    (_joint(_MEAN, _masked_labels), dict(y=np.array([1.0, np.nan])), _TOO_FEW),
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
