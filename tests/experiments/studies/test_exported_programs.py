"""Programs for machines without TensorFlow: their files and their arguments."""

import json
import lzma

import numpy as np
import pytest
import tensorflow as tf

from experiments.studies import exported_programs
from experiments.studies import kernel_cases
from experiments.studies import placement
from tfp_adaptive.linalg import banded_scan

pytestmark = pytest.mark.full

_CASES = {case.name: case for case in kernel_cases.cases()}


@pytest.mark.parametrize(
  'name, has_constants',
  [
    ('gradient_adaptive_random_walk, diagonal', False),
    # The prior's eigenvalues are Tensors that the program takes.
    ('auxiliary_gradient, spectral', True),
  ],
)
def test_a_case_is_programs_with_a_start_and_a_law(
  name, has_constants, tmp_path, monkeypatch
):
  short = exported_programs.PROTOCOL._replace(num_adaptation_steps=3)
  monkeypatch.setattr(exported_programs, 'PROTOCOL', short)
  case, names = _CASES[name], {'adapting': (None, 10), 'frozen': (1.0, 20)}
  exported_programs.write(case, tmp_path, names)
  (manifest,) = tmp_path.glob('*.json')
  row = json.loads(manifest.read_text())
  assert row['name'] == name and row['num_chains'] == dict(
    adapting=10, frozen=20
  )
  assert np.shape(row['mean']) == np.shape(row['variances'])
  for program in names:
    hlo = tmp_path / f'{row["files"][program]}.hlo.xz'
    assert len(lzma.decompress(hlo.read_bytes())) > 1000
    with np.load(hlo.with_name(f'{row["files"][program]}.npz')) as constants:
      assert bool(constants.files) == has_constants
  with np.load(tmp_path / f'{row["stem"]}.npz') as start:
    assert [start[part].shape for part in start.files] == [(20, 6)]
  before = manifest.stat().st_mtime_ns
  exported_programs.write(case, tmp_path, names)
  assert manifest.stat().st_mtime_ns == before


def test_forms_of_an_accelerator_are_taken_as_if_it_were_there():
  has_gpu = bool(tf.config.list_logical_devices('GPU'))
  assert banded_scan.is_preferred() == has_gpu
  with placement.as_if_there('GPU'):
    assert banded_scan.is_preferred()
    assert tf.config.list_logical_devices('CPU')
  assert banded_scan.is_preferred() == has_gpu


def test_larger_cases_have_sizes_of_users():
  sizes = {
    case.name.partition(',')[0]: case.law.draw(2, 0).shape[1]
    for case in exported_programs.large_cases()
  }
  assert sizes['logistic regression'] == 100
  assert sizes['path'] == 1000
  assert sizes['Cox process'] > 64 * 64
