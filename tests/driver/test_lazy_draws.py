"""Draws on disk as numpy's own arrays, where numpy has rules of its own."""

import numpy as np
import pytest

from tests.driver.test_draws_on_disk import _sample
from tfp_adaptive.driver import checkpoint
from tfp_adaptive.driver.lazy_draws import LazyDraws


class _Chunked(np.ndarray):
  chunks = (4,)


def _lazy(rows):
  return LazyDraws(np.asarray(rows).view(_Chunked), 'folder')


def test_a_mean_of_complex_numbers_is_complex():
  rows = (np.arange(11.0) + 1j * np.arange(11.0) ** 2).astype(np.complex64)
  np.testing.assert_allclose(np.mean(_lazy(rows)), rows.mean(), rtol=1e-5)
  assert np.mean(_lazy(rows)).dtype == np.complex64


def test_a_mean_of_nothing_is_no_number():
  with pytest.warns(RuntimeWarning):
    assert np.isnan(np.mean(_lazy(np.zeros(0))))


@pytest.mark.parametrize('axis', [1, -2, (0, 3)])
def test_an_axis_that_is_not_there_is_refused(axis):
  for function in (np.mean, np.any):
    with pytest.raises(np.exceptions.AxisError):
      function(_lazy(np.zeros(3)), axis=axis)


def test_draws_are_found_from_another_folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  result = _sample('run')
  expected = np.asarray(result.states)
  (tmp_path / 'elsewhere').mkdir()
  monkeypatch.chdir(tmp_path / 'elsewhere')
  np.testing.assert_array_equal(result.states[...], expected)
  assert np.isfinite(expected).all()


def test_draws_that_are_gone_are_no_numbers_in_their_place(tmp_path):
  result = _sample(tmp_path)
  (tmp_path / 'draws.zarr/posterior/x/c.0.1.0').unlink()
  assert np.isfinite(result.states[:4]).all()
  for wanted in (slice(None), 5, slice(3, 5), slice(None, None, -1)):
    with pytest.raises(checkpoint.CheckpointError, match='is missing'):
      result.states[wanted]
  for path in (tmp_path / 'draws.zarr/sample_stats/diverging').glob('c.*'):
    path.unlink()
  with pytest.raises(checkpoint.CheckpointError, match='is missing'):
    result.trace['diverging'][...]
