"""A call that was cut off goes on with another budget of gradients."""

import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.driver import checkpoint
from tfp_adaptive.posterior.engines import host


class _Killed(Exception):
  pass


def _sample(folder, max_gradients, **options):
  return tfpa.sample_posterior(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1),
    num_draws=200, num_chains=8, seed=3, min_ess=400, progress=False,
    init=tf.TensorSpec([2], tf.float64), jit_compile=False,
    checkpoint_dir=folder, max_gradients=max_gradients, **options,
  )  # fmt: skip


def _steps(posterior):
  """Returns the words on the steps of the first adaptation."""
  (found,) = (s.found for s in posterior.report if s.name == 'look')
  return found.rpartition(', ')[2]


@pytest.mark.full
def test_an_adaptation_that_was_cut_off_goes_on_with_more_gradients(
  tmp_path, monkeypatch
):
  save, calls = checkpoint.State.save, []

  def dying(self, *args, **header):
    if calls:
      raise _Killed
    calls.append(None)
    return save(self, *args, **header)

  with monkeypatch.context() as patch, pytest.raises(_Killed):
    patch.setattr(host, '_STEPS_TO_SAVE', 10)
    patch.setattr(checkpoint.State, 'save', dying)
    _sample(tmp_path / 'cut', 4000)
  whole = _sample(tmp_path / 'whole', 4000)
  richer = _sample(tmp_path / 'richer', 8000)
  with monkeypatch.context() as patch, pytest.raises(_Killed):
    patch.setattr(host, '_STEPS_TO_SAVE', 10)
    patch.setattr(checkpoint.State, 'save', dying)
    _sample(tmp_path / 'cut', 3000)  # Of less it is the same, too.
  found = _sample(tmp_path / 'cut', 8000)
  assert _steps(found) == _steps(whole) != _steps(richer)
  assert found.converged


@pytest.mark.parametrize('phase', ['adapt', 'sample'])
def test_a_callback_ends_a_run_and_nothing_is_lost(phase, capfd):
  def callback(update):
    told.append(update)
    return update.phase == phase

  told = []
  found = _sample(None, 4000, callback=callback)
  assert found.ended_by == 'the user' and capfd.readouterr().err == ''
  assert told[-1].phase == phase and 0 < told[-1].step <= told[-1].num_steps
  # In the warm-up there are only the states that it had reached.
  assert (len(found.unconstrained) > 1) == (phase == 'sample')


def test_a_callback_that_cannot_be_called_is_refused():
  with pytest.raises(TypeError, match='`callback` must be a function of one'):
    _sample(None, 4000, callback=True)
