"""What a step costs: adapting against frozen, and structures against others.

A case is a few programs that step the same chains, each compiled by XLA. They
are timed in turns, so that a machine that slows down slows all of them. A time
is a median over repeats. A ratio is the median of ratios within each repeat.

  MALA   adapting, frozen, and a loop written by hand: the same draws, three
         products with C, one gradient and nothing else
  HMC    five leapfrog steps, frozen and adapting, with Hessian products by
         second-order autodiff and by finite differences of gradients
  mGrad  one iteration with priors of different structures
"""

import functools
import time
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.run.study import Settings
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.targets import log_gaussian_cox as cox
from experiments.targets.base import BuildContext
from experiments.targets.gaussians import gaussian_target
from experiments.targets.gaussians import KernelGaussian
from experiments.targets.stochastic_volatility import StochasticVolatility

_NEVER_FROZEN = 2**30
_NUM_LEAPFROG_STEPS = 5
# (num_chains, event_size)
_MALA_SIZES = ((1, 10), (10, 10), (1, 100), (10, 100), (100, 100), (10, 300))
_NUM_CELLS = 64
_PATH_LENGTHS = (1000, 2516, 10_000, 100_000, 1_000_000)

# Function of the number of steps. The state is the second of its results.
Program = Callable[[tf.Tensor], Any]


class Steps(Settings):
  """How long is measured."""

  seconds_per_repeat: float = 0.3
  num_repeats: int = 15

  def smoke(self) -> 'Steps':
    return Steps(seconds_per_repeat=0.001, num_repeats=3)


class Case(NamedTuple):
  """Programs that are timed in turns.

  Attributes:
    build: Function of the folder of data sets. It returns the programs by name.
    ratios: Pairs of their names.
    facts: What else the record says.
  """

  build: Callable[[Any], dict[str, Program]]
  ratios: tuple[tuple[str, str], ...]
  facts: dict[str, Any]


def cases(settings: Steps) -> dict[str, Case]:
  """Returns all cases by name."""
  del settings
  return {**_mala(), **_hamiltonian(), **_latent()}


def run(case: Case, seed: int, work: Work) -> dict[str, Any]:
  """Returns microseconds for each program, and the ratios with quartiles."""
  del seed
  programs = case.build(work.data_dir)
  num_steps = {
    name: _calibrate(program, work.settings.seconds_per_repeat)
    for name, program in programs.items()
  }
  times = {name: [] for name in programs}
  for repeat in range(work.settings.num_repeats):
    # The order alternates: no program always follows the same one.
    for name in list(programs)[:: -1 if repeat % 2 else 1]:
      seconds = _seconds(programs[name], num_steps[name])
      times[name].append(1e6 * seconds / num_steps[name])
  times = {name: np.asarray(values) for name, values in times.items()}
  quartiles = {
    f'{one}_over_{other}': np.quantile(
      times[one] / times[other], [0.25, 0.5, 0.75]
    ).tolist()
    for one, other in case.ratios
  }
  return {
    **case.facts,
    **{name: float(np.median(values)) for name, values in times.items()},
    **{name: values[1] for name, values in quartiles.items()},
    'quartiles': {name: values[::2] for name, values in quartiles.items()},
  }


STUDY = Study(cases, run, Steps)


def _calibrate(program: Program, seconds: float) -> int:
  """Returns the number of steps that take about so many seconds."""
  _seconds(program, 10)
  probe = 100
  elapsed = _seconds(program, probe)
  return int(np.clip(probe * seconds / elapsed, 10, 10**6))


def _seconds(program: Program, num_steps: int) -> float:
  """Returns the seconds until the state after `num_steps` is on the host."""
  num_steps = tf.constant(num_steps)
  start = time.perf_counter()
  program(num_steps)[1].numpy()
  return time.perf_counter() - start


def _kernel_program(kernel, init, num_warmup_steps):
  """Returns the program of a kernel, which starts after the warm-up steps."""

  @tf.function(jit_compile=True, autograph=False)
  def run_steps(state, results, num_steps):
    def body(step, state, results):
      seed = tf.stack([step, 17])
      return step + 1, *kernel.one_step(state, results, seed=seed)

    return tf.while_loop(
      lambda step, *_: step < num_steps, body, (0, state, results)
    )

  warm_up = tf.constant(num_warmup_steps)
  _, state, results = run_steps(init, kernel.bootstrap_results(init), warm_up)
  return functools.partial(run_steps, state, results)


# MALA.


def _mala():
  return {
    f'MALA, {num_chains} chains, d = {event_size}': Case(
      functools.partial(_mala_programs, num_chains, event_size),
      (('frozen', 'bare'), ('adapting', 'frozen')),
      dict(num_chains=num_chains, event_size=event_size),
    )
    for num_chains, event_size in _MALA_SIZES
  }


def _mala_programs(num_chains, event_size, data_dir):
  """Returns three programs on Neal's Gaussian with the same factor C."""
  del data_dir
  scales = np.arange(1, event_size + 1) / event_size
  target = gaussian_target('neals_gaussian', scales**2, 'float32')
  rng = np.random.default_rng(0)
  init = tf.constant(scales * rng.normal(size=(num_chains, event_size)))
  init = tf.cast(init, tf.float32)
  factor = np.diag(1.5 * event_size ** (-1 / 6) * scales)

  def program(num_adaptation_steps):
    kernel = tfpa.gradient_adaptive_langevin(
      target.target_log_prob_fn, num_adaptation_steps
    )
    return _kernel_program(kernel, init, num_warmup_steps=500)

  return dict(
    bare=_bare_program(target.target_log_prob_fn, init, np.float32(factor)),
    frozen=program(500),
    adapting=program(_NEVER_FROZEN),
  )


def _bare_program(target_log_prob_fn, init, factor):
  @tf.function(jit_compile=True, autograph=False)
  def run_steps(factor, num_steps):
    def body(step, *state):
      seed = tf.stack([step, 17])
      return step + 1, *bare_langevin_step(
        target_log_prob_fn, factor, state, seed
      )

    start = init, *_value_and_gradient(target_log_prob_fn, init)
    return tf.while_loop(lambda step, *_: step < num_steps, body, (0, *start))

  # The factor is an argument: XLA may simplify products with a constant.
  return functools.partial(run_steps, tf.constant(factor))


def bare_langevin_step(
  target_log_prob_fn: Callable,
  factor: tf.Tensor,
  state: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
  seed: Any,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Makes one preconditioned MALA step with nothing to spare.

    y = x + C (1/2 C^T g(x) + e),
    r = log pi(y) - log pi(x) - 1/2 (|1/2 C^T [g(x) + g(y)] + e|^2 - |e|^2)

  Args:
    target_log_prob_fn: Function of states [chains, d] to [chains].
    factor: C, [d, d] lower triangular.
    state: x [chains, d], log pi(x) [chains] and its gradient g(x).
    seed: [2] int32.

  Returns:
    The next state.
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


def _value_and_gradient(function, x):
  with tf.GradientTape() as tape:
    tape.watch(x)
    value = function(x)
  return value, tape.gradient(value, x)


# HMC adapted by entropy.


def _hamiltonian():
  parts = tfpa.preconditioners
  volatility = {
    'diagonal': parts.diagonal,
    'tridiagonal': parts.tridiagonal,
    'arrow': functools.partial(parts.arrow, 3),
  }
  entries = [
    ('kernel Gaussian, dense', 10, 51, _kernel_gaussian, parts.cholesky)
  ]
  entries += [
    (f'S&P 500, {structure}', 10, 2519, _volatility, part)
    for structure, part in volatility.items()
  ]
  entries += [
    (f'iid, {structure}', 2, size, functools.partial(_iid, size), part)
    for size in (1000, 10_000, 100_000)
    for structure, part in list(volatility.items())[:2]
  ]
  return {
    f'HMC, {name}, d = {event_size}': Case(
      functools.partial(_hamiltonian_programs, build, num_chains, part),
      (('autodiff', 'frozen'), ('finite_difference', 'frozen')),
      dict(name=name, num_chains=num_chains, event_size=event_size),
    )
    for name, num_chains, event_size, build, part in entries
  }


def _kernel_gaussian():
  target = KernelGaussian(name='kernel_gaussian').build(BuildContext('float32'))
  return target, 0.0, 1.0


def _volatility():
  target = StochasticVolatility(name='stochastic_volatility').build(
    BuildContext('float32')
  )
  return target, target.suggested_start, 0.1


def _iid(event_size):
  return gaussian_target('iid', np.ones(event_size), 'float32'), 0.0, 1.0


def _hamiltonian_programs(build, num_chains, part, data_dir):
  """Returns a program that is frozen, and one for each Hessian product.

  Args:
    build: Function that returns the target, and center and scale of the starts.
  """
  del data_dir
  target, center, scale = build()
  noise = np.random.default_rng(0).normal(size=(num_chains, target.event_size))
  start = tf.constant(center + scale * noise, target.dtype)

  def program(num_adaptation_steps, **options):
    kernel = tfpa.entropy_adaptive_hamiltonian(
      target.target_log_prob_fn,
      num_adaptation_steps,
      num_leapfrog_steps=_NUM_LEAPFROG_STEPS,
      preconditioner=part(),
      **options,
    )
    return _kernel_program(kernel, start, num_warmup_steps=300)

  return dict(
    frozen=program(300),
    autodiff=program(_NEVER_FROZEN, hessian_product='autodiff'),
    finite_difference=program(
      _NEVER_FROZEN, hessian_product='finite_difference'
    ),
  )


# mGrad.


def _latent():
  fields = {
    f'mGrad, {_NUM_CELLS} x {_NUM_CELLS} cells, {dtype}, {num_chains} chains': (
      Case(
        functools.partial(_field_programs, _NUM_CELLS, dtype, num_chains),
        (('dense', 'fft'), ('dense', 'kronecker')),
        dict(
          group=f'Cox process, {_NUM_CELLS} x {_NUM_CELLS}',
          dtype=dtype,
          num_chains=num_chains,
          event_size=_NUM_CELLS**2,
        ),
      )
    )
    for dtype in ('float32', 'float64')
    for num_chains in (1, 10)
  }
  paths = {}
  for length in _PATH_LENGTHS:
    num_chains = 10 if length < 100_000 else 1
    paths[f'mGrad, path of {length}'] = Case(
      functools.partial(_path_programs, length, num_chains),
      (('ar1', 'ar2'),),
      dict(
        group=f'path of {length}',
        dtype='float64',
        num_chains=num_chains,
        event_size=length,
      ),
    )
  return fields | paths


def _field_programs(num_cells, dtype, num_chains, data_dir):
  """Returns the programs of a Cox process on a grid, one for each prior."""
  del data_dir
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
    # A separable covariance has the same size, but is another field.
    kronecker=tfpa.gaussian_priors.kronecker(
      [(cox.VARIANCE * along).astype(dtype), along.astype(dtype)]
    ),
  )
  return {
    name: _latent_program(log_likelihood_fn, prior, 0.2, dtype, num_chains)
    for name, prior in priors.items()
  }


def _path_programs(length, num_chains, data_dir):
  """Returns the programs of a volatility path under two Markov priors."""
  del data_dir
  squares = np.random.default_rng(0).chisquare(1, size=length)

  def log_likelihood_fn(x):
    return -0.5 * tf.reduce_sum(x + squares * tf.exp(-x), axis=-1)

  autoregression = tfpa.gaussian_priors.autoregression
  priors = dict(
    ar1=autoregression(np.float64(0.96), 0.3, length),
    ar2=autoregression(np.array([0.7, 0.25]), 0.3, length),
  )
  return {
    name: _latent_program(log_likelihood_fn, prior, 0.5, 'float64', num_chains)
    for name, prior in priors.items()
  }


def _latent_program(log_likelihood_fn, prior, delta, dtype, num_chains):
  kernel = tfpa.MetropolisHastings(
    tfpa.proposals.UncalibratedMarginalGradient(log_likelihood_fn, prior, delta)
  )
  start = tf.zeros([num_chains, *prior.event_shape], dtype)
  return _kernel_program(kernel, start, num_warmup_steps=50)
