"""Draws on disk read as numpy's own arrays, in summaries and in ArviZ."""

import numpy as np
import pytest

import tfp_adaptive as tfpa
from tests.driver import disk_runs
from tfp_adaptive.driver import checkpoint
from tfp_adaptive.driver import convergence


def test_draws_that_are_gone_are_no_numbers_in_their_place(tmp_path):
  result = disk_runs.sample(tmp_path)
  (tmp_path / 'draws.zarr/posterior/x/c.0.1.0').unlink()
  assert np.isfinite(result.states[:4]).all()
  for wanted in (slice(None), 5, slice(3, 5), slice(None, None, -1)):
    with pytest.raises(checkpoint.CheckpointError, match='is missing'):
      result.states[wanted]
  for path in (tmp_path / 'draws.zarr/sample_stats/diverging').glob('c.*'):
    path.unlink()
  with pytest.raises(checkpoint.CheckpointError, match='is missing'):
    result.trace['diverging'][...]


@pytest.fixture(scope='module')
def pair(tmp_path_factory):
  """Returns a run of two parts in memory and the same one on disk."""
  kernel = tfpa.gradient_adaptive_langevin(
    lambda a, b: disk_runs.two_axes(a) - 0.5 * b**2, 4
  )
  start = np.random.default_rng(6).normal(size=(2, 3, 4, 3))
  options = dict(kernel=kernel, start=[start, start[..., 0, 0]])
  options.update(num_results=130, block_size=20)
  with pytest.MonkeyPatch.context() as patch:
    # Four coordinates at once.
    patch.setattr(convergence, 'MOST_AT_ONCE', 4 * 6 * 130)
    with pytest.warns(UserWarning):
      options['folder'] = tmp_path_factory.mktemp('run')
      return (
        disk_runs.sample(**dict(options, folder=None)),
        disk_runs.sample(**options),
        options,
      )


@pytest.mark.parametrize(
  'key',
  [
    -1,
    slice(3, 50),
    slice(100, 20),
    (slice(None), 1),
    (Ellipsis, 2),
    (slice(90, 1, -7), slice(None, None, -1), 0, slice(1, None), 1),
  ],
  ids=str,
)
def test_slices_are_those_of_the_array(key, pair):
  one, two = pair[0].states[0], pair[1].states[0]
  found = two[key]
  assert np.shape(found) == one[key].shape
  np.testing.assert_array_equal(found, one[key])


def test_rows_means_and_any_go_by_blocks(pair):
  one, two = pair[0], pair[1]
  np.testing.assert_array_equal(list(two.states[1]), one.states[1])
  np.testing.assert_array_equal(
    np.concatenate(list(two.states[1].blocks())), one.states[1]
  )
  for axis in (None, 0, (0, 1), (0, -1)):
    np.testing.assert_allclose(
      np.mean(two.states[0], axis=axis), one.states[0].mean(axis), rtol=1e-12
    )
  accepted = two.trace['is_accepted']
  assert np.mean(accepted) == one.trace['is_accepted'].mean()
  np.testing.assert_array_equal(
    np.any(accepted, axis=0), one.trace['is_accepted'].any(axis=0)
  )


def test_the_summary_is_that_of_memory(pair):
  one, two = pair[0].run, pair[1].run
  assert set(one['worst']) == set(convergence.Diagnosis._fields)
  for field, (value, place) in one['worst'].items():
    np.testing.assert_allclose(two['worst'][field][0], value, rtol=1e-12)
    assert two['worst'][field][1] == place
  assert one['worst_of_every'] == two['worst_of_every'] == 1


def test_the_summary_reads_every_chunk_once(pair, monkeypatch):
  draws = pair[1].states[0]
  found = disk_runs.reads(monkeypatch)
  groups = [coordinates for coordinates, _ in draws.columns()]
  assert [list(g) for g in groups] == [
    [3 * i, 3 * i + 1, 3 * i + 2] for i in range(4)
  ]
  chunks = [read for read in found if 'Range' in read[1]]
  # Seven blocks of draws, four groups of coordinates.
  assert len(chunks) == len(set(chunks)) == 28


def test_the_tree_is_that_of_memory_and_opens_without_its_draws(
  pair, monkeypatch
):
  xarray = pytest.importorskip('xarray', reason='named draws are an extra')
  expected, found = pair[0].to_arviz(), disk_runs.reads(monkeypatch)
  tree = pair[1].to_arviz()
  assert not [file for file, _ in found if '/x0/' in file or '/lp/' in file]
  assert set(tree.children) == {'posterior', 'sample_stats'}
  for group in tree.children:
    xarray.testing.assert_identical(
      expected[group].to_dataset().drop_attrs(),
      tree[group].to_dataset().drop_attrs(),
    )
  same = ('kernel', 'tuning_steps', 'num_gradients', 'steps_per_result')
  assert all(tree.attrs[name] == expected.attrs[name] for name in same)
  named = pair[1].to_arviz(['loc', 'scale']).posterior
  assert named['loc'].dims == ('chain', 'draw', 'loc_dim_0', 'loc_dim_1')
  np.testing.assert_array_equal(named['scale'], expected.posterior['x1'])
  with pytest.raises(ValueError, match='need 2 different names without'):
    pair[1].to_arviz(['loc'])
