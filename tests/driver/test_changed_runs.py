"""Changed runs are refused, and unchanged runs resume in a fresh process.

Changes lie outside of the graph: in a file, a table, a module or an array.
Every builder meets another density.
"""

import json

import numpy as np
import pytest

from tests.driver import changed_runs
from tests.driver import child
from tfp_adaptive.driver import probe

# What they read is in no digest, be it of a program or of code.
_QUICK = ('a lookup table', 'numpy.load')


def _refused(case, folder, number):
  """Returns the message that refuses the changed case."""
  case(folder, False)(folder / 'run') if number % 2 else (
    changed_runs.begin(case, folder, number)
  )
  changed = case(folder, True)
  with pytest.raises(ValueError) as error:
    changed(folder / 'run')
  return str(error.value)


@pytest.mark.full
@pytest.mark.parametrize('name', _QUICK)
def test_a_run_whose_outside_has_changed_is_refused(
  name, tmp_path, monkeypatch
):
  case = changed_runs.SAMPLES[f'{name}, tfpa.sample']
  changed_runs.begin(case, tmp_path, 0)
  with pytest.raises(ValueError, match='it differs in the target, or what it'):
    case(tmp_path, True)(tmp_path / 'run')
  # Power: digests alone take it for the same run.
  monkeypatch.setattr(probe, 'differences', lambda *_: '')
  assert np.all(np.isfinite(case(tmp_path, True)(tmp_path / 'run')))


@pytest.mark.nightly
@pytest.mark.parametrize('group', ['SAMPLES', 'POSTERIORS', 'BUILDERS'])
def test_every_changed_run_is_refused(group, tmp_path):
  cases, rows = getattr(changed_runs, group), []
  for number, (name, case) in enumerate(cases.items()):
    folder = tmp_path / str(number)
    folder.mkdir()
    try:
      result = _refused(case, folder, number)
    except pytest.fail.Exception:
      result = 'ACCEPTED'
    rows.append((name, result.replace(f'{folder}', '')[:150]))
  assert 'ACCEPTED' not in [result for _, result in rows], rows


@pytest.mark.nightly
def test_unchanged_runs_resume_in_a_fresh_process_with_the_same_bits(tmp_path):
  whole, resumed = (_in_a_process(tmp_path, when) for when in ('first', 'then'))
  assert resumed == whole and len(whole) == len(changed_runs.UNCHANGED)
  assert not any(found.startswith('refused') for found in whole.values())


def _in_a_process(root, when):
  told = child.run('-m', changed_runs.__name__, root, when)
  return json.loads(told.splitlines()[-1])
