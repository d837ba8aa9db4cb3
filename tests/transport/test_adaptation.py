"""The adaptation of pairs: when it fits, what it learns, what it refuses."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import resumed
from tests.contracts import targets
from tests.transport import funnels
from tfp_adaptive import fits
from tfp_adaptive.core import block_fits
from tfp_adaptive.core.stack import metropolis_hastings_results as mh_results


def _kernel(num_adaptation_steps, **options):
  return tfpa.transport_adaptive_hamiltonian(
    targets.standard_normal,
    num_adaptation_steps,
    num_leapfrog_steps=(1, 3),
    transport=tfpa.transports.conditional_gaussian(init_scale=0.5),
    **options,
  )


@pytest.mark.full
def test_short_adaptations_are_fitted_and_can_be_frozen():
  # Two coordinates leave one driver; the first fit is the last.
  kernel = _kernel(30)
  start = tf.constant(np.random.default_rng(0).normal(size=(8, 2)), tf.float32)
  run = tfpa.sample(kernel, start, 3, progress=False, jit_compile=False)
  statistics = run.final_kernel_results.statistics
  assert (statistics.num_fits, statistics.last_fit) == (1, 24)
  assert statistics.num_failed_fits == 0
  frozen = tfpa.frozen(kernel, run.final_kernel_results)
  state = tf.constant(run.states[-1])
  seed = tf.constant([1, 2])
  there, _ = kernel.one_step(state, run.final_kernel_results, seed=seed)
  also, _ = frozen.one_step(state, frozen.bootstrap_results(state), seed=seed)
  np.testing.assert_allclose(also, there, rtol=1e-5)
  assert np.any(also != state)


def test_the_step_size_starts_anew_behind_the_first_map():
  transport = funnels.fixed()._replace(fit=lambda params, *_: params)
  kernel = tfpa.transport_adaptive_hamiltonian(
    targets.standard_normal, 3, num_leapfrog_steps=(1, 2), transport=transport
  )
  # The first fit is the last: at 0.8 of the steps.
  assert kernel.fit_steps == (2,)
  state = tf.constant(np.random.default_rng(0).normal(size=(20, funnels.SIZE)))
  with block_fits.promised(kernel):
    results = kernel.bootstrap_results(state)
  for step, seed in enumerate(targets.seeds(3), start=1):
    state, results = kernel.one_step(state, results, seed=seed)
    results = block_fits.fitted(kernel, state, results, step)
    assert int(results.statistics.num_fits) == (step >= 2)
    if step == 2:
      size = float(mh_results(results).accepted_results.step_size)
  assert size == pytest.approx(funnels.SIZE**-0.25)
  excess = float(results.mean_accept_prob) - 0.8
  assert abs(excess) > 0.01
  # One step has followed this map.
  rate = 0.5 * 2.0**-0.6
  moved = float(mh_results(results).accepted_results.step_size)
  np.testing.assert_allclose(np.log(moved / size), rate * excess, rtol=1e-9)


def test_fits_follow_at_steps_that_double_up_to_the_last():
  assert _kernel(0).fit_steps == ()
  assert _kernel(1).fit_steps == (1,)
  assert _kernel(30).fit_steps == (24,)
  assert _kernel(200).fit_steps == (32, 64, 128, 160)
  learned = tfpa.transport_adaptive_hamiltonian(
    targets.standard_normal,
    200,
    transport=tfpa.transports.conditional_gaussian(),
  )
  # Lengths are learned behind the last map.
  assert learned.fit_steps == (32, 64, 120)


def _chain(kernel, state, num_results=20):
  return tfp.mcmc.sample_chain(
    num_results, state, kernel=kernel, trace_fn=None, seed=(0, 1)
  )


def _start(size=2, dtype=np.float64):
  rows = np.random.default_rng(0).normal(size=(8, size))
  return tf.constant(rows.astype(dtype))


@pytest.mark.parametrize(
  'wrapped',
  [
    lambda kernel: kernel,
    lambda kernel: tfp.mcmc.TransformedTransitionKernel(
      kernel, tfp.bijectors.Scale(tf.constant(2.0, tf.float64))
    ),
  ],
)
def test_a_map_that_would_have_to_be_fitted_is_refused_by_sample_chain(wrapped):
  calls = []

  def target(x):
    calls.append(None)
    return targets.standard_normal(x)

  kernel = tfpa.transport_adaptive_hamiltonian(
    target, 100, transport=tfpa.transports.conditional_gaussian()
  )
  with pytest.raises(
    ValueError, match='only `tfpa.sample` makes these fits.*tfpa.frozen'
  ):
    _chain(wrapped(kernel), _start())
  assert not calls


def test_a_map_that_nobody_would_reach_is_refused_by_sample_too():
  class Hidden(tfp.mcmc.TransitionKernel):
    parameters, is_calibrated = {}, True

    def bootstrap_results(self, state):
      return _kernel(20).bootstrap_results(state)

    def one_step(self, state, results, seed=None):
      return _kernel(20).one_step(state, results, seed=seed)

  with pytest.raises(ValueError, match='only `tfpa.sample` makes these fits'):
    tfpa.sample(Hidden(), _start(), 5, progress=False)


@pytest.mark.full
def test_a_map_behind_a_transformation_is_fitted():
  inner = _kernel(40)
  kernel = tfp.mcmc.TransformedTransitionKernel(
    inner, tfp.bijectors.Scale(tf.constant(2.0, tf.float64))
  )
  run = tfpa.sample(kernel, _start(), 3, progress=False, jit_compile=False)
  statistics = run.final_kernel_results.inner_results.statistics
  assert (int(statistics.num_fits), int(statistics.last_fit)) == (1, 32)


@pytest.mark.full
def test_a_run_continued_between_two_fits_has_the_same_bits(
  tmp_path, monkeypatch
):
  kernel = _kernel(60)
  assert kernel.fit_steps == (32, 48)
  resumed.check_same_bits(kernel, _start(), tmp_path, monkeypatch)


@pytest.mark.full
def test_a_run_with_another_fit_is_another_run(tmp_path, monkeypatch):
  def run():
    return tfpa.sample(
      _kernel(30), _start(), 3, progress=False, checkpoint_dir=tmp_path,
      jit_compile=False,
    )  # fmt: skip

  first = run()
  np.testing.assert_array_equal(run().states, first.states)
  monkeypatch.setattr(fits, 'digest', lambda: 'changed')
  with pytest.raises(ValueError, match='the code that fits the map'):
    run()
