"""Families of kernels pass both tests of calibration, broken kernels fail.

Learned params are given, not learned, so that nothing that adapts is traced;
`python -m experiments calibrate` runs all families with what they learn.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from typer.testing import CliRunner

import tfp_adaptive as tfpa
from experiments.__main__ import app
from experiments.calibration import broken
from experiments.calibration import chains
from experiments.calibration import estimated_model
from experiments.calibration import figure
from experiments.calibration import kernels
from experiments.calibration import latent_models
from experiments.calibration import models
from experiments.calibration import study
from experiments.calibration import verdicts

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
  'mGrad': lambda: dict(step_size=1.5),
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
  return study.examine(
    model,
    lambda data: spoil(make(data)),
    _SIZES,
    kernels.FAMILIES[name].thinning,
    seed=1,
  )


@pytest.mark.full
@pytest.mark.parametrize('name', _GIVEN)
def test_a_kernel_of_the_library_passes(name):
  row = _examine(name)
  assert 0.15 < row['move_share'] < 0.95  # Otherwise the tests see nothing.
  assert row['rank_p'] > _LOWEST, row['rank_p_values']
  assert row['geweke_p'] > _LOWEST, row['geweke_z_scores']
  assert {sum(c) for c in row['rank_counts'].values()} == {_SIZES.num_chains}


@pytest.mark.full
@pytest.mark.parametrize(
  'label',
  [
    label
    for label, control in broken.CONTROLS.items()
    if control.family in _GIVEN
  ],
)
def test_a_broken_kernel_is_caught(label):
  control = broken.CONTROLS[label]
  row = _examine(control.family, control.spoil)
  row = dict(row, is_control=True)
  assert verdicts.verdict(row, _LOWEST) == ('caught', True), row


def test_counts_are_poisson():
  rate = tf.constant(np.repeat([0.3, 4.0, 40.0], 4000).reshape(3, -1))
  counts = models.poisson(rate, tf.constant([1, 2])).numpy()
  for mean, found in zip((0.3, 4.0, 40.0), counts):
    law = stats.poisson(mean)
    edges = np.unique(law.ppf(np.linspace(0.0, 0.9, 8)[1:]))
    inside = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    cells = np.searchsorted(edges, found)
    observed = np.bincount(cells, minlength=len(inside))
    assert stats.chisquare(observed, inside * len(found)).pvalue > 1e-3


def test_noise_of_heavy_tails_is_of_four_degrees():
  drawn = models.student_4([5000], tf.constant([1, 2])).numpy()
  assert stats.kstest(drawn, stats.t(4).cdf).pvalue > 1e-3


def test_estimates_are_unbiased_and_held_ones_follow_the_law_of_the_chain():
  # E[W / p(y | theta)] = 1 for fresh W, E[p(y | theta) / W] = 1 for held ones.
  model = estimated_model.random_effects()
  state, data = chains.draw_joint(model, 20_000, seed=1)
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
  x, logs = latent_models.hierarchy().draw(4000, tf.constant([1, 2]))
  theta = tf.nest.map_structure(tf.exp, logs)
  prior = latent_models.prior_fn(**theta)
  white = prior.covariance(prior.params).log_prob(
    prior.to_coordinates(prior.params, x)
  )
  determinants = np.linalg.slogdet(
    2.0 * np.pi * latent_models.kernel_matrix(**theta).numpy()
  )[1]
  squares = -2.0 * white.numpy() - determinants
  assert stats.kstest(squares, stats.chi2(6).cdf).pvalue > 1e-3
  for name, law in latent_models.hyperprior().model.items():
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
  lowest = verdicts.limit(rows)
  assert lowest == 0.01 / 4  # Two kernels, two tests; controls are not counted.
  assert [verdicts.verdict(row, lowest)[0] for row in rows] == [
    'passes',
    'FAILS',
    'caught',
    'missed',
  ]


def test_power_is_that_of_the_effects_seen():
  needed = stats.norm.isf(0.5e-6)
  np.testing.assert_allclose(verdicts.power(_row(z=needed))[1], 0.5)
  assert verdicts.power(_row(z=needed + 3.0))[1] > 0.99
  row = _row()
  assert verdicts.power(row)[0] == 0.0
  row['rank_counts'] = dict(some_quantity=[100, 0, 0, 0])
  assert verdicts.power(row)[0] == 1.0


def test_the_figure_has_a_panel_with_a_band_for_each_kernel():
  drawn = figure.draw_ecdfs([_row(), _row(True)], 0.01)
  with_lines = [axis for axis in drawn.axes if axis.lines]
  assert len(with_lines) == 2
  below = with_lines[0].lines[0].get_ydata()
  np.testing.assert_allclose(below, [0.05, 0.0, 0.0])
  assert all(len(axis.collections) == 1 for axis in with_lines)


@pytest.mark.full
def test_the_command_writes_table_and_figure(tmp_path):
  arguments = ['calibrate', '--smoke', '--kernel', 'elliptical slice']
  arguments += ['--output', str(tmp_path), '--figures', str(tmp_path)]
  result = CliRunner().invoke(app, arguments)
  assert result.exit_code == 0, result.output
  table = (tmp_path / 'calibration.md').read_text()
  assert '| elliptical slice | latent field | 1.00 |' in table
  assert 'elliptical slice, without the mean (broken)' in table
  assert (tmp_path / 'calibration.json').stat().st_size > 0
  assert (tmp_path / 'calibration.png').stat().st_size > 0
  result = CliRunner().invoke(app, ['calibrate', '--kernel', 'nothing'])
  # Without the frame that breaks its lines.
  message = ' '.join(result.output.replace('│', ' ').split())
  assert result.exit_code == 2 and 'elliptical slice' in message
