"""Cost of an iteration of mGrad by the structure of the prior.

A Cox process on a grid under a dense, an FFT and a Kronecker prior, timed in
turns, and a volatility path under Markov priors of growing length.
"""

import functools
from typing import NamedTuple

import numpy as np
import rich.table
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.studies.bench import calibrate
from experiments.studies.bench import kernel_program
from experiments.studies.bench import time_steps
from experiments.targets import log_gaussian_cox as cox

__all__ = ['Measurement', 'measure', 'to_rich']

_NUM_CELLS = 64
_GRID_DELTA = 0.2
_PATH_DELTA = 0.5
_SECONDS_PER_REPEAT = 0.3
_NUM_REPEATS = 9


class Measurement(NamedTuple):
  """Time of one iteration of all chains, median over repeats."""

  group: str
  prior: str
  dtype: str
  num_chains: int
  event_size: int
  microseconds: float
  # Median of the ratios within each repeat, the group's first prior over this.
  speedup: float


def measure(smoke=False, console=None):
  """Measures every group; returns a list of `Measurement`.

  Args:
    smoke: small cases and few repeats, to see that it runs.
    console: a rich console that is told the group at work, or None.
  """
  seconds, num_repeats = (
    (0.001, 2)
    if smoke
    else (
      _SECONDS_PER_REPEAT,
      _NUM_REPEATS,
    )
  )
  measurements = []
  for group, dtype, num_chains, build in _groups(smoke):
    if console is not None:
      console.print(f'{group}, {dtype}, {num_chains} chain(s)')
    programs = {
      name: _program(prior, log_likelihood_fn, delta, dtype, num_chains)
      for name, (prior, log_likelihood_fn, delta) in build().items()
    }
    sizes = {name: size for name, (_, size) in programs.items()}
    times = _times(
      {name: program for name, (program, _) in programs.items()},
      seconds,
      num_repeats,
    )
    first = next(iter(times.values()))
    measurements += [
      Measurement(
        group,
        name,
        dtype,
        num_chains,
        sizes[name],
        1e6 * float(np.median(values)),
        float(np.median(first / values)),
      )
      for name, values in times.items()
    ]
  return measurements


def to_rich(measurements):
  """Returns a rich table of the measurements."""
  table = rich.table.Table(
    title='mGrad, microseconds per iteration', title_justify='left'
  )
  for name in ('Case', 'Prior', 'dtype', 'Chains', 'd', 'Time', 'Speed-up'):
    table.add_column(name, justify='right')
  for row in measurements:
    table.add_row(
      *map(str, row[:5]), f'{row.microseconds:.1f}', f'{row.speedup:.1f}'
    )
  return table


def _groups(smoke):
  """Yields (group, dtype, chains, () -> {prior: what mGrad takes})."""
  num_cells = 4 if smoke else _NUM_CELLS
  for dtype in ('float32',) if smoke else ('float32', 'float64'):
    for num_chains in (1,) if smoke else (1, 10):
      yield (
        f'Cox process, {num_cells} x {num_cells}',
        dtype,
        num_chains,
        lambda dtype=dtype: _grid_cases(num_cells, dtype),
      )
  lengths = (50,) if smoke else (1000, 2516, 10_000, 100_000, 1_000_000)
  for length in lengths:
    yield (
      f'path of {length}',
      'float64',
      10 if length < 100_000 else 1,
      lambda length=length: _path_cases(length),
    )


@functools.cache
def _grid_cases(num_cells, dtype):
  counts = cox.simulate_counts(num_cells, 'cells', 0)
  length = cox.length_scale(num_cells, 'cells')
  gaps = np.abs(np.subtract.outer(np.arange(num_cells), np.arange(num_cells)))
  along = np.exp(-gaps / length)
  observed = np.asarray(counts, dtype)

  def log_likelihood_fn(x):
    field = tf.reshape(x, [*x.shape[:1], num_cells, num_cells])
    expected = tf.exp(field + (cox.MEAN - np.log(num_cells**2)))
    return tf.reduce_sum(observed * field - expected, axis=[-2, -1])

  priors = dict(
    dense=tfpa.gaussian_priors.spectral(
      cox.cell_covariance(num_cells, 'cells').astype(dtype)
    ),
    fft=tfpa.gaussian_priors.stationary(
      (num_cells, num_cells),
      lambda gaps: cox.VARIANCE * tf.exp(-gaps / tf.cast(length, gaps.dtype)),
      dtype=dtype,
    ),
    # Of a separable kernel: the same sizes, another field.
    kronecker=tfpa.gaussian_priors.kronecker(
      [(cox.VARIANCE * along).astype(dtype), along.astype(dtype)]
    ),
  )
  return {
    name: (prior, log_likelihood_fn, _GRID_DELTA)
    for name, prior in priors.items()
  }


def _path_cases(length):
  squares = np.random.default_rng(0).chisquare(1, size=length)

  def log_likelihood_fn(x):
    return -0.5 * tf.reduce_sum(x + squares * tf.exp(-x), axis=-1)

  autoregression = tfpa.gaussian_priors.autoregression
  priors = dict(
    ar1=autoregression(np.float64(0.96), 0.3, length),
    ar2=autoregression(np.array([0.7, 0.25]), 0.3, length),
  )
  return {
    name: (prior, log_likelihood_fn, _PATH_DELTA)
    for name, prior in priors.items()
  }


def _program(prior, log_likelihood_fn, delta, dtype, num_chains):
  """Returns a program of steps at a fixed delta, and the event size."""
  kernel = tfpa.MetropolisHastings(
    tfpa.proposals.UncalibratedMarginalGradient(log_likelihood_fn, prior, delta)
  )
  start = tf.zeros([num_chains, *prior.event_shape], dtype)
  program = kernel_program(kernel, start, num_warmup_steps=50)
  return program, int(np.prod(prior.event_shape))


def _times(programs, seconds, num_repeats):
  """Returns seconds per step, [num_repeats] for every program, in turns."""
  num_steps = {
    name: calibrate(program, seconds) for name, program in programs.items()
  }
  times = {name: [] for name in programs}
  for _ in range(num_repeats):
    for name, program in programs.items():
      times[name].append(time_steps(program, num_steps[name]) / num_steps[name])
  return {name: np.asarray(values) for name, values in times.items()}
