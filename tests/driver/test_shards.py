"""Shards of chains: their law, their bits, and merges in closed form."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.driver import child
from tfp_adaptive import interfaces
from tfp_adaptive.core import history
from tfp_adaptive.core import merging
from tfp_adaptive.driver import shards
from tfp_adaptive.linear import running_moments
from tfp_adaptive.linear import scale_search

_SCALES = np.array([0.5, 1.0, 3.0])
_NUM_ADAPTING = 40


def _log_prob(x):
  return -0.5 * tf.reduce_sum((x / tf.constant(_SCALES, x.dtype)) ** 2, -1)


def _start(num_chains=4):
  rng = np.random.default_rng(3)
  return tf.constant(_SCALES * rng.normal(size=(num_chains, 3)))


@pytest.fixture(scope='module')
def kernel():
  return tfpa.gradient_adaptive_langevin(
    _log_prob, _NUM_ADAPTING, preconditioner=tfpa.preconditioners.diagonal()
  )


def _sample(kernel, start, num_results=60, **options):
  options = {'seed': 5, 'jit_compile': False, 'progress': False, **options}
  return tfpa.sample(kernel, start, num_results, **options)


@pytest.fixture(scope='module')
def two(kernel):
  return _sample(kernel, _start(), devices=['/CPU:0', '/CPU:0'])


def _assert_same(one, other):
  for name in ('states', 'trace', 'adaptation_trace', 'final_kernel_results'):
    left, right = getattr(one, name), getattr(other, name)
    tf.nest.map_structure(np.testing.assert_array_equal, left, right)


def test_one_shard_is_a_run_without(kernel):
  with tf.device('CPU:0'):
    alone = _sample(kernel, _start())
  _assert_same(alone, _sample(kernel, _start(), devices=['CPU:0']))


def test_shards_draw_noise_of_their_own(kernel):
  start = tf.tile(_start()[:1], [4, 1])
  states = _sample(kernel, start, devices=['CPU:0'] * 2).states
  # The negative control: chains of one shard differ by their place in it.
  assert not np.any(np.all(states[:, 0] == states[:, 1], axis=-1))
  assert not np.any(np.all(states[:, 0] == states[:, 2], axis=-1))


def _interrupt(kernel, num_calls, **options):
  """Runs on shards until one of their blocks is interrupted."""
  run, calls = shards.Sharded.run, []

  def cut(self, *args):
    calls.append(args)
    if len(calls) == num_calls:
      raise KeyboardInterrupt
    return run(self, *args)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(shards.Sharded, 'run', cut)
    with pytest.raises(KeyboardInterrupt):
      _sample(kernel, _start(), **options)


@pytest.mark.full
def test_a_run_goes_on_and_other_numbers_of_shards_are_refused(
  kernel, two, tmp_path
):
  options = dict(devices=['CPU:0'] * 2, checkpoint_dir=tmp_path)
  _interrupt(kernel, 4, **options)
  with pytest.raises(ValueError, match='num_shards'):
    _sample(kernel, _start(), **{**options, 'devices': ['CPU:0'] * 4})
  _assert_same(two, _sample(kernel, _start(), **options))


@pytest.mark.full
@pytest.mark.parametrize('block_size', [7, 60])
def test_draws_on_disk_have_the_bits_of_memory_and_go_on(
  kernel, two, tmp_path, block_size
):
  pytest.importorskip('zarr', reason='draws_dir is an extra')
  options = dict(
    devices=['CPU:0'] * 2, draws_dir=tmp_path, block_size=block_size
  )
  # Blocks have one step or two, so the run ends within a file.
  _interrupt(kernel, 13, **options)
  for _ in range(2):  # Continued, then opened.
    _assert_same(two, _sample(kernel, _start(), **options))


_ON_TWO_DEVICES = """
import sys
import numpy as np
import tensorflow as tf
tf.config.set_logical_device_configuration(
  tf.config.list_physical_devices('CPU')[0],
  [tf.config.LogicalDeviceConfiguration()] * 2,
)
import tfp_adaptive as tfpa

target = lambda x: -0.5 * tf.reduce_sum(x**2 / [0.25, 1.0, 9.0], -1)
start = tf.constant(np.random.default_rng(3).normal(size=(8, 3)), tf.float32)
places = ['CPU:0'] * 4, ['CPU:0', 'CPU:1'] * 2, 'all'

def run(kernel, devices):
  return tfpa.sample(
    kernel, start, 1000, seed=1, devices=devices, progress=False
  )

kernel = tfpa.fisher_divergence_hamiltonian(target, 300)
runs = [run(kernel, devices) for devices in places[:2]]
np.testing.assert_array_equal(runs[0].states, runs[1].states)
kernel = tfpa.gradient_adaptive_langevin(
  target, 300, tfpa.preconditioners.diagonal()
)
runs = [run(kernel, devices) for devices in places]
np.testing.assert_array_equal(runs[0].states, runs[1].states)
assert np.any(runs[0].states != runs[2].states)  # Two shards.
for run in runs:
  variances = np.var(run.states.reshape(-1, 3), axis=0) / [0.25, 1.0, 9.0]
  # Some 3000 of 8000 draws are effective: a standard error of 0.026.
  assert np.all(np.abs(variances - 1.0) < 0.12), variances
"""


@pytest.mark.nightly
def test_draws_are_the_same_on_any_number_of_devices():
  child.run('-c', _ON_TWO_DEVICES)


@pytest.mark.parametrize('devices', [['/GPU:7'], 'CPU:0', [], ['CPU:0'] * 3])
def test_what_cannot_be_divided_or_found_is_refused(kernel, devices):
  with pytest.raises(ValueError, match="no device|'all' or a list|evenly"):
    _sample(kernel, _start(), devices=devices)


def test_coordinates_of_one_chain_are_not_divided():
  # A density of any size would take half of them, with another distribution.
  kernel = tfpa.gradient_adaptive_langevin(
    lambda x: -0.5 * tf.reduce_sum(x**2), 4
  )
  with pytest.raises(ValueError, match='there is one chain'):
    _sample(kernel, tf.zeros([4]), devices=['CPU:0'] * 2)


def test_what_is_recorded_of_all_chains_is_the_mean_over_shards(kernel):
  trace_fn = lambda state, _: tf.reduce_mean(state, axis=0)
  run = _sample(kernel, _start(), 10, devices=['CPU:0'] * 2, trace_fn=trace_fn)
  np.testing.assert_allclose(run.trace['extra'], run.states.mean(axis=1))


@pytest.mark.parametrize('dense', [False, True])
def test_moments_of_halves_are_those_of_the_whole(dense):
  rows = np.random.default_rng(0).normal(size=(50, 8, 3)) * _SCALES
  is_finite = tf.ones([8, 1], tf.bool)

  def learned(rows, moments):
    for row in tf.constant(rows):
      weight = tf.constant(0.07, tf.float64)
      count = row.shape[0]
      moments = running_moments.add(moments, row, is_finite[:count], weight)
    return moments

  start = running_moments.start(tf.constant(rows[0]), is_finite, dense)
  whole = learned(rows, start)
  halves = [learned(rows[:, :4], start), learned(rows[:, 4:], start)]
  merged = merging.merged(halves, start)
  np.testing.assert_allclose(merged.mean, whole.mean, rtol=1e-12)
  np.testing.assert_allclose(merged.spread, whole.spread, rtol=1e-10)
  # The negative control: a plain mean lacks the spread between halves.
  plain = 0.5 * (halves[0].spread + halves[1].spread)
  assert np.max(np.abs(plain / whole.spread - 1.0)) > 1e-3


def test_a_history_has_an_equal_share_of_all():
  start = history.start(12, 2, tf.float64)
  parts = []
  for shard in range(3):
    part = start
    for step in range(20):
      rows = tf.fill([2, 2], tf.constant(shard, tf.float64))
      part = history.add(part, rows, tf.constant([step, shard]))
    parts.append(part)
  merged = merging.merged(parts, start)
  count = collections.Counter(merged.points[:, 0].numpy())
  assert count == {0.0: 4, 1.0: 4, 2.0: 4}
  assert np.all(merged.is_filled) and merged.num_seen == 40


def test_low_rank_fits_are_merged_whatever_the_turn_of_their_columns():
  size, rank = 30, 3
  rng = np.random.default_rng(0)
  columns, _ = np.linalg.qr(rng.normal(size=(size, rank)))
  turn, _ = np.linalg.qr(rng.normal(size=(rank, rank)))
  part = tfpa.preconditioners.low_rank(rank)
  before = part.init(size, tf.float64, tf.ones([], tf.float64))

  def fit(turn):
    noise = 0.01 * rng.normal(size=(size, rank + 1))
    scales = np.linspace(1.0, 9.0, size) * np.exp(noise[:, 0])
    fitted = 3.0 * (columns + 0.1 * noise[:, 1:]) @ turn
    return type(before)(tf.constant(scales), tf.constant(fitted))

  def left(params, other):
    inverse, factor = (part.operator(p).to_dense() for p in (params, other))
    return np.linalg.cond(np.linalg.solve(inverse, factor)) ** 2

  fits = [fit(np.eye(rank)), fit(turn), fit(-np.eye(rank))]
  apart = max(left(fits[0], other) for other in fits[1:])
  merged = merging.merged(fits, before)
  # Nearer to each than they are to each other.
  assert max(left(merged, each) for each in fits) < apart < 2.0
  # The negative control: columns cancel in a plain mean.
  plain = tf.nest.map_structure(lambda *t: sum(t) / len(t), *fits)
  assert max(left(plain, each) for each in fits) > 10.0


def test_a_search_ends_where_one_has_ended():
  def search(scale, trials):
    scale = tf.constant(scale, tf.float64)
    return scale_search.ScaleSearch(scale, tf.constant(1), tf.constant(trials))

  merged = merging.merged([search(1.0, 90), search(4.0, 0)], search(1.0, 100))
  assert not merged.is_searching
  np.testing.assert_allclose(merged.scale, 2.0)


class _Results(
  collections.namedtuple('_Results', ['count', 'step', 'fit', 'rate', 'due']),
):
  merge_rules = dict(
    count=merging.counted, step=merging.largest, fit=merging.first
  )


def _results(count, step, rate):
  never = tf.constant(float('inf'))
  rate = tf.constant(rate, tf.float64)
  return _Results(tf.constant(count), step, {'a': rate}, rate, never)


def test_equal_numbers_stay_and_faults_add_up():
  step = tf.constant(0)
  before = _results(10, step, 0.1)
  parts = [_results(count, step, 0.1) for count in (12, 15, 10)]
  merged = merging.merged(parts, before)
  assert merged.count == 17 and merged.fit['a'] == 0.1
  # Three tenths over three are no tenth.
  assert merged.rate == before.rate and merged.due == float('inf')


@pytest.mark.parametrize('num_shards', [2, 5])
def test_an_optimizer_still_moves_after_a_merge(num_shards):
  optimizer = tfpa.optimizers.relative_gradient()
  part = tfpa.preconditioners.cholesky()
  size, dtype = 20, tf.float64
  params = part.init(size, dtype, tf.ones([], dtype))
  # Two chains of 20 coordinates: every fifth update moves the factor.
  problem = interfaces.ProblemSize(size, 2, size * (size + 1) // 2, dtype)
  feedback = interfaces.Feedback(tf.ones([], dtype), tf.ones([], dtype))
  grads = tf.nest.map_structure(tf.zeros_like, params)

  def moves(state):
    moved = params
    for _ in range(6):
      moved, state = optimizer.update(
        grads, state, moved, part, feedback, problem
      )
    return not np.array_equal(moved, params)

  start = optimizer.init(params, problem)
  counts = tf.cast(tf.range(num_shards) % 2, dtype)
  states = [start._replace(num_updates=count) for count in counts]
  assert moves(merging.merged(states, start))
  # The negative control: no update makes a whole number of a mean.
  assert not moves(start._replace(num_updates=tf.reduce_mean(counts)))


@pytest.mark.full
@pytest.mark.parametrize('num_shards', [1, 4])
def test_shards_reach_the_acceptance_of_one(num_shards):
  # The example of docs/scale.md. With seed 0 the search for a scale ends at
  # different steps in the shards: then 0.92 and 0.22 were accepted.
  kernel = tfpa.gradient_adaptive_langevin(
    lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1), 1000
  )
  start = tf.random.stateless_normal([8, 20], seed=(0, 0))
  devices = ['/CPU:0'] * num_shards
  run = _sample(kernel, start, 500, seed=0, devices=devices, jit_compile=True)
  # Runs of other seeds are between 0.50 and 0.57.
  np.testing.assert_allclose(run.trace['is_accepted'].mean(), 0.55, atol=0.1)
  eigenvalues = np.linalg.eigvalsh(
    tfpa.learned_covariance(kernel, run.final_kernel_results)
  )
  # The target has no direction of its own.
  assert eigenvalues[-1] / eigenvalues[0] < 1.3
