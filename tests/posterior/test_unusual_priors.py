"""Priors that TFP itself cannot sample: right densities, or a sentence."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tfp_adaptive.posterior.model import exact
from tfp_adaptive.posterior.sample_posterior import problem_of

tfd = tfp.distributions

_INNER = tfd.JointDistributionNamed(
  dict(s=tfd.HalfNormal(1.0), m=lambda s: tfd.Normal(0.0, s))
)
_INNER_AUTO = tfd.JointDistributionNamedAutoBatched(
  dict(s=tfd.HalfNormal(1.0), m=lambda s: tfd.Normal(0.0, s))
)


def _problem(prior):
  """A vectorized model of an unknown and one number that depends on it."""

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    x = yield prior
    total = sum(map(tf.reduce_sum, tf.nest.flatten(x)))
    yield tfd.Normal(total, 1.0, name='y')

  return problem_of(model, None, None, 4, dict(y=1.0))


def _nested(kind, inner):
  model = kind(dict(g=inner, y=lambda g: tfd.Normal(g['m'], 1.0)))
  return problem_of(model, None, None, 4, dict(y=1.0))


@pytest.mark.parametrize(
  'make, words',
  [
    (
      lambda: _problem(
        tfd.Sample(tfd.Masked(tfd.Normal(0.0, 1.0), [True, False]), 2)
      ),
      'var0 is drawn from `tfd.Sample.tfd.Masked.*no density',
    ),
    (
      lambda: _problem(
        tfd.Blockwise(
          [tfd.Gamma(2.0, 1.0), tfd.Normal(np.float64(0.0), 1.0)],
          dtype_override=tf.float32,
        )
      ),
      'var0 .* another dtype .*parts of the model',
    ),
    (
      lambda: _nested(tfd.JointDistributionNamedAutoBatched, _INNER),
      'inside of `...AutoBatched` write `...AutoBatched`',
    ),
    (
      lambda: _problem(tfd.TruncatedNormal(0.0, 1.0, -np.inf, np.inf)),
      'var0 .* two infinite bounds.*Write `tfd.Normal`',
    ),
    (
      lambda: _problem(
        tfd.MarkovChain(tfd.Gamma(2.0, 1.0), lambda _, y: tfd.Normal(y, 1.0), 4)
      ),
      'var0 is drawn from `tfd.MarkovChain.*whose map TFP cannot make.*Draw it',
    ),
  ],
)
def test_what_tfp_cannot_sample_is_refused_with_what_to_write(make, words):
  with pytest.raises(ValueError, match=words):
    problem = make()
    rows = tf.zeros([4, problem.event_size], problem.dtype)
    problem.target_log_prob_fn(rows)


def test_parts_of_a_vectorized_model_inside_are_unknowns():
  for kind in (
    tfd.JointDistributionNamed,
    tfd.JointDistributionNamedAutoBatched,
  ):
    problem = _nested(kind, _INNER_AUTO)
    z = np.float32([[0.3, -0.7], [-1.0, 0.5]])
    state = problem.constrain(tf.constant(z))['g']
    s, m = np.asarray(state['s']), np.asarray(state['m'])
    expected = stats.halfnorm.logpdf(s) + stats.norm(0, s).logpdf(m)
    expected += stats.norm(m, 1).logpdf(1.0) + np.log(s)
    found = problem.target_log_prob_fn(tf.constant(z))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_blocks_of_a_vector_have_their_own_maps():
  problem = _problem(
    tfd.Blockwise(
      [tfd.Gamma(2.0, 1.0), tfd.MultivariateNormalDiag([0.0, 1.0], [1.0, 2.0])]
    )
  )
  z = np.float32([[0.5, -1.0, 2.0], [-2.0, 0.0, 0.3]])
  x = np.concatenate([np.exp(z[:, :1]), z[:, 1:]], axis=1)
  expected = stats.gamma(2.0).logpdf(x[:, 0]) + z[:, 0]
  expected += stats.norm([0, 1], [1, 2]).logpdf(x[:, 1:]).sum(-1)
  expected += stats.norm(x.sum(-1), 1).logpdf(1.0)
  found = problem.target_log_prob_fn(tf.constant(z))
  np.testing.assert_allclose(found, expected, rtol=1e-5)


_SIDES = [(0.0, np.inf), (-np.inf, 1.0), (-np.inf, np.inf), (-1.0, 2.0)]


def _log_truncated(kind, x, loc, scale, low, high):
  law = kind(loc, scale)
  below = law.cdf(low) if np.isfinite(low) else 0.0
  # Tails by the survival function: of a far one the other has no digits.
  above = law.sf(high) if np.isfinite(high) else 0.0
  mass = law.sf(low) if not np.isfinite(high) else 1 - below - above
  return law.logpdf(x) - np.log(mass)


@pytest.mark.parametrize(
  'tfp_kind, kind',
  [(tfd.TruncatedNormal, stats.norm), (tfd.TruncatedCauchy, stats.cauchy)],
)
def test_truncated_priors_are_right_with_gradients_on_every_side(
  tfp_kind, kind
):
  low, high = np.transpose(_SIDES)
  for loc in (-5.0, 0.3, 4.0):
    law = exact.exact(tfp_kind(tf.Variable(np.float64(loc)), 1.5, low, high))
    loc_, scale = law._distribution.loc, law._distribution.scale
    with tf.GradientTape(persistent=True) as tape:
      tape.watch([scale])
      value = law.log_prob(np.float64(0.7))
    expected = [_log_truncated(kind, 0.7, loc, 1.5, *side) for side in _SIDES]
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    assert np.isfinite(tape.gradient(value, loc_))
    assert np.all(np.isfinite(tape.gradient(value, scale)))
    outside = law.log_prob(np.float64([-0.5, 1.5, 0.0, 2.5]))
    is_out = [True, True, False, True]
    np.testing.assert_array_equal(np.isneginf(outside), is_out)


def test_a_truncated_prior_moves_with_its_parameters():
  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    m = yield tfd.Normal(0.0, 1.0, name='m')
    yield tfd.TruncatedNormal(m, 1.0, 0.0, np.inf, name='b')
    a = yield tfd.TruncatedCauchy(0.0, 5.0, tf.exp(m), np.inf, name='a')
    yield tfd.Normal(a, 1.0, name='y')

  problem = problem_of(model, None, None, 4, dict(y=3.0))
  z = np.float32([[0.0, 0.0, 0.0], [1.0, -3.0, 2.0], [-4.0, 1.0, 1.0]])
  state = problem.constrain(tf.constant(z))
  m, b, a = (np.asarray(part, np.float64) for part in state)
  np.testing.assert_allclose(b, np.exp(z[:, 1]), rtol=1e-5)
  np.testing.assert_allclose(a, np.exp(m) + np.exp(z[:, 2]), rtol=1e-5)
  expected = stats.norm.logpdf(m) + z[:, 1] + z[:, 2]
  expected += stats.norm(m).logpdf(b) - stats.norm(m).logsf(0)
  expected += stats.cauchy(0, 5).logpdf(a)
  expected -= stats.cauchy(0, 5).logsf(np.exp(m))
  expected += stats.norm(a).logpdf(3.0)
  found, gradient = tfp.math.value_and_gradient(
    problem.target_log_prob_fn, tf.constant(z)
  )
  np.testing.assert_allclose(found, expected, rtol=1e-4)
  assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize('number', [tf.constant(1.0, tf.float64), 1])
def test_a_tensor_of_another_dtype_is_cast_as_an_array_is(number):
  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    x = yield tfd.Normal(0.0, 1.0, name='x')
    yield tfd.Normal(x, 1.0, name='y')

  number = tf.convert_to_tensor(number)
  row = tf.constant([[0.5]])
  expected = stats.norm.logpdf(0.5) + stats.norm.logpdf(1.0, 0.5)
  for problem in (
    problem_of(model, None, None, 4, dict(y=number)),
    problem_of(model.experimental_pin(y=number), None, None, 4, {}),
  ):
    found = problem.target_log_prob_fn(row)
    np.testing.assert_allclose(found, [expected], rtol=1e-6)
