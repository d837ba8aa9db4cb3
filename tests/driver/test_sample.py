"""`tfpa.sample`: what it refuses, warns of and records."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.driver import progress as progress_lib
from tfp_adaptive.driver import sample as sample_lib

START = np.random.default_rng(4).normal(size=(3, 2))


def _kernel(num_adaptation_steps=4, target=targets.standard_normal, **options):
  return tfpa.gradient_adaptive_langevin(
    target, num_adaptation_steps, **options
  )


def run_short(kernel=None, start=START, **options):
  """Returns a run of a few steps."""
  # Uncompiled: a block of these steps is traced faster than compiled.
  arguments = dict(
    num_results=5, seed=(1, 2), progress=False, jit_compile=False
  )
  arguments.update(options)
  start = tf.nest.map_structure(tf.constant, start)
  return tfpa.sample(kernel or _kernel(), start, **arguments)


@pytest.mark.parametrize('value', [-np.inf, np.nan, np.inf])
def test_starts_without_finite_density_are_refused_by_chain(value):
  def target(x):
    inside = targets.standard_normal(x)
    return tf.where(x[:, 0] > 0.0, inside, tf.constant(value, x.dtype))

  start = np.abs(START)
  start[1] *= -1.0
  with pytest.raises(ValueError, match='start of chain 1 ') as error:
    run_short(_kernel(target=target), start)
  assert 'chain 0' not in str(error.value)
  assert 'chain 2' not in str(error.value)


@pytest.mark.parametrize(
  'build', [tfpa.marginal_gradient, tfpa.elliptical_slice]
)
def test_samplers_of_a_prior_apart_are_started_too(build):
  prior = tfpa.gaussian_priors.random_walk(1.0, 2, 1.0)
  options = () if build is tfpa.elliptical_slice else (4,)
  kernel = build(lambda x: -tf.norm(x, axis=-1), *options, prior=prior)
  start = np.float32(START)
  assert np.all(np.isfinite(run_short(kernel, start).states))
  if build is tfpa.marginal_gradient:  # Its gradient at zero is none.
    with pytest.raises(ValueError, match='gradient of .* start of chain 1 '):
      run_short(kernel, start * np.float32([[1.0], [0.0], [1.0]]))


@pytest.mark.full
def test_chains_that_never_moved_are_named():
  # Chain 1 starts on a point so dense that no move away is ever accepted.
  def spiked(x):
    is_spike = tf.reduce_all(tf.equal(x, 9.0), axis=-1)
    density = targets.standard_normal(x)
    return tf.where(is_spike, tf.constant(1e4, x.dtype), density)

  start = np.array([[0.1, 0.2], [9.0, 9.0], [0.3, 0.1]])
  kernel = tfpa.adaptive_metropolis(
    spiked, 0, preconditioner=tfpa.preconditioners.cholesky(init_scale=0.5)
  )
  words = r'No move was accepted .* chain 1\.'
  with pytest.warns(UserWarning, match=words) as told:
    tfpa.sample(kernel, start, 30, progress=False, seed=1)
  assert {warning.filename for warning in told} == {__file__}


def test_an_ordinary_run_discards_records_and_warns_of_nothing():
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    run = run_short(
      num_results=30,
      num_burnin_steps=7,
      trace_fn=lambda state, results: {
        'sum': tf.reduce_sum(state, axis=-1),
        'step': results.step,
      },
    )
  assert not [w for w in caught if w.category is UserWarning]
  np.testing.assert_array_equal(run.states[-1], run.final_state)
  # The larger of adaptation and burn-in is discarded.
  assert int(run.final_kernel_results.step) == 7 + 30
  np.testing.assert_array_equal(
    run.adaptation_trace['extra']['step'], 1 + np.arange(7)
  )
  np.testing.assert_array_equal(run.trace['extra']['step'], 8 + np.arange(30))
  np.testing.assert_allclose(
    run.trace['extra']['sum'], run.states.sum(axis=-1), rtol=1e-12
  )


# A run with a time limit, or that continues another.


def _until(reports):
  given = sample_lib.Arguments(
    _kernel(),
    tf.constant(START),
    num_results=20,
    seed=(1, 2),
    block_size=5,
    jit_compile=False,
    reports=reports,
  )
  return sample_lib.sample_until(lambda: float('inf'), given)


def test_an_interrupt_after_a_block_leaves_state_step_and_draws_in_one_place(
  monkeypatch,
):
  calls = []

  def fitted(kernel, state, results, step):
    del kernel, state
    calls.append(step)
    if len(calls) == num_calls:
      raise KeyboardInterrupt
    return results

  num_calls = None
  monkeypatch.setattr(sample_lib.block_fits, 'fitted', fitted)
  whole = _until(progress_lib.SILENT)
  num_calls = len(calls) - 1  # The last block but one is not reached.
  calls.clear()
  with pytest.raises(sample_lib.Cut) as error:
    _until(progress_lib.SILENT)
  cut = error.value
  assert cut.step == 4 + 10 and cut.by_user and len(cut.states) == 10
  np.testing.assert_array_equal(cut.states, whole.states[:10])
  np.testing.assert_array_equal(cut.final_state, cut.states[-1])
  assert len(cut.trace['target_log_prob']) == 10


def test_a_callback_hears_the_phase_in_which_a_run_is(monkeypatch):
  phases = []
  reports = progress_lib.Reports(
    is_shown=False, callback=lambda update: phases.append(update.phase)
  )
  found = _until(reports)
  assert phases[0] == 'adapt' and phases[-1] == 'sample'
  phases.clear()

  def judged(*args):
    raise AssertionError('judged a block whose judgement nobody reads')

  monkeypatch.setattr(sample_lib.diagnosis, 'worst_coordinates', judged)
  monkeypatch.setattr(sample_lib.diagnosis, 'warnings_after', judged)
  given = sample_lib.Arguments(
    _kernel(),
    found.final_state,
    num_results=10,
    seed=3,
    block_size=5,
    jit_compile=False,
    reports=reports,
  )
  more = sample_lib.sample_more(given, found.final_kernel_results)
  assert set(phases) == {'sample'} and more.states.shape[0] == 10


def test_checks_of_a_folder_are_no_compilation(monkeypatch, tmp_path):
  clock, describe = [0.0], sample_lib.run_identity.describe

  def slow(*args):
    clock[0] += 1000.0
    return describe(*args)

  monkeypatch.setattr(sample_lib.run_identity, 'describe', slow)
  monkeypatch.setattr(sample_lib.time, 'monotonic', lambda: clock[0])
  assert run_short(checkpoint_dir=tmp_path).seconds['compile'] == 0.0
