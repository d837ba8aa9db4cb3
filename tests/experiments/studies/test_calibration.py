"""Families of kernels pass both tests of calibration, broken kernels fail.

Learned params are given, not learned, so that nothing that adapts is traced;
`python -m experiments run calibration` runs all families with what they learn.
"""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import tfp_adaptive as tfpa
from experiments.run import store
from experiments.run.study import Work
from experiments.studies import calibration
from experiments.studies.calibration import broken
from experiments.studies.calibration import chains
from experiments.studies.calibration import geweke
from experiments.studies.calibration import kernels
from experiments.studies.calibration import models
from experiments.studies.calibration import rank_test

_SIZES = chains.Sizes(
  num_chains=500, num_ranks=12, num_successive=60, num_marginal=50_000
)
_cholesky = tfpa.preconditioners.cholesky


def _fitted_surrogate():
  """A surrogate that knows draws of the prior, as after a pilot run."""
  surrogate = tfpa.surrogates.kernel_exponential_family_finite(50)
  points = tf.constant(np.random.default_rng(0).normal(size=(50, 3)))
  weights = tf.fill([50], tf.constant(0.02, tf.float64))
  seed = tf.constant([0, 1])
  params = surrogate.fit(
    surrogate.init(3, tf.float64, seed), points, weights, seed
  )
  return surrogate._replace(init=lambda *_: params)


# name -> (): what moves well, in place of what a pilot run learns.
_GIVEN = {
  'Langevin': lambda: dict(preconditioner=_cholesky(init_scale=0.9)),
  'Hamiltonian': lambda: dict(preconditioner=_cholesky(init_scale=0.25)),
  'mGrad': lambda: dict(delta=1.5),
  'kernel Hamiltonian': lambda: dict(
    surrogate=_fitted_surrogate(), trajectory_length=1.0
  ),
  'random walk on estimates': lambda: dict(
    preconditioner=_cholesky(init_scale=0.8)
  ),
}
# The smallest p-value allowed: one test in 1000 fails by chance, seeds are
# fixed.
_LOWEST = 1e-3


@functools.cache
def _given(name):
  family = kernels.FAMILIES[name]
  model = family.model()
  kernel = family.build(lambda *state, seed=None: 0.0, 0, **_GIVEN[name]())
  while not isinstance(kernel, tfpa.MetropolisHastings):
    kernel = kernel.inner_kernel
  return model, lambda data: kernels.with_density(kernel, model.density(data))


def _examine(name, spoil=lambda kernel: kernel):
  model, make = _given(name)
  return calibration.examine(
    model,
    lambda data: spoil(make(data)),
    _SIZES,
    kernels.FAMILIES[name].thinning,
    seed=1,
  )


def _marked(family, label):
  """Returns a parameter; two kernels are compiled by night only."""
  is_quick = family in ('Langevin', 'mGrad', 'random walk on estimates')
  mark = pytest.mark.full if is_quick else pytest.mark.nightly
  return pytest.param(label, marks=mark)


@pytest.mark.parametrize('name', [_marked(name, name) for name in _GIVEN])
def test_a_kernel_of_the_library_passes(name):
  row = _examine(name)
  assert 0.15 < row['move_share'] < 0.95  # Otherwise the tests see nothing.
  assert row['rank_p'] > _LOWEST, row['rank_p_values']
  assert row['geweke_p'] > _LOWEST, row['geweke_z_scores']
  assert {sum(c) for c in row['rank_counts'].values()} == {_SIZES.num_chains}


@pytest.mark.parametrize(
  'label',
  [
    _marked(control.family, label)
    for label, control in broken.CONTROLS.items()
    if control.family in _GIVEN
  ],
)
def test_a_broken_kernel_is_caught(label):
  control = broken.CONTROLS[label]
  row = _examine(control.family, control.spoil)
  row = dict(row, is_control=True)
  assert calibration.verdict(row, _LOWEST) == ('caught', True), row


def test_estimates_are_unbiased_and_held_ones_follow_the_law_of_the_chain():
  # E[W / p(y | theta)] = 1 for fresh W, E[p(y | theta) / W] = 1 for held ones.
  model = models.random_effects()
  state, data = chains.draw_joint(model, 20_000, seed=5)
  exact = model.quantities(state, data)['log_likelihood']
  exact -= 0.5 * tf.reduce_sum(state**2, axis=-1)
  seed = tf.constant([3, 4])
  fresh = model.density(data)(state, seed=seed) - exact
  held = exact - model.held_estimate(state, data, seed)
  for log_ratio in (fresh, held):
    ratio = np.exp(log_ratio.numpy())
    error = ratio.std() / len(ratio) ** 0.5
    assert error < 0.03
    assert abs(ratio.mean() - 1.0) < 4.0 * error
  # On the log scale fresh estimates lie below, held ones above.
  for log_ratio in (fresh.numpy(), held.numpy()):
    assert log_ratio.mean() < -10.0 * log_ratio.std() / len(log_ratio) ** 0.5


def test_the_hierarchy_is_drawn_from_the_prior_that_the_kernel_takes():
  x, logs = models.hierarchy().draw(4000, tf.constant([1, 2]))
  theta = tf.nest.map_structure(tf.exp, logs)
  prior = models.prior_fn(**theta)
  white = prior.covariance(prior.params).log_prob(
    prior.to_coordinates(prior.params, x)
  )
  determinants = np.linalg.slogdet(
    2.0 * np.pi * models.kernel_matrix(**theta).numpy()
  )[1]
  squares = -2.0 * white.numpy() - determinants
  assert stats.kstest(squares, stats.chi2(6).cdf).pvalue > 1e-3
  for name, law in models.hyperprior().model.items():
    assert stats.kstest(law.cdf(theta[name]), 'uniform').pvalue > 1e-3


def _row(is_control=False, rank_p=0.5, geweke_p=0.5, z=1.0):
  return dict(
    kernel='a kernel',
    model='a model',
    is_control=is_control,
    move_share=0.5,
    rank_p=rank_p,
    geweke_p=geweke_p,
    rank_p_values=dict(some_quantity=rank_p),
    geweke_z_scores={'some_quantity, scale': z},
    rank_counts=dict(some_quantity=[30, 20, 25, 25]),
  )


def test_limits_share_the_false_alarm_rate_and_verdicts_follow():
  rows = [_row(), _row(geweke_p=1e-4), _row(True, rank_p=1e-9), _row(True)]
  lowest = calibration.limit(rows)
  assert lowest == 0.01 / 4  # Two kernels, two tests; controls are not counted.
  assert [calibration.verdict(row, lowest)[0] for row in rows] == [
    'passes',
    'FAILS',
    'caught',
    'missed',
  ]


def test_power_is_that_of_the_effects_seen():
  needed = stats.norm.isf(0.5e-6)
  np.testing.assert_allclose(calibration.power(_row(z=needed))[1], 0.5)
  assert calibration.power(_row(z=needed + 3.0))[1] > 0.99
  row = _row()
  assert calibration.power(row)[0] == 0.0
  row['rank_counts'] = dict(some_quantity=[100, 0, 0, 0])
  assert calibration.power(row)[0] == 1.0


def _record(case, row):
  return store.Record('calibration', case, 0, 'key', 'finished', row)


def test_a_wrong_verdict_ends_the_run_with_an_error(tmp_path, capsys):
  sizes = calibration.STUDY.settings()
  work = Work(sizes, tmp_path)
  right = [_record('a | m', _row()), _record('b | m', _row(True, rank_p=1e-9))]
  calibration.STUDY.finish(tmp_path, right, work)
  assert '| passes |' in capsys.readouterr().out
  for wrong in (_row(rank_p=1e-3), _row(True)):
    records = [*right, _record('c | m', wrong)]
    with pytest.raises(SystemExit, match='c | m'):
      calibration.STUDY.finish(tmp_path, records, work)
    # A smoke run has no power.
    few = Work(sizes.smoke(), tmp_path)
    calibration.STUDY.finish(tmp_path, records, few)


# A pilot run is compiled for each.
@pytest.mark.nightly
@pytest.mark.parametrize('label', broken.CONTROLS)
def test_a_control_breaks_what_a_pilot_run_has_learned(label, tmp_path):
  sizes = calibration.STUDY.settings()
  (case,) = [
    case
    for case in calibration.STUDY.cases(sizes).values()
    if case.label == label
  ]
  record = calibration.STUDY.run(case, 0, Work(sizes, tmp_path))
  record = store.plain(record)
  assert calibration.verdict(record, 0.0) == ('caught', True)
  assert max(record['power']) > 0.9


# The two tests of calibration themselves, on draws whose law is known.


_SCALE = 0.5**0.5


def _joint(num, rng):
  theta = rng.normal(size=num)
  return theta, theta + rng.normal(size=num)


def _independent_ranks(num, num_ranks, seed, shift=0.0, factor=1.0):
  """Ranks among draws of the posterior, moved and widened."""
  rng = np.random.default_rng(seed)
  theta, y = _joint(num, rng)
  noise = rng.normal(size=(num_ranks - 1, num))
  draws = 0.5 * y + _SCALE * (shift + factor * noise)
  return rank_test.ranks(theta, draws, rng)


def _autoregression(x, mean, rng, persistence, factor):
  """One step of a reversible chain of law N(mean, factor^2 / 2)."""
  noise = (
    (1.0 - persistence**2) ** 0.5 * factor * _SCALE * rng.normal(size=len(x))
  )
  return mean + persistence * (x - mean) + noise


def test_p_value_is_exact_over_all_outcomes_of_a_small_case():
  outcomes = itertools.product(range(3), repeat=4)
  p = np.sort([rank_test.p_value(np.array(o), 3) for o in outcomes])
  # P(p-value <= p) = p at each p that occurs.
  for value in np.unique(np.round(p, 12)):
    np.testing.assert_allclose(np.mean(p <= value + 1e-9), value, rtol=1e-9)


def test_right_ranks_raise_false_alarms_at_the_stated_rate():
  p = [
    rank_test.p_value(_independent_ranks(100, 8, seed), 8)
    for seed in range(1000)
  ]
  for level in (0.05, 0.5):
    error = (level * (1.0 - level) / len(p)) ** 0.5
    # p-values are discrete: the rate may be somewhat lower.
    assert level - 0.02 - 4.0 * error < np.mean(np.array(p) <= level)
    assert np.mean(np.array(p) <= level) < level + 4.0 * error


@pytest.mark.parametrize(
  'bias', [dict(shift=0.4), dict(factor=1.3), dict(factor=0.75)]
)
def test_biased_draws_fail_the_ranks(bias):
  assert rank_test.p_value(_independent_ranks(1000, 16, 1), 16) > 1e-3
  assert rank_test.p_value(_independent_ranks(1000, 16, 1, **bias), 16) < 1e-6


def test_ties_are_broken_by_chance():
  truth = np.full(4000, 1e3)
  window = np.tile([[0.0], [1e3 + 1e-8], [1e3], [2e3]], 4000)
  found = rank_test.ranks(truth, window, np.random.default_rng(0))
  counts = np.bincount(found, minlength=5)
  assert counts[0] == counts[4] == 0
  # Three places, equally likely: five standard deviations.
  np.testing.assert_allclose(
    counts[1:4], 4000 / 3, atol=5 * (4000 * 2 / 9) ** 0.5
  )


def _geweke(num, num_steps, seed, factor=1.0):
  """Smallest p-value, times their number, of a successive chain."""
  rng = np.random.default_rng(seed)
  marginal = np.stack(_joint(10 * num, rng))
  theta, y = _joint(num, rng)
  total = 0.0
  for step in range(num_steps):
    theta = _autoregression(theta, 0.5 * y, rng, 0.5, factor)
    y = theta + rng.normal(size=num)
    if step >= num_steps // 2:
      total = total + geweke.bounded(np.stack([theta, y]), 0.0, 1.0, np)
  z = geweke.z_scores(
    geweke.bounded(marginal, 0.0, 1.0, np), total / (num_steps / 2)
  )
  return geweke.p_values(z).ravel()


def test_geweke_raises_false_alarms_at_the_stated_rate():
  p = np.array([_geweke(100, 8, seed) for seed in range(400)])
  for level in (0.05, 0.5):
    error = (level * (1.0 - level) / len(p)) ** 0.5
    rates = np.mean(p <= level, axis=0)
    np.testing.assert_allclose(rates, level, atol=4.0 * error + 0.01)


@pytest.mark.parametrize('factor', [1.2, 0.85])
def test_geweke_sees_a_kernel_of_the_wrong_width(factor):
  assert 4 * np.min(_geweke(1000, 40, 1)) > 1e-3
  assert 4 * np.min(_geweke(1000, 40, 1, factor)) < 1e-6
