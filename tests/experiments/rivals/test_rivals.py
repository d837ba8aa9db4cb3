"""Models in three languages, one process a run, and what is made of records."""

import inspect
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf
import typer.testing

from experiments.__main__ import app
from experiments.documentation import rivals as page
from experiments.framework.json_files import read_lines
from experiments.quickstart import models
from experiments.rivals import run as run_lib
from experiments.rivals import theirs
from experiments.rivals import truth
from experiments.rivals.models import eight_schools
from experiments.rivals.models import logistic_regression
from experiments.rivals.models import MODELS
from experiments.run.errors import ConfigError

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_RESULTS = _ROOT / 'docs' / 'results' / 'rivals'
# Data that are not bundled; see experiments/framework/data.py.
_WITH_DATA = {'heart', 'german'}


@pytest.mark.parametrize('name', MODELS)
def test_a_model_is_written_in_three_languages_with_the_same_data(name):
  module = theirs.load(MODELS[name])
  first, *others = (
    list(inspect.signature(getattr(module, language)).parameters)
    for language in theirs.LANGUAGES
  )
  assert first == others[0] == others[1]
  if name not in _WITH_DATA:
    assert first == list(module.data())


@pytest.mark.parametrize('name', MODELS)
def test_densities_of_the_languages_agree_in_the_record(name):
  records = [
    record
    for record in read_lines(_RESULTS / 'densities.jsonl')
    if record['posterior'] == name
  ]
  assert len(records) == 1, 'write `python -m experiments rivals check`'
  densities = [records[0][key] for key in ('tfp', 'numpyro', 'pymc')]
  # Points differ, or agreement would tell nothing.
  assert np.ptp(densities[0]) > 1e-2
  for other in densities[1:]:
    np.testing.assert_allclose(other, densities[0], rtol=2e-4, atol=2e-4)


@pytest.mark.nightly
@pytest.mark.parametrize('name', sorted(set(MODELS) - _WITH_DATA))
def test_a_model_has_a_density_and_a_gradient_of_each_chain(name):
  module = theirs.load(MODELS[name])
  model = module.tfp_model(**module.data())
  bijector = model.experimental_default_event_space_bijector()
  shapes = bijector.inverse_event_shape(model.event_shape)
  random = np.random.RandomState(1)
  parts = tf.nest.map_structure(
    lambda shape: tf.constant(
      0.3 * random.normal(size=[3, *shape]), tf.float32
    ),
    shapes,
  )

  def density(*flat):
    packed = tf.nest.pack_sequence_as(parts, flat)
    return model.unnormalized_log_prob(bijector.forward(packed))

  flat = tf.nest.flatten(parts)
  with tf.GradientTape() as tape:
    tape.watch(flat)
    values = density(*flat)
  gradients = tape.gradient(values, flat)
  assert values.shape == [3] and np.all(np.isfinite(values))
  assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
  # Of each chain its own: one chain more changes nothing of the others.
  alone = density(*(part[:1] for part in flat))
  np.testing.assert_allclose(alone, values[:1], rtol=1e-4)


def _record(sampler, mean=0.0, error=0.1, converged=True, **more):
  return {
    'status': 'finished',
    'posterior': 'ordinal',
    'sampler': sampler,
    'seed': 0,
    'commit': 'one',
    'converged': converged,
    'ess_bulk': 800.0,
    'ess_tail': 400.0,
    'num_gradients': 3000.0,
    'num_warmup_gradients': 1000.0,
    'cpu_seconds': 20.0,
    'means': {'a': [mean, error]},
    **more,
  }


def test_a_truth_is_what_two_long_runs_agree_on():
  long = [_record('nutpie, long', 1.0, 0.3), _record('NumPyro, long', 2.0, 0.4)]
  known = truth.truths(long)
  # Weights 1/0.09 and 1/0.16.
  mean, error = known['ordinal']['a']
  assert mean == pytest.approx(
    (1.0 / 0.09 + 2.0 / 0.16) / (1 / 0.09 + 1 / 0.16)
  )
  assert error == pytest.approx(0.24)
  run = _record('PyMC', mean + 1.0, 0.32)
  assert truth.worst_error(run, known) == pytest.approx(1.0 / 0.4)


def test_long_runs_that_differ_or_did_not_converge_are_no_truth():
  apart = [_record('nutpie, long', 0.0), _record('NumPyro, long', 1.0)]
  assert truth.truths(apart)['ordinal'] == {}
  alone = [apart[0], {**apart[0], 'converged': False}]
  assert truth.truths(alone) == {}
  same_library = [apart[1], _record('NumPyro, diagonal, long', 1.0)]
  assert truth.truths(same_library) == {}
  assert truth.truths([*apart, _record('NumPyro, diagonal, long', 0.1)]) == {
    'ordinal': {'a': pytest.approx((0.05, 0.1 / 2**0.5))}
  }
  assert truth.worst_error(_record('PyMC'), truth.truths(apart)) is None


def test_means_without_an_error_to_rely_on_are_no_truth():
  means = {'z[0]': [1.0, 0.1], 'local[0]': [30.0, 8.0], 'tau': [1.0, 0.2]}
  long = [
    _record(sampler, posterior='horseshoe', means=means)
    for sampler in ('nutpie, long', 'NumPyro, long')
  ]
  assert list(truth.truths(long)['horseshoe']) == ['z[0]']


def test_rates_are_of_runs_that_converged_and_of_half_of_them_at_least():
  rate = page._per_second
  rows = [_record('a'), _record('a', cpu_seconds=40.0)]
  assert page._median(rows, rate) == pytest.approx(15.0)
  bad = _record('a', cpu_seconds=1.0, converged=False)
  assert page._median([*rows, bad], rate) == pytest.approx(15.0)
  assert page._median([rows[0], bad, bad], rate) is None
  lost = {**rows[0], 'status': 'out of time'}
  assert page._median([lost], rate) is None


def test_gradients_are_of_all_chains_with_and_without_the_warm_up():
  run = _record('a')
  assert page._per_gradients(run) == pytest.approx(400.0 / (8 * 3.0))
  assert page._per_sampling_gradients(run) == pytest.approx(400.0 / (8 * 2.0))


def test_ours_is_ahead_only_where_both_converge():
  good, lost = _record('sample_posterior'), _record('PyMC', converged=False)
  # Slower, of fewer gradients.
  slow = _record('nutpie', cpu_seconds=21.0, num_gradients=10.0)
  summary = page._summary([good, lost, slow], {})
  cells = {
    line.split('|')[1].strip(): [c.strip() for c in line.split('|')[-3:-1]]
    for line in summary.splitlines()
  }
  assert cells['PyMC'] == ['0 of 0', '0 of 0']
  assert cells['nutpie'] == ['1 of 1', '0 of 1']


def test_seconds_compare_of_the_same_seed_and_of_one_commit_alone():
  ours = [_record('sample_posterior', seed=s) for s in (0, 1)]
  # Twice as fast, on a machine that was twice as fast.
  apart = _record('PyMC', cpu_seconds=10.0, commit='other', seed=0)
  beside = _record('nutpie', cpu_seconds=10.0, seed=1)
  table = page._relative_rates([*ours, apart, beside])
  assert table.splitlines()[-1] == '| ordinal | 20 | apart | **2** |'
  beside = {**beside, 'seed': 2}
  assert page._relative_rates([*ours, beside]).endswith('| apart |\n')
  lost = {**apart, 'converged': False}
  assert page._relative_rates([*ours, lost]).endswith('| - (0/1) |\n')
  # Of another command: not one after the other.
  beside = {**beside, 'seed': 1, 'together': ['nutpie', 'NumPyro']}
  assert page._relative_rates([*ours, beside]).endswith('| apart |\n')
  beside['together'].append('sample_posterior')
  assert page._relative_rates([*ours, beside]).endswith('| **2** |\n')


def test_a_verdict_of_its_own_that_is_stricter_counts():
  strict = _record('sample_posterior', own_converged=False)
  assert not page._is_good(strict)
  assert page._is_good({**strict, 'own_converged': True})
  assert page._is_good({**strict, 'own_converged': None})


def test_more_draws_have_a_table_of_their_own():
  more = _record('nutpie, 5000 draws', cpu_seconds=50.0)
  records = [_record('sample_posterior'), _record('nutpie'), more]
  assert [r['sampler'] for r in page._by_default(records)] == [
    'sample_posterior',
    'nutpie',
  ]
  last = page._of_more_draws(records).splitlines()[-1]
  assert last == '| ordinal | 1 of 1, 50 s | 1 of 1, 20 s |'
  assert 'nutpie, 5000 draws' in run_lib.ON_REQUEST


def test_other_samplers_need_an_environment_and_the_error_says_which():
  with pytest.raises(ConfigError, match='make peers'):
    run_lib.run('eight_schools', 'PyMC', 0, None, 1.0)


def test_a_process_that_fails_is_a_record_with_its_last_words():
  # This interpreter has no PyMC: the script fails at its imports.
  record = run_lib.run('eight_schools', 'PyMC', 0, sys.executable, 60.0)
  assert record['status'] == 'failed' and 'pymc' in record['error']


def test_what_takes_too_long_is_ended_and_said():
  record = run_lib.run('eight_schools', 'sample_posterior', 0, None, 0.01)
  assert record['status'] == 'out of time' and record['max_seconds'] == 0.01


@pytest.mark.full
def test_a_run_of_ours_is_judged_from_its_own_process():
  record = run_lib.run('student_t', 'sample_posterior', 0, None, 300.0)
  assert record['status'] == 'finished' and len(record['means']) == 50
  assert 0.0 < record['num_warmup_gradients'] < record['num_gradients']


def test_traces_of_others_are_read_in_the_order_of_the_model():
  draws = np.random.RandomState(0).normal(size=[50, 8, 8])
  found = {
    'states/effect': draws,
    'states/extra': draws,
    'states/spread': draws[..., 0],
    'states/mean': draws[..., 1],
  }
  names, values = run_lib._coordinates('eight_schools', found)
  assert names[:3] == ['mean', 'spread', 'effect[0]'] and len(names) == 10
  np.testing.assert_array_equal(values[..., 1], found['states/spread'])


def test_an_unknown_model_is_refused_with_those_there_are():
  result = typer.testing.CliRunner().invoke(
    app, ['rivals', 'run', '--only-model', 'nine_schools']
  )
  assert result.exit_code == 2 or result.exit_code == 1
  assert 'nine_schools' in result.output and 'eight_schools' in result.output


def test_data_are_those_of_the_quickstart():
  schools = eight_schools.data()
  np.testing.assert_array_equal(schools['seen'], models._EFFECTS)
  np.testing.assert_array_equal(schools['errors'], models._ERRORS)
  features, labels = models.data_of_regression()
  data = logistic_regression.data()
  np.testing.assert_array_equal(np.float32(data['inputs']), features)
  np.testing.assert_array_equal(data['labels'], labels)
