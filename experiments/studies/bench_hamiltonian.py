"""Cost of an adapting step of entropy-adapted HMC, and its growth with size.

A step of L = 5 is timed frozen, adapting with Hessian products by second-order
autodiff, and adapting with finite differences of gradients, interleaved.
"""

from typing import NamedTuple

import numpy as np
import rich.table
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.studies.bench import calibrate
from experiments.studies.bench import kernel_program
from experiments.studies.bench import time_steps
from experiments.targets.gaussians import gaussian_target
from experiments.targets.gaussians import KernelGaussian
from experiments.targets.stochastic_volatility import StochasticVolatility

__all__ = ['Measurement', 'measure', 'to_rich']

_NUM_STEPS = 5
_SECONDS_PER_REPEAT = 0.3
_NUM_REPEATS = 9


class Case(NamedTuple):
  """What is timed."""

  name: str
  target: object
  preconditioner: object
  start: np.ndarray


class Measurement(NamedTuple):
  """Cost of one step of all chains, in microseconds, medians over repeats."""

  name: str
  num_chains: int
  event_size: int
  frozen: float
  autodiff: float
  finite_difference: float
  # Medians of the ratios within each repeat.
  autodiff_over_frozen: float
  finite_difference_over_frozen: float


class _Context(NamedTuple):
  dtype: str = 'float32'


def measure(smoke=False, console=None):
  """Measures every case; returns a list of `Measurement`.

  Args:
    smoke: one small case and few repeats, to see that it runs.
    console: a rich console that is told the case at work, or None.
  """
  measurements = []
  for case in _smoke_cases() if smoke else _cases():
    if console is not None:
      console.print(f'{case.name}, {case.target.event_size} dimensions')
    seconds = 0.001 if smoke else _SECONDS_PER_REPEAT
    measurements.append(_measure(case, seconds, 2 if smoke else _NUM_REPEATS))
  return measurements


def to_rich(measurements):
  """Returns a rich table of the measurements."""
  table = rich.table.Table(
    title=f'HMC, L = {_NUM_STEPS}, microseconds per step', title_justify='left'
  )
  for name in (
    'Case',
    'Chains',
    'Dimensions',
    'Frozen',
    'Autodiff',
    'Differences',
    'Autodiff / frozen',
    'Differences / frozen',
  ):
    table.add_column(name, justify='right')
  for row in measurements:
    table.add_row(*map(str, row[:3]), *(f'{value:.2f}' for value in row[3:]))
  return table


def _cases():
  rng = np.random.default_rng(0)
  parts = tfpa.preconditioners
  kernel_gaussian = KernelGaussian(name='kernel_gaussian').build(_Context())
  volatility = StochasticVolatility(name='stochastic_volatility').build(
    _Context()
  )
  start = volatility.suggested_start + 0.1 * rng.normal(size=(10, 2519))
  yield Case(
    'kernel Gaussian, dense',
    kernel_gaussian,
    parts.cholesky(),
    rng.normal(size=(10, 51)),
  )
  yield Case('S&P 500, diagonal', volatility, parts.diagonal(), start)
  yield Case('S&P 500, tridiagonal', volatility, parts.tridiagonal(), start)
  yield Case('S&P 500, arrow', volatility, parts.arrow(3), start)
  for event_size in (1000, 10_000, 100_000):
    target = gaussian_target('iid', np.ones(event_size), 'float32')
    start = rng.normal(size=(2, event_size))
    yield Case('iid, diagonal', target, parts.diagonal(), start)
    yield Case('iid, tridiagonal', target, parts.tridiagonal(), start)


def _smoke_cases():
  target = gaussian_target('iid', np.ones(3), 'float32')
  yield Case('iid', target, tfpa.preconditioners.diagonal(), np.ones([2, 3]))


def _measure(case, seconds, num_repeats):
  """Returns the `Measurement` of one case."""
  options = {
    'frozen': {},
    'autodiff': {'hessian_product': 'autodiff'},
    'finite_difference': {'hessian_product': 'finite_difference'},
  }
  start = tf.constant(case.start, case.target.dtype)
  programs = {
    name: kernel_program(
      tfpa.entropy_adaptive_hamiltonian(
        case.target.target_log_prob_fn,
        300 if name == 'frozen' else 2**30,
        num_leapfrog_steps=_NUM_STEPS,
        preconditioner=case.preconditioner,
        **option,
      ),
      start,
      num_warmup_steps=300,
    )
    for name, option in options.items()
  }
  num_steps = {
    name: calibrate(program, seconds) for name, program in programs.items()
  }
  times = {name: [] for name in programs}
  for _ in range(num_repeats):
    for name, program in programs.items():
      elapsed = time_steps(program, num_steps[name])
      times[name].append(1e6 * elapsed / num_steps[name])
  times = {name: np.asarray(values) for name, values in times.items()}
  return Measurement(
    case.name,
    len(case.start),
    case.target.event_size,
    *(float(np.median(times[name])) for name in programs),
    *(
      float(np.median(times[name] / times['frozen']))
      for name in ('autodiff', 'finite_difference')
    ),
  )
