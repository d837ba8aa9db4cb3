"""The notebooks of docs/tutorials run, and show what their text says."""

import json
import pathlib

import matplotlib.pyplot
import numpy as np
import pytest

import tfp_adaptive as tfpa

_TUTORIALS = pathlib.Path(tfpa.__file__).resolve().parents[1] / 'docs/tutorials'
_NOTEBOOKS = sorted(path.stem for path in _TUTORIALS.glob('*.ipynb'))


def _check_groups(names):
  posterior = names['posterior']
  assert posterior.converged and names['simple'].converged
  # Schools with few students are nearer to the mean than their averages.
  mean = posterior.states.mean.mean()
  is_small = np.array(names['sizes']) <= 6
  distance = np.abs(names['estimate'] - mean)[is_small]
  assert np.mean(distance) < 0.9 * np.mean(
    np.abs(names['raw'] - mean)[is_small]
  )
  assert names['comparison'].index[0] == 'groups'
  assert 0.1 < names['share'] < 0.9


def _check_time_series(names):
  assert names['posterior'].converged
  states, weights = names['states'], names['weights']
  exact = weights.sum(axis=1) @ names['step_scales']
  np.testing.assert_allclose(states.step_scale.mean(), exact, rtol=0.1)
  exact = weights.sum(axis=0) @ names['noises']
  np.testing.assert_allclose(states.noise.mean(), exact, rtol=0.05)
  by_hand = np.percentile(names['by_hand'], 95, axis=(0, 1))
  by_model = np.percentile(names['predicted'][..., -10:], 95, axis=(0, 1))
  np.testing.assert_allclose(by_hand, by_model, rtol=0.05)


def _check_failing(names):
  first, second = names['first'], names['second']
  assert not first.converged and second.converged
  assert any('R-hat' in sentence for sentence in first.failed)
  signs = np.sign(first.states.slope[..., 0].mean(axis=0))
  assert set(signs) == {-1.0, 1.0}
  assert (second.states.slope > 0.0).all()
  assert second.num_gradients < first.num_gradients
  assert names['inside'].sum() >= 48


def _check_funnel(names):
  worst = {name: run.run['worst'] for name, run in names['runs'].items()}
  assert worst['map']['rhat'][0] < 1.01
  assert min(worst['map'][key][0] for key in ('ess_bulk', 'ess_tail')) > 4000
  assert worst['dense matrix']['rhat'][0] > 1.01
  # The standard normal's 5 % quantile, times the deviation of the log scale.
  exact = -1.645 * 1.5
  low = {
    name: np.percentile(run.states[..., 0], 5)
    for name, run in names['runs'].items()
  }
  assert abs(low['map'] - exact) < 0.15 < low['dense matrix'] - exact
  assert list(names['drivers'][names['drivers'] >= 0]) == [0]
  # In the new coordinates the spread of an effect does not depend on the scale.
  behind = names['behind']
  np.testing.assert_allclose(behind.std(axis=0), 1.0, atol=0.1)
  assert abs(np.corrcoef(behind[:, 0], np.abs(behind[:, 1]))[0, 1]) < 0.1


def _check_without_gradients(names):
  rhat, _ = names['runs']['kernel HMC'].run['worst']['rhat']
  assert rhat < 1.01
  assert names['run'].run['worst']['rhat'][0] < 1.01
  # The learned score of the banana is near the true one at the draws.
  assert np.corrcoef(*names['pairs'])[0, 1] > 0.9


_CHECKS = {
  'failing': _check_failing,
  'funnel': _check_funnel,
  'groups': _check_groups,
  'time_series': _check_time_series,
  'without_gradients': _check_without_gradients,
}


@pytest.mark.nightly
@pytest.mark.parametrize('name', _NOTEBOOKS)
def test_a_tutorial_runs_and_shows_what_its_text_says(name, monkeypatch):
  matplotlib.pyplot.switch_backend('agg')
  monkeypatch.chdir(_TUTORIALS)
  names = {}
  for cell in json.loads((_TUTORIALS / f'{name}.ipynb').read_text())['cells']:
    if cell['cell_type'] == 'code':
      code = compile(''.join(cell['source']), f'{name}.ipynb', 'exec')
      exec(code, names)
      matplotlib.pyplot.close('all')
  if name in _CHECKS:
    _CHECKS[name](names)
