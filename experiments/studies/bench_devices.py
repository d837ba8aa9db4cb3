"""Every kernel on a device: its law, its speed, and how many chains fill it.

  python -m experiments bench --device gpu --all --output gpu.json

A kernel learns with 100 chains. Then what it learned leaves 10 000 exact draws
invariant, or does not: z-scores of means and variances after 20 steps, beside
those of a kernel of another law, which have to be large. Chain steps per second
for 10 to 10 000 chains, the first number that ten times more chains do not
double, and all of it with TF32 off and on.
"""

import time
from typing import NamedTuple

import numpy as np
import rich.table
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.studies import kernel_cases
from tfp_adaptive.core import random

__all__ = [
  'FULL',
  'TEMPER',
  'Measurement',
  'draws',
  'learned',
  'measure',
  'to_rich',
  'worst_z',
]

_SMOKE_CASES = (
  'gradient_adaptive_langevin',
  'marginal_gradient, markov',
)
TEMPER = 1.3  # Of the other law.


class Protocol(NamedTuple):
  """How much is measured."""

  num_adaptation_steps: int = 500
  num_learning_chains: int = 100
  num_judges: int = 10_000
  num_judged_steps: int = 20
  num_chains: tuple = (10, 100, 1000, 10_000)
  seconds: float = 0.3


FULL = Protocol()
_SMOKE = Protocol(100, 20, 2000, 10, (10, 100), 0.01)


class Measurement(NamedTuple):
  """A kernel on a device."""

  name: str
  device: str
  tensor_float_32: bool
  compile_seconds: float
  # By number of chains: steps of all of them in a second.
  chain_steps: dict
  saturation: int
  worst_z: float
  # Of a kernel whose law is another: what the check can see.
  other_law_z: float


def measure(smoke=False, console=None):
  """Measures every kernel; returns a list of `Measurement`.

  Args:
    smoke: two kernels, few chains, to see that it runs.
    console: a rich console that is told the kernel at work, or None.
  """
  found = []
  for case in kernel_cases.cases():
    if smoke and case.name not in _SMOKE_CASES:
      continue
    for tensor_float_32 in (False, True):
      if console is not None:
        console.print(f'{case.name}, TF32 {"on" if tensor_float_32 else "off"}')
      found.append(_measure(case, tensor_float_32, _SMOKE if smoke else FULL))
  return found


def to_rich(measurements):
  """Returns a rich table of the measurements."""
  table = rich.table.Table(
    title='Steps of all chains per second', title_justify='left'
  )
  for name in ('Kernel', 'TF32', 'Compile, s', 'Chain steps by chains'):
    table.add_column(name)
  for name in ('Chains that fill it', 'Worst z', 'of another law'):
    table.add_column(name, justify='right')
  for row in measurements:
    rates = ', '.join(f'{b}: {v:.3g}' for b, v in row.chain_steps.items())
    table.add_row(
      *(row.name, 'on' if row.tensor_float_32 else 'off'),
      *(f'{row.compile_seconds:.1f}', rates, str(row.saturation)),
      *(f'{row.worst_z:.1f}', f'{row.other_law_z:.1f}'),
    )
  return table


def _measure(case, tensor_float_32, protocol):
  """Returns the `Measurement` of a case."""
  before = tf.config.experimental.tensor_float_32_execution_enabled()
  tf.config.experimental.enable_tensor_float_32_execution(tensor_float_32)
  try:
    kernel, state, compile_seconds = learned(case, protocol)
    other, _, _ = learned(case, protocol, TEMPER)
    rates = {
      num_chains: _chain_steps(kernel, case, num_chains, protocol.seconds)
      for num_chains in protocol.num_chains
    }
    return Measurement(
      name=case.name,
      device=tf.nest.flatten(state)[0].device,
      tensor_float_32=tensor_float_32,
      compile_seconds=compile_seconds,
      chain_steps=rates,
      saturation=_saturation(rates),
      worst_z=worst_z(kernel, case, protocol),
      other_law_z=worst_z(other, case, protocol),
    )
  finally:
    tf.config.experimental.enable_tensor_float_32_execution(before)


def learned(case, protocol, temper=1.0):
  """Returns the frozen kernel, a state, and seconds until the first step."""
  kernel = case.build(protocol.num_adaptation_steps, temper)
  start = draws(case, protocol.num_learning_chains, 0)
  results = kernel.bootstrap_results(start)
  run = _program(kernel)
  begin = time.monotonic()
  run(start, results, 1)
  seconds = time.monotonic() - begin
  state, results = run(start, results, protocol.num_adaptation_steps)
  return tfpa.frozen(kernel, results), state, seconds


def draws(case, num_chains, seed):
  """Returns exact draws of a case, packed as its kernel takes them."""
  return case.pack(tf.constant(case.law.draw(num_chains, seed), tf.float32))


def _program(kernel):
  """Returns (state, results, number of steps) -> (state, results)."""

  @tf.function(jit_compile=True, autograph=False)
  def run(state, results, num_steps):
    def body(step, state, results):
      seed = random.fold_in(tf.constant([7, 8]), step)
      return step + 1, *kernel.one_step(state, results, seed=seed)

    _, state, results = tf.while_loop(
      lambda step, *_: step < num_steps, body, (0, state, results)
    )
    return state, results

  def call(state, results, num_steps):
    state, results = run(state, results, tf.constant(num_steps))
    tf.nest.flatten(state)[0].numpy()  # Until it is there.
    return state, results

  return call


def _chain_steps(kernel, case, num_chains, seconds):
  """Returns steps of all chains in a second."""
  state, run = draws(case, num_chains, 1), _program(kernel)
  results = kernel.bootstrap_results(state)
  run(state, results, 1)
  num_steps, elapsed = 1, 0.0
  while elapsed < seconds:
    num_steps *= 4
    begin = time.monotonic()
    run(state, results, num_steps)
    elapsed = time.monotonic() - begin
  return num_chains * num_steps / elapsed


def _saturation(rates):
  """Returns the first number of chains that the next one does not double."""
  numbers = list(rates)
  for number, following in zip(numbers, numbers[1:]):
    if rates[following] < 2.0 * rates[number]:
      return number
  return numbers[-1]


def worst_z(kernel, case, protocol=FULL):
  """Returns the largest |z| of means and variances after some steps.

  Of chains that start as exact draws, so they are independent.

  Args:
    kernel: That does not adapt.
    case: `kernel_cases.Case`, whose law is judged.
    protocol: `Protocol`.
  """
  start = draws(case, protocol.num_judges, 2)
  state, _ = _program(kernel)(
    start, kernel.bootstrap_results(start), protocol.num_judged_steps
  )
  rows = np.concatenate(
    [
      np.reshape(np.float64(part), [protocol.num_judges, -1])
      for part in tf.nest.flatten(state)
    ],
    axis=1,
  )
  distances = rows - case.law.mean
  worst = 0.0
  for values in (distances, distances**2 - case.law.variances):
    error = values.std(axis=0) / len(values) ** 0.5
    worst = max(worst, float(np.max(np.abs(values.mean(axis=0)) / error)))
  return worst
