"""The ablation: its coordinates, its runs, its budget, and what it takes."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.documentation import geometry
from experiments.framework import moments
from experiments.framework.json_files import read_lines
from experiments.panel.cells import CellFile
from experiments.studies import ablation
from experiments.studies.panel.config import load_panel
from experiments.targets.gaussians import gaussian_target
from experiments.targets.gaussians import rotated_covariance
from tests.transport.maps import hierarchies

tfb = tfp.bijectors

_COVARIANCE = rotated_covariance([0.01, 0.1, 1.0, 1.0], 3)


def _config(**changes):
  return load_panel(ablation._CONFIG).config.model_copy(update=changes)


def test_a_pullback_has_the_density_of_its_coordinates():
  rng = np.random.default_rng(0)
  factor = np.eye(4) + 0.5 * np.tril(rng.normal(size=[4, 4]))
  shift, rows = rng.normal(size=4), rng.normal(size=[6, 4])

  def bijector_fn():
    scale = tfb.ScaleMatvecTriL(tf.constant(factor))
    return tfb.Chain([tfb.Shift(tf.constant(shift)), scale])

  target = tfp.distributions.MultivariateNormalFullCovariance(
    tf.zeros([4], tf.float64), _COVARIANCE
  )
  found = ablation.pulled_back(target.log_prob, bijector_fn)(tf.constant(rows))
  inverse = np.linalg.inv(factor)
  law = scipy.stats.multivariate_normal(
    -inverse @ shift, inverse @ _COVARIANCE @ inverse.T
  )
  np.testing.assert_allclose(found, law.logpdf(rows), rtol=1e-9)
  # Power: the volume is no small matter.
  assert abs(np.linalg.slogdet(factor)[1]) > 0.1


def test_behind_its_map_a_funnel_is_a_standard_normal():
  rng = np.random.default_rng(1)
  states = hierarchies.draw_funnel(rng, 3.0 * rng.normal(size=2000))
  states = tf.constant(states)
  with tf.GradientTape() as tape:
    tape.watch(states)
    log_prob = hierarchies.funnel(states)
  transport = tfpa.transports.conditional_gaussian([0], exponents=[-1.0])
  params = transport.fit(
    transport.init(hierarchies.SIZE, tf.float64, 1.0),
    states,
    tape.gradient(log_prob, states),
    tf.fill([2000], tf.constant(1.0 / 2000, tf.float64)),
  )
  map_fn = lambda: transport.bijector(params)
  rows = tf.constant(rng.normal(size=[500, hierarchies.SIZE]))
  normal = -0.5 * tf.reduce_sum(rows**2, axis=-1)
  # Densities are known up to a constant.
  pulled = ablation.pulled_back(hierarchies.funnel, map_fn)(rows)
  assert np.std(pulled - normal) < 0.05
  # The broken twin: without the volume it is another law.
  assert np.std(hierarchies.funnel(map_fn().forward(rows)) - normal) > 1.0


@pytest.mark.nightly
# The state that is handed over is one draw.
@pytest.mark.filterwarnings('ignore:No move was accepted in 1 draws')
@pytest.mark.parametrize(
  'variant',
  [
    pytest.param('all', marks=pytest.mark.full),
    pytest.param('all_path', marks=pytest.mark.nightly),
    pytest.param('without_map', marks=pytest.mark.full),
    pytest.param('without_fisher', marks=pytest.mark.full),
  ],
)
def test_draws_of_a_variant_have_the_moments_of_the_target(variant):
  target = gaussian_target('four', _COVARIANCE, 'float32')
  config = _config(gradients_per_chain=8000)
  sampler = ablation.build(target.target_log_prob_fn, variant, config)
  start = tf.constant(np.random.default_rng(2).normal(size=[8, 4]), tf.float32)
  draws, is_accepted = sampler.sample(start, (3, 4))
  assert draws.shape == (sampler.num_results, 8, 4)
  assert 0.5 < is_accepted.mean() < 1.0
  deviation = np.diag(_COVARIANCE) ** 0.5

  def worst(scale):
    zeros = np.zeros(4)
    found = moments.z_scores(draws, zeros, scale * deviation, zeros)
    return np.max(np.abs([found.mean_z, found.deviation_z]))

  # The largest of eight.
  assert worst(1.0) < 4.5 < worst(1.1)


@pytest.mark.parametrize('variant', ablation.VARIANTS)
def test_all_variants_spend_the_same_gradients(variant):
  sampler = ablation.build(hierarchies.funnel, variant, _config())
  for calls in sampler.calls.values():
    units = max(calls['target'], calls['gradient']) + calls['hessian_vector']
    assert 0.998 < units / (8 * 25_000) <= 1.0


def test_cells_that_the_page_takes_are_runs_of_the_same_settings():
  panel = load_panel(ablation._CONFIG)
  sampler = ablation.build(hierarchies.funnel, 'fisher', panel.config)
  records = CellFile(ablation._OUTPUT.parent).records()
  for name in ablation.TARGETS:
    key = panel.key(name, geometry._FISHER)
    found = [r for r in records if r['target'] == name and r['key'] == key]
    assert len(found) == 10
    for record in found:
      assert record['calls'] == sampler.calls
      assert record['num_adaptation_steps'] == sampler.num_adaptation_steps
      assert record['num_results'] == sampler.num_results
  # Power: another variant has others.
  other = ablation.build(hierarchies.funnel, 'without_fisher', panel.config)
  assert other.calls != sampler.calls


@pytest.mark.full
def test_a_record_is_not_run_twice(tmp_path):
  panel = load_panel(ablation._CONFIG)
  panel = panel._replace(config=_config(gradients_per_chain=600))
  output, lines = tmp_path / 'runs.jsonl', []
  for seeds in ([100], [100, 101], [100, 101]):
    ablation.measure(
      ['NealsFunnel'], ['fisher'], seeds, output, lines.append, panel
    )
  assert [r['seed'] for r in read_lines(output)] == [100, 101]
  assert len(lines) == 2
  # So few gradients do not pass the gates, and the record says so.
  assert all('R-hat' in r['missed'] for r in read_lines(output))
