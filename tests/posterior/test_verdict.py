"""What a verdict says of draws, coordinate by coordinate."""

import pickle
import types
import warnings

import numpy as np
import pytest
import tensorflow as tf

from tests.posterior import given_chains
from tfp_adaptive.posterior import posterior as posterior_lib
from tfp_adaptive.posterior.judge import verdict as verdict_lib

_SHAPE = (400, 4)


def _judged(values, min_ess=400.0, most_diverging=0.005, **trace):
  trace = {'target_log_prob': -0.5 * np.sum(values**2, axis=-1), **trace}
  names = [f'x[{i}]' for i in range(values.shape[-1])]
  return verdict_lib.judge(names, values, trace, min_ess, most_diverging)


def _normal():
  return np.random.default_rng(0).normal(size=(*_SHAPE, 3))


def test_independent_draws_pass_and_no_tail_is_spoken_of():
  verdict = _judged(_normal())
  assert verdict.failed == verdict.doubts == []
  assert verdict.heavy_tails == {} and 'heavy' not in repr(verdict)


def test_a_chain_apart_fails_by_name():
  values = _normal()
  values[:, 2, 1] += 1.0
  failed = _judged(values).failed
  assert failed[0].startswith('R-hat is') and 'in x[1]' in failed[0]


def test_few_effective_draws_fail_by_name_and_kind():
  values = np.repeat(_normal()[::8], 8, axis=0)
  failed = _judged(values).failed
  assert [words.split(' is ')[0] for words in failed if 'ESS' in words] == [
    'bulk ESS',
    'tail ESS',
    'ESS of draws and squares',
  ]
  assert not [
    words for words in _judged(values, 100.0).failed if 'ESS' in words
  ]


def test_squares_that_are_not_known_fail():
  # One chain visits far out for a moment: ranks do not mind, a deviation does.
  values = _normal()
  values[200:220, 0, 2] = 60.0
  failed = _judged(values, target_log_prob=_normal()[..., 0]).failed
  assert any('draws and squares' in w and 'x[2]' in w for w in failed)
  assert not any(w.startswith('bulk') for w in failed)


def test_the_log_density_is_a_coordinate():
  trace = dict(
    target_log_prob=np.linspace(0.0, 9.0, 400)[:, None] + np.zeros(4)
  )
  assert 'in log density' in _judged(_normal(), **trace).failed[0]


@pytest.mark.parametrize(
  'share, most, fails',
  [(0.002, 0.005, False), (0.002, 0.001, True), (0.01, 0.005, True)],
)
@pytest.mark.parametrize('kind', ['told', 'never', 'no number'])
def test_divergences_are_told_with_the_coordinate_they_are_near(
  share, most, fails, kind
):
  values = _normal()
  diverging = values[..., 1] > np.quantile(values[..., 1], 1.0 - share)
  ratio = {'never': -21.0, 'no number': np.nan}.get(kind)
  trace = dict(diverging=diverging)
  if kind != 'told':
    # Proposals that may be accepted, however seldom, do not diverge.
    trace = dict(log_accept_ratio=np.where(diverging, ratio, -19.0))
  verdict = _judged(values, most_diverging=most, **trace)
  assert verdict.where_diverging == 'x[1]'
  assert ['mean of x[1] differs' in w for w in verdict.failed] == [True] * fails
  # Few of careful steps: another adaptation makes them no rarer.
  assert verdict.is_far_from_enough(1.0) == (share > 0.005)


def test_divergences_are_near_what_differs_most_in_its_own_spread():
  values = _normal()
  diverging = values[..., 1] > np.quantile(values[..., 1], 0.99)
  values[..., 0] *= 1e4  # Where steps diverge its mean is the farthest off.
  verdict = _judged(values, diverging=diverging)
  assert verdict.where_diverging == 'x[1]'


@pytest.mark.parametrize('agrees', [True, False])
def test_chains_must_agree_on_how_often_they_are_in_narrow_regions(agrees):
  values = _normal()
  visits = np.random.default_rng(1).random(_SHAPE) < 0.02
  if not agrees:  # As many visits in one row, by one chain.
    visits = np.zeros(_SHAPE, bool)
    visits[: int(0.02 * visits.size), 0] = True
  first = np.where(visits, -30.0, 0.0)
  verdict = _judged(
    values,
    least_first_ratio=first,
    least_log_accept_ratio=np.zeros(_SHAPE),
  )
  told = [verdict_lib.NARROW in sentence for sentence in verdict.failed]
  assert any(told) == (not agrees)
  assert verdict.names[-1] == verdict_lib.NARROW
  assert '% of the draws' in verdict.narrow
  assert f'narrow regions: {verdict.narrow}' in repr(verdict)
  # Below the limit for divergences nothing is said.
  few = np.where(np.arange(first.size).reshape(_SHAPE) < 2, -30.0, 0.0)
  assert not _judged(values, least_first_ratio=few).narrow
  assert verdict.asks_for_draws(400.0) == (not agrees)
  assert verdict.tails.is_heavy.shape[1] == values.shape[-1]


def test_variances_that_depend_on_visits_of_narrow_regions_are_named():
  values = _normal()
  few = np.zeros(_SHAPE, bool)
  few[0] = True  # 0.25 % of the draws have 4 % and 20 % of two variances.
  values[few] = np.array([4.0, 10.0, 0.0])
  first = np.where(few, -30.0, 0.0)
  found = _judged(values, least_first_ratio=first)
  squares = np.square(values - values.mean(axis=(0, 1)))
  share = squares[few][:, 1].sum() / squares[..., 1].sum()
  assert found.narrow_variances == {'x[1]': pytest.approx(share)}
  assert f'{share:.0%} of the variance of x[1];' in found.narrow
  # The same draws without visits are told by no check.
  other = _judged(values)
  assert not other.narrow_variances and not other.narrow


def test_draws_are_far_from_enough_where_16_times_as_many_are_needed():
  verdict = _judged(_normal())
  least = min(
    verdict.worst(field)[0] for field in ('ess_bulk', 'ess_tail', 'ess_moments')
  )
  assert not verdict.is_far_from_enough(15.9 * least)
  assert verdict.is_far_from_enough(16.1 * least)


def test_chains_that_never_moved_fail():
  verdict = _judged(np.ones([*_SHAPE, 2]))
  assert verdict.failed == ['no chain ever moved']


def test_a_coordinate_that_never_moved_fails_by_name_beside_others():
  draws = _normal()
  assert not list(verdict_lib.stuck('abc', draws))
  draws[..., 1] = 1.7e9
  (sentence,) = verdict_lib.stuck('abc', draws)
  assert sentence.startswith('b never moved from 1.7e+09; its spread ')
  assert 'float64' in sentence
  # A gate of its own tells of all.
  assert not list(verdict_lib.stuck('abc', np.ones_like(draws)))


@pytest.mark.parametrize(
  'dtype, scale, is_coarse',
  [('float32', 3e-3, True), ('float32', 3e-2, False), ('float64', 3e-3, False)],
)
def test_a_coordinate_on_a_coarse_grid_is_named(dtype, scale, is_coarse):
  draws = (1e4 + scale * _normal()).astype(dtype)
  found = list(verdict_lib.stuck('abc', draws))
  assert len(found) == is_coarse
  if is_coarse:  # Numbers at 1e4 are 2^-10 apart.
    assert 'at' in found[0] and '1e+04' in found[0]
    assert f'{2**-10 / scale:.1g}' in found[0] and 'float64' in found[0]


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_one_draw_that_is_no_number_fails_by_name(value):
  values = _normal()
  values[3, 1, 2] = value
  failed = _judged(values).failed
  assert '0.00062 of the draws of x[2] are not finite' in failed[0]


def test_coordinates_of_all_shapes_have_names():
  parts = [np.zeros([5, 2]), np.arange(60.0).reshape(5, 2, 2, 3)]
  names, values = verdict_lib.coordinates(['tau', 'L'], parts)
  assert names == ['tau', *(f'L[{i},{j}]' for i in range(2) for j in range(3))]
  assert values.shape == (5, 2, 7)
  np.testing.assert_array_equal(values[..., 5], parts[1][..., 1, 1])


def _heavy():
  """Squares of x[1] have no variance, nor has x[2] itself; x[0] is normal."""
  rng = np.random.default_rng(1)
  values = rng.normal(size=(2000, 4, 3))
  values[..., 1] = rng.standard_t(2.2, size=(2000, 4))
  values[..., 2] = rng.standard_t(1.1, size=(2000, 4))
  return values


def test_moments_without_an_error_are_named_and_no_gate():
  verdict = _judged(_heavy(), 10.0, target_log_prob=_heavy()[..., 0])
  assert list(verdict.heavy_tails) == ['x[2]', 'x[1]']
  assert list(verdict.heavy_means) == ['x[2]']
  assert 0.7 < verdict.heavy_tails['x[1]'] < 1.3 < verdict.heavy_tails['x[2]']
  of_means, of_variances = verdict.doubts
  k = verdict.heavy_means['x[2]']
  assert f'error for the mean of x[2] (Pareto k {k:.2f}):' in of_means
  assert 'variance of x[2]' in of_variances
  assert ' and of 1 more coordinate(s):' in of_variances
  assert [f'heavy tails: {w}' for w in verdict.doubts] == [
    line for line in repr(verdict).splitlines() if 'Pareto' in line
  ]
  assert verdict.failed == []


def _posterior(
  values,
  min_ess=10.0,
  most_diverging=verdict_lib.MOST_DIVERGING,
  names=('x',),
  constrain=lambda x: x,
  **trace,
):
  """Returns a `Posterior` of draws [draws, chains, d] that nobody sampled."""
  problem = types.SimpleNamespace(
    names=names, constrain=constrain, model=None,
    coordinates=[f'x[{i}]' for i in range(values.shape[-1])],
  )  # fmt: skip
  trace = dict(target_log_prob=_heavy()[..., 0]) | trace
  chains = given_chains.given(values, most_diverging, **trace)
  report = [
    posterior_lib.Stage('look', '', 3000.0, 1.0),
    posterior_lib.Stage('sample', '', 6000.0, 2.0),
  ]
  return posterior_lib.Posterior(problem, chains, report, min_ess)


@pytest.mark.parametrize('most, converged', [(0.005, True), (0.001, False)])
def test_a_posterior_is_judged_by_what_its_chains_may(most, converged):
  values = _heavy()[..., :1]
  ratio = np.full(values.shape[:2], -0.1)
  num = round(0.002 * ratio.size)
  ratio.flat[:num] = -21.0
  posterior = _posterior(values, most_diverging=most, log_accept_ratio=ratio)
  assert posterior.converged == converged
  assert np.sum(posterior.diverging) == num
  assert ('look at x[0]' in repr(posterior)) != converged
  told = f'{100 * num / ratio.size:.3g}% of the draws had diverging proposals'
  assert [told in words for words in posterior.failed] == [True] * (
    not converged
  )


_IN_FLOAT32 = lambda z: tf.cast(z, tf.float32)
_EXP = lambda z: tf.exp(_IN_FLOAT32(z))


def _no_overflow(z):
  return tf.debugging.check_numerics(tf.exp(z), 'overflow')


@pytest.mark.parametrize(
  'constrain, mean, scale, words',
  [
    # Numbers of float32 at 1e6 are 2^-4 apart.
    (_IN_FLOAT32, 1e6, 1e-3, 'x[0] of `states` is about 1e+06, where adjacent'),
    (_IN_FLOAT32, 1e6, 1e-3, 'float32 numbers are further apart than its '),
    (_IN_FLOAT32, 1e6, 0.1, 'of its standard deviation apart'),
    (_IN_FLOAT32, 1e6, 1.0, ''),
    (_EXP, -110.0, 1.0, 'x[0] of `states` is about 0,'),  # Below 1e-45.
    (_EXP, -80.0, 1.0, ''),
    (tf.sigmoid, 60.0, 1.0, 'x[0] of `states` is about 1,'),
    # A number that no draw changes, also in a map that fails far out.
    (lambda z: tf.concat([z, tf.ones_like(z)], axis=-1), 0.0, 1.0, ''),
    (lambda z: tf.concat([z, _no_overflow(z) ** 0], axis=-1), 0.0, 1.0, ''),
  ],
)
def test_states_that_their_dtype_rounds_to_one_number_fail(
  constrain, mean, scale, words
):
  draws = mean + scale * _normal()[..., :1]
  log_prob = -0.5 * ((draws[..., 0] - mean) / scale) ** 2
  posterior = _posterior(draws, constrain=constrain, target_log_prob=log_prob)
  assert posterior.converged == (not words)
  assert words in ' '.join(posterior.failed)


def test_computed_states_may_be_constant():
  draws = _normal()[..., :1]
  posterior = _posterior(
    draws,
    names=('sign', 'x'),
    constrain=lambda z: dict(sign=tf.sign(z[..., 0] + 99.0), x=z),
    target_log_prob=-0.5 * draws[..., 0] ** 2,
  )
  assert np.ptp(posterior.states['sign']) == 0.0 and posterior.converged


def test_draws_that_overflow_are_told_in_words_alone():
  values = np.random.default_rng(0).normal(size=(500, 4, 1)) * 1e200
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    assert not _posterior(values, target_log_prob=values[..., 0]).converged


def _diverging(values):
  """Returns a trace with 2 % of divergences, all at large x[0]."""
  return dict(diverging=values[..., 0] > np.quantile(values[..., 0], 0.98))


def _two_modes(values):
  values[:, :2] += 30.0


def _one_still_chain(values):
  values[:, 2] = values[0, 2]


def _still_coordinate(values):
  values[..., 1] = 7.0


def _no_numbers(values):
  values[5, 1, 0] = np.nan


def _no_move(values):
  values[...] = values[0, 0]


_ADVICE = {
  'unusable': 'follow the advice in the failed check above',
  'none moved': 'no step was accepted',
  'some still': 'start the chains nearer to each other',
  'apart': 'chains disagree; ',
  'diverging': 'look at x[0], whose values are unusual where steps',
  'few': 'continue with',
}


@pytest.mark.parametrize(
  'changes, first',
  [
    ([_two_modes], 'apart'),
    ([_two_modes, _one_still_chain], 'some still'),
    ([_still_coordinate, _one_still_chain], 'unusable'),
    ([_two_modes, _no_numbers], 'unusable'),
    ([_no_move], 'none moved'),
    # 1600 draws of 4 chains cannot have the effective draws that are asked for.
    ([], 'few'),
  ],
)
@pytest.mark.parametrize('is_diverging', [False, True])
def test_advice_is_about_the_first_cause(changes, first, is_diverging):
  values = _normal()
  trace = _diverging(values) if is_diverging else {}
  for change in changes:
    change(values)
  log_prob = -0.5 * np.sum(values**2, axis=-1)
  trace |= dict(target_log_prob=log_prob)
  if first == 'few' and is_diverging:
    first = 'diverging'
  assert f'next: {_ADVICE[first]}' in repr(_posterior(values, 1e4, **trace))


def test_chains_that_never_moved_are_counted_and_numbered():
  values = _normal()
  _one_still_chain(values)
  (sentence,) = [w for w in _judged(values).failed if 'never moved' in w]
  assert sentence.startswith('1 of the chains never moved') and (
    'number 2)' in sentence
  )
  assert not any('never moved' in words for words in _judged(_normal()).failed)


def test_draws_that_are_no_numbers_are_not_called_still():
  failed = _judged(np.full([*_SHAPE, 2], np.nan)).failed
  assert len(failed) == 1 and 'are not finite' in failed[0]


def test_a_summary_has_the_quantiles_of_all_draws():
  values = np.linspace(0.0, 1.0, 2001)[:2000]
  rng = np.random.default_rng(0)
  values = rng.permutation(values).reshape(500, 4, 1) * [2.0, -10.0]
  log_prob = -np.sum(values, axis=-1)
  summary = _posterior(values, target_log_prob=log_prob).summary()
  # The quantiles of a uniform law, to half a step of the line.
  np.testing.assert_allclose(summary['5%'], [0.1, -9.5], atol=5e-3)
  np.testing.assert_allclose(summary['95%'], [1.9, -0.5], atol=5e-3)
  np.testing.assert_allclose(summary['mean'], [1.0, -5.0], atol=5e-3)
  deviation = np.array([2.0, 10.0]) / np.sqrt(12.0)
  np.testing.assert_allclose(summary['sd'], deviation, rtol=1e-3)


def test_a_posterior_that_is_pickled_says_how_it_is_saved():
  with pytest.raises(TypeError, match=r'posterior\.save\(path\)'):
    pickle.dumps(_posterior(_heavy()))


def test_a_plot_has_a_row_for_the_first_and_the_worst_numbers(tmp_path):
  pytest.importorskip('arviz_plots', reason='the extra plots is not installed')
  values = np.random.default_rng(0).normal(size=(200, 4, 4))
  values[:, 0] += [0.0, 1.0, 0.0, 2.0]
  figure = _posterior(values).plot(max_rows=3)
  axes = figure.viz['plot']
  assert set(axes.data_vars) == {'x[0]', 'x[1]', 'x[3]'}
  assert list(axes.column.values) == ['estimate', 'ranks', 'trace']
  figure.savefig(tmp_path / 'draws.png')
  assert (tmp_path / 'draws.png').stat().st_size > 10_000


def test_a_table_has_the_first_rows_and_those_whose_chains_disagree_most():
  values = np.random.default_rng(0).normal(size=(2000, 4, 4))
  values[:, 0] += [0.0, 1.0, 0.0, 2.0]
  table = _posterior(values).table(max_rows=2).splitlines()
  assert [row.split()[0] for row in table[1:-1]] == ['x[0]', 'x[3]']
  assert table[-1] == 'and 2 more, see `summary()`'


def test_an_interrupt_of_more_draws_keeps_those_there_are(monkeypatch):
  monkeypatch.setattr(posterior_lib.saved, 'check_unchanged', lambda *_: None)
  posterior = _posterior(_heavy()[..., :1])
  chains, drawn = posterior._chains, []

  def run_block():
    if drawn:
      raise KeyboardInterrupt
    drawn.append(0)

  vars(chains).update(
    num_gradients=0.0, seconds=0.0, is_full=False,
    extend_to=lambda num_draws: None, run_block=run_block,
  )  # fmt: skip
  more = posterior.more(100)
  assert more.ended_by == 'the user' and drawn == [0]
  assert len(more.unconstrained) == len(posterior.unconstrained)
