"""Comparison with the reference of posteriordb, and records of runs."""

import json
import zipfile

import numpy as np
import pytest

from experiments.models.posteriordb import reference as reference_lib
from experiments.run.study import Work
from experiments.samplers import on_models
from experiments.studies import posteriordb as study
from tests.experiments.models import test_posteriordb_densities

_NAME = 'kidiq-kidscore_momhs'
_EXACT = {
  'a': reference_lib.Moments(1.0, 0.0, 4.0, 0.0),
  'b': reference_lib.Moments(-5.0, 0.0, 0.25, 0.0),
}


def _draws(seed=0, shift=0.0, stretch=1.0):
  """Returns independent draws of N(1, 2**2) and N(-5, 0.5**2)."""
  random = np.random.default_rng(seed)
  noise = random.normal(size=(2, 1000, 8))
  return {
    'a': 1.0 + 2.0 * stretch * noise[0],
    'b': -5.0 + 0.5 * (noise[1] + shift),
  }


def test_z_is_standard_normal_for_draws_of_the_reference():
  found = [
    reference_lib.compare(_draws(seed), {k: _EXACT[k] for k in _EXACT})
    for seed in range(40)
  ]
  for field in ('worst_z_of_means', 'worst_z_of_squares'):
    z = np.abs([getattr(one, field)[1] for one in found])
    # The larger of two |z| has the median 1.05; the largest of 80 is below 4.5.
    assert 0.6 < np.median(z) < 1.5 and z.max() < 4.5
  assert all(one.rhat < 1.01 and one.ess_bulk > 4000 for one in found)


def test_a_shift_and_a_stretch_are_seen_where_they_are():
  shifted = reference_lib.compare(_draws(shift=0.1), _EXACT)
  assert shifted.worst_z_of_means[0] == 'b'
  # 0.1 deviations with 8000 draws: sqrt(8000) / 10 standard errors.
  assert abs(shifted.worst_z_of_means[1] - 8.9) < 3.0
  stretched = reference_lib.compare(_draws(stretch=1.1), _EXACT)
  assert stretched.worst_z_of_squares[0] == 'a'
  # The variance is 1.21 times as large, its relative error sqrt(2 / 8000).
  expected = 0.21 / (1.21 * np.sqrt(2 / 8000))
  assert abs(stretched.worst_z_of_squares[1] - expected) < 4.0


def test_the_error_of_the_reference_counts():
  doubtful = {
    name: entry._replace(mean_error=1e3) for name, entry in _EXACT.items()
  }
  found = reference_lib.compare(_draws(shift=0.5), doubtful)
  assert abs(found.worst_z_of_means[1]) < 0.1


def test_correlated_draws_have_larger_errors():
  noise = np.random.default_rng(0).normal(size=(4000, 4, 1))
  path = np.zeros_like(noise)
  for t in range(1, len(path)):
    path[t] = 0.9 * path[t - 1] + noise[t]
  (found,) = reference_lib.moments(path, np.zeros(1))
  deviation = 1.0 / np.sqrt(1.0 - 0.9**2)
  # The effective size is (1 - 0.9) / (1 + 0.9) of the draws.
  expected = deviation / np.sqrt(16000 / 19)
  assert abs(found.mean_error / expected - 1.0) < 0.2


def _published(folder, draws):
  """Writes reference draws as posteriordb publishes them."""
  chains = [
    {name: part[:, chain].tolist() for name, part in draws.items()}
    for chain in range(8)
  ]
  (folder / 'draws').mkdir()
  with zipfile.ZipFile(folder / 'draws' / f'{_NAME}.json.zip', 'w') as file:
    file.writestr(f'{_NAME}.json', json.dumps(chains))


def test_a_reference_is_computed_from_published_draws(tmp_path):
  draws = _draws()
  _published(tmp_path, draws)
  found = reference_lib.load(_NAME, tmp_path)
  for name, part in draws.items():
    assert found[name].mean == pytest.approx(part.mean())
    assert found[name].square == pytest.approx(part.var())
    error = part.std() / np.sqrt(part.size)
    assert found[name].mean_error == pytest.approx(error, rel=0.2)
    error = np.sqrt(2.0 / part.size) * part.var()
    assert found[name].square_error == pytest.approx(error, rel=0.3)


@pytest.mark.nightly
@test_posteriordb_densities.needs_data
def test_a_run_of_this_library_agrees_with_the_reference(tmp_path):
  name = 'eight_schools-eight_schools_noncentered'
  data_dir = test_posteriordb_densities.FOLDER.parent
  settings = study.STUDY.settings(dtype='float64')
  work = Work(settings, tmp_path, data_dir=data_dir)
  record = study.STUDY.run((name, on_models.OURS), 1, work)
  assert record['converged'] and record['is_enough']
  for field in ('worst_z_of_means', 'worst_z_of_squares'):
    assert abs(record[field][1]) < 5.0
  assert record['cpu_seconds'] < record['process_cpu_seconds']
