"""What the file of a cut off call says of the call that goes on."""

import types

import pytest
import tensorflow as tf

from tfp_adaptive.driver import archive
from tfp_adaptive.driver import progress
from tfp_adaptive.posterior import run_file
from tfp_adaptive.posterior.plan import Place

_RUN = dict(seed=[0, 3])


@pytest.mark.parametrize(
  'budget, is_richer', [(9e4, False), (1e5, False), (1.1e5, True)]
)
@pytest.mark.parametrize('lacking', [0.0, 5e4])
def test_what_a_budget_left_out_is_tried_again_with_a_larger_one_only(
  tmp_path, monkeypatch, budget, is_richer, lacking
):
  header = dict(
    kind='posterior', coordinates=['x'], dtype='float64', run=_RUN,
    place=Place(1, 'done', True, lacking), report=[], max_gradients=1e5,
  )  # fmt: skip
  (tmp_path / 'posterior.npz').write_bytes(archive.seal(header, {}))
  problem = types.SimpleNamespace(
    coordinates=['x'], dtype=tf.float64, draw_starts=lambda *_: [0.0]
  )
  settings = types.SimpleNamespace(
    checkpoint_dir=tmp_path, num_chains=1, reports=progress.SILENT,
    max_gradients=budget, identity=lambda: _RUN,
  )  # fmt: skip
  monkeypatch.setattr(run_file.saved, 'restore', lambda *_: None)
  kept = run_file.RunFile(problem, settings).read()
  assert kept.is_richer == is_richer and kept.place.lacking == lacking
