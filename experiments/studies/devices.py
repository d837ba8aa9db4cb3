"""Every kernel on a device: its law, its speed, and how many chains fill it.

A kernel learns with 100 chains and is then frozen. Exact draws must stay exact:
`worst_z` is the largest z-score of means and variances after 20 steps of 10,000
chains that started as exact draws. `other_law_z` is that of a kernel of another
law, and must be large. `chain_steps` are steps of all chains per second, by the
number of chains. `saturation` is the first of these numbers at which ten times
more chains do not double the rate.
"""

import time
import warnings
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.run.study import Settings
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.samplers import laws
from tfp_adaptive.core import random

_OTHER_TEMPER = 1.3


class Amount(Settings):
  """How much is measured."""

  num_adaptation_steps: int = 500
  num_learning_chains: int = 100
  num_judges: int = 10_000
  num_judged_steps: int = 20
  num_chains: tuple[int, ...] = (10, 100, 1000, 10_000)
  seconds: float = 0.3

  def smoke(self) -> 'Amount':
    return Amount(
      num_adaptation_steps=100,
      num_learning_chains=20,
      num_judges=2000,
      num_judged_steps=10,
      num_chains=(10, 100),
      seconds=0.01,
    )


class Case(NamedTuple):
  """A kernel, and whether matrix products may use TensorFloat-32."""

  kernel: laws.Case
  tensor_float_32: bool


def cases(settings: Amount) -> dict[str, Case]:
  """Returns every kernel, with TF32 off and on."""
  del settings
  return {
    f'{case.name} | TF32 {"on" if tensor_float_32 else "off"}': Case(
      case, tensor_float_32
    )
    for case in laws.cases()
    for tensor_float_32 in (False, True)
  }


def run(case: Case, seed: int, work: Work) -> dict[str, Any]:
  """Returns the law and the speed of a kernel on the default device."""
  del seed
  amount, kernel_case = work.settings, case.kernel
  before = tf.config.experimental.tensor_float_32_execution_enabled()
  tf.config.experimental.enable_tensor_float_32_execution(case.tensor_float_32)
  try:
    kernel, state, compile_seconds = learned(kernel_case, amount)
    other, _, _ = learned(kernel_case, amount, _OTHER_TEMPER)
    rates = {
      num_chains: _chain_steps(kernel, kernel_case, num_chains, amount.seconds)
      for num_chains in amount.num_chains
    }
    return dict(
      name=kernel_case.name,
      device=tf.nest.flatten(state)[0].device,
      tensor_float_32=case.tensor_float_32,
      compile_seconds=compile_seconds,
      chain_steps={str(number): rate for number, rate in rates.items()},
      saturation=_saturation(rates),
      worst_z=worst_z(kernel, kernel_case, amount),
      other_law_z=worst_z(other, kernel_case, amount),
    )
  finally:
    tf.config.experimental.enable_tensor_float_32_execution(before)


STUDY = Study(cases, run, Amount)


def learned(
  case: laws.Case, amount: Amount, temper: float = 1.0
) -> tuple[Any, Any, float]:
  """Returns the frozen kernel, a state, and seconds until the first step."""
  kernel = case.build(amount.num_adaptation_steps, temper)
  start = _draws(case, amount.num_learning_chains, 0)
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # One draw is worth a warning.
    run = tfpa.sample(kernel, start, 1, seed=(7, 8), progress=False)
  fixed = tfpa.frozen(kernel, run.final_kernel_results)
  return fixed, run.final_state, run.seconds['compile']


def worst_z(kernel: Any, case: laws.Case, amount: Amount) -> float:
  """Returns the largest |z| of means and variances after some steps.

  The chains start as exact draws, so they stay independent.

  Args:
    kernel: A kernel that does not adapt.
  """
  start = _draws(case, amount.num_judges, 2)
  state, _ = _program(kernel)(
    start, kernel.bootstrap_results(start), amount.num_judged_steps
  )
  rows = [
    np.reshape(np.float64(part), [amount.num_judges, -1])
    for part in tf.nest.flatten(state)
  ]
  distances = np.concatenate(rows, axis=1) - case.law.mean
  worst = 0.0
  for values in (distances, distances**2 - case.law.variances):
    error = values.std(axis=0) / len(values) ** 0.5
    worst = max(worst, float(np.max(np.abs(values.mean(axis=0)) / error)))
  return worst


def _draws(case, num_chains, seed):
  """Returns exact draws in the form that the kernel takes."""
  return case.pack(tf.constant(case.law.draw(num_chains, seed), tf.float32))


def _program(kernel):
  """Returns a function (state, results, num_steps) -> (state, results)."""

  @tf.function(jit_compile=True, autograph=False)
  def run_steps(state, results, num_steps):
    def body(step, state, results):
      seed = random.fold_in(tf.constant([7, 8]), step)
      return step + 1, *kernel.one_step(state, results, seed=seed)

    _, state, results = tf.while_loop(
      lambda step, *_: step < num_steps, body, (0, state, results)
    )
    return state, results

  def call(state, results, num_steps):
    state, results = run_steps(state, results, tf.constant(num_steps))
    tf.nest.flatten(state)[0].numpy()  # Waits for the device.
    return state, results

  return call


def _chain_steps(kernel, case, num_chains, seconds):
  """Returns steps of all chains per second."""
  state, program = _draws(case, num_chains, 1), _program(kernel)
  results = kernel.bootstrap_results(state)
  program(state, results, 1)
  num_steps, elapsed = 1, 0.0
  while elapsed < seconds:
    num_steps *= 4
    begin = time.monotonic()
    program(state, results, num_steps)
    elapsed = time.monotonic() - begin
  return num_chains * num_steps / elapsed


def _saturation(rates):
  """Returns the first number of chains that the next one does not double."""
  numbers = list(rates)
  for number, following in zip(numbers, numbers[1:]):
    if rates[following] < 2.0 * rates[number]:
      return number
  return numbers[-1]
