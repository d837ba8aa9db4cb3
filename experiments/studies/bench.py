"""Step cost: a bare hand-written MALA loop, the frozen and the adapting kernel.

The bare loop is the yardstick: the same draws, three products with C and one
gradient a step, and nothing else. All three run as one XLA program each, on the
same target, with the same C; repeats are interleaved, so that a machine that
slows down slows all of them, and ratios are medians over repeats.

  y = x + C (1/2 C^T g(x) + e),
  r = log pi(y) - log pi(x) - 1/2 (|1/2 C^T [g(x) + g(y)] + e|^2 - |e|^2)
"""

import functools
import time
from typing import NamedTuple

import numpy as np
import rich.table
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.targets.gaussians import gaussian_target

__all__ = [
  'Measurement',
  'bare_langevin_step',
  'calibrate',
  'kernel_program',
  'measure',
  'time_steps',
  'to_rich',
]

# (num_chains, event_size)
SIZES = ((1, 10), (10, 10), (1, 100), (10, 100), (100, 100), (10, 300))
SMOKE_SIZES = ((2, 3),)
_NUM_WARMUP_STEPS = 500
_SECONDS_PER_REPEAT = 0.15
_NUM_REPEATS = 15


class Measurement(NamedTuple):
  """Cost of one step of all chains, in microseconds, medians over repeats."""

  num_chains: int
  event_size: int
  bare: float
  frozen: float
  adapting: float
  # Medians of the ratios within each repeat.
  frozen_over_bare: float
  adapting_over_frozen: float


def bare_langevin_step(target_log_prob_fn, factor, state, seed):
  """Returns (x, log pi, g) after one preconditioned MALA step, nothing spared.

  Args:
    target_log_prob_fn: maps [chains, d] to [chains].
    factor: C, [d, d] lower triangular.
    state: tuple of x [chains, d], log pi(x) [chains] and its gradient.
    seed: [2] int32.
  """
  x, log_prob, grads = state
  seeds = tf.random.split(seed, 2, alg='philox')
  noise = tf.random.stateless_normal(
    tf.shape(x), seeds[0], dtype=x.dtype, alg='philox'
  )
  uniform = tf.random.stateless_uniform(
    tf.shape(log_prob), seeds[1], dtype=x.dtype, alg='philox'
  )
  pulled = tf.matmul(grads, factor)
  proposed = x + tf.matmul(0.5 * pulled + noise, factor, transpose_b=True)
  new_log_prob, new_grads = _value_and_gradient(target_log_prob_fn, proposed)
  reverse = 0.5 * (pulled + tf.matmul(new_grads, factor)) + noise
  correction = tf.reduce_sum(reverse**2, -1) - tf.reduce_sum(noise**2, -1)
  log_accept_ratio = new_log_prob - log_prob - 0.5 * correction
  is_accepted = tf.math.log(uniform) < log_accept_ratio
  return (
    tf.where(is_accepted[:, tf.newaxis], proposed, x),
    tf.where(is_accepted, new_log_prob, log_prob),
    tf.where(is_accepted[:, tf.newaxis], new_grads, grads),
  )


def measure(smoke=False, console=None, num_repeats=_NUM_REPEATS):
  """Measures every size; returns a list of `Measurement`.

  Args:
    smoke: one small size and few repeats, to see that it runs.
    console: a rich console that is told the size at work, or None.
    num_repeats: of each of the three programs, interleaved.
  """
  measurements = []
  for num_chains, event_size in SMOKE_SIZES if smoke else SIZES:
    if console is not None:
      console.print(f'{num_chains} chains, {event_size} dimensions')
    seconds = 0.001 if smoke else _SECONDS_PER_REPEAT
    measurements.append(
      _measure_size(
        num_chains, event_size, seconds, 3 if smoke else num_repeats
      )
    )
  return measurements


def to_rich(measurements):
  """Returns a rich table of the measurements."""
  devices = ', '.join(
    device.device_type for device in tf.config.list_logical_devices()
  )
  table = rich.table.Table(
    title=f'MALA, dense factor, microseconds per step ({devices})',
    title_justify='left',
  )
  for name in (
    'Chains',
    'Dimensions',
    'Bare loop',
    'Frozen',
    'Adapting',
    'Frozen / bare',
    'Adapting / frozen',
  ):
    table.add_column(name, justify='right')
  for row in measurements:
    counts = [str(row.num_chains), str(row.event_size)]
    table.add_row(*counts, *(f'{value:.2f}' for value in row[2:]))
  return table


def _measure_size(num_chains, event_size, seconds, num_repeats):
  """Returns the `Measurement` of one size."""
  scales = np.arange(1, event_size + 1) / event_size
  target = gaussian_target('neals_gaussian', scales**2, 'float32')
  rng = np.random.default_rng(0)
  init = (scales * rng.normal(size=(num_chains, event_size))).astype(np.float32)
  step_size = 1.5 * event_size ** (-1 / 6)
  factor = np.diag(step_size * scales).astype(np.float32)
  programs = {
    'bare': _bare_program(target, init, factor),
    'frozen': _langevin_program(target, init, _NUM_WARMUP_STEPS),
    'adapting': _langevin_program(target, init, 2**30),
  }
  num_steps = {}
  for name, program in programs.items():
    num_steps[name] = calibrate(program, seconds)
  times = {name: [] for name in programs}
  for _ in range(num_repeats):
    for name, program in programs.items():
      elapsed = time_steps(program, num_steps[name])
      times[name].append(1e6 * elapsed / num_steps[name])
  times = {name: np.asarray(values) for name, values in times.items()}
  return Measurement(
    num_chains,
    event_size,
    *(float(np.median(times[name])) for name in programs),
    float(np.median(times['frozen'] / times['bare'])),
    float(np.median(times['adapting'] / times['frozen'])),
  )


def _bare_program(target, init, factor):
  """Returns a function of the number of steps that runs the bare loop."""
  init = tf.constant(init)

  @tf.function(jit_compile=True, autograph=False)
  def run(factor, num_steps):
    def body(step, *state):
      seed = tf.stack([step, 17])
      return step + 1, *bare_langevin_step(
        target.target_log_prob_fn, factor, state, seed
      )

    log_prob, grads = _value_and_gradient(target.target_log_prob_fn, init)
    return tf.while_loop(
      lambda step, *_: step < num_steps, body, (0, init, log_prob, grads)
    )

  # An argument: XLA may rearrange a constant factor, the kernel's is learned.
  return functools.partial(run, tf.constant(factor))


def _langevin_program(target, init, num_adaptation_steps):
  """Returns the same for the library's kernel."""
  kernel = tfpa.gradient_adaptive_langevin(
    target.target_log_prob_fn, num_adaptation_steps
  )
  return kernel_program(kernel, tf.constant(init), _NUM_WARMUP_STEPS)


def kernel_program(kernel, init, num_warmup_steps):
  """Returns a function of the number of steps that runs a kernel.

  Args:
    kernel: a `tfp.mcmc.TransitionKernel`.
    init: Tensor, the state of the chains.
    num_warmup_steps: made once; every run starts after them.
  """

  @tf.function(jit_compile=True, autograph=False)
  def run(state, results, num_steps):
    def body(step, state, results):
      seed = tf.stack([step, 17])
      return step + 1, *kernel.one_step(state, results, seed=seed)

    return tf.while_loop(
      lambda step, *_: step < num_steps, body, (0, state, results)
    )

  warm_up = tf.constant(num_warmup_steps)
  _, state, results = run(init, kernel.bootstrap_results(init), warm_up)
  return functools.partial(run, state, results)


def _value_and_gradient(function, x):
  with tf.GradientTape() as tape:
    tape.watch(x)
    value = function(x)
  return value, tape.gradient(value, x)


def calibrate(program, seconds):
  """Returns the number of steps that take about so long.

  Args:
    program: function of the number of steps.
    seconds: that a run should take.
  """
  time_steps(program, 10)
  probe = 100
  elapsed = time_steps(program, probe)
  return int(np.clip(probe * seconds / elapsed, 10, 10**6))


def time_steps(program, num_steps):
  """Returns seconds of so many steps, until the numbers are on the host.

  Args:
    program: function of the number of steps.
    num_steps: int.
  """
  num_steps = tf.constant(num_steps)
  start = time.perf_counter()
  program(num_steps)[1].numpy()
  return time.perf_counter() - start
