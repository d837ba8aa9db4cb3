"""Runs of the study of rivals, and of posteriordb, on models and draws."""

import numpy as np
import pytest

from experiments.run.study import Work
from experiments.samplers import on_models
from experiments.studies import rivals

_SETTINGS = rivals.STUDY.settings()


def test_draws_of_others_are_judged_by_unknowns_in_the_order_of_the_model(
  monkeypatch, tmp_path
):
  draws = np.random.RandomState(0).normal(size=[50, 8, 8])
  asked = {}

  def execute(task, python, data):
    asked.update(task, python=python, data=data)
    return {
      'states/effect': draws,
      'states/extra': draws,
      'states/spread': draws[..., 0] + 3.0,
      'states/mean': draws[..., 1],
      'target_log_prob': draws[..., 2],
      'diverging': draws[..., 2] > 9.0,
      **dict(gradients=7.0, warmup_gradients=2.0, seconds=3.0),
      **dict(cpu_seconds=4.0, peak_bytes=5.0, versions='{"pymc": "5"}'),
    }

  monkeypatch.setattr(on_models, 'execute', execute)
  work = Work(_SETTINGS, tmp_path, python='python')
  record = rivals.STUDY.run(('eight_schools', 'PyMC'), 3, work)
  names = list(record['means'])
  assert names[:3] == ['mean', 'spread', 'effect[0]'] and len(names) == 10
  assert record['means']['spread'][0] == pytest.approx(
    draws[..., 0].mean() + 3.0
  )
  assert record['num_gradients'] == 9.0 and record['cpu_seconds'] == 4.0
  assert record['versions'] == {'pymc': '5'} and asked['seed'] == 3
  assert asked['model'].endswith('eight_schools.py')
  assert list(asked['data']) == ['seen', 'errors']
  # The means of these draws are known to be wrong.
  assert abs(record['worst_error'][0]) > 10.0


@pytest.mark.full
def test_a_run_of_ours_is_judged(tmp_path):
  work = Work(_SETTINGS, tmp_path)
  record = rivals.STUDY.run(('student_t', 'sample_posterior'), 0, work)
  assert len(record['means']) == 50
  assert 0.0 < record['num_warmup_gradients'] < record['num_gradients']
  assert record['cpu_seconds'] > 1.0
