"""sample_posterior(): a model in, a verdict and named draws out.

starts     drawn, until all have a finite density
look       HMC by Fisher divergence, one matrix, its lengths learned
structure  matrices and conditional maps, on pairs of states and gradients
adapt      the winner, where it is another
sample     until it is enough, and for as long as all before if the budget pays
           for it; chains that disagree adapt again, longer
"""

import inspect
import numbers
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import arguments
from tfp_adaptive.core import random
from tfp_adaptive.driver import calling
from tfp_adaptive.driver import progress as progress_lib
from tfp_adaptive.interfaces import types
from tfp_adaptive.models import Model
from tfp_adaptive.posterior.model import data as data_lib
from tfp_adaptive.posterior.model import problem as problem_lib
from tfp_adaptive.posterior.posterior import Posterior
from tfp_adaptive.posterior.settings import Settings
from tfp_adaptive.posterior.stages import Run

__all__ = ['problem_of', 'sample_posterior']


@arguments.by_keyword('sample_posterior(model, y=y, num_draws=1000)')
def sample_posterior(  # noqa: PLR0913  # All have defaults.
  model: types.Model,
  *,
  data: Mapping[str, types.Structure] | None = None,
  num_draws: int = 1000,
  num_chains: int = 8,
  seed: types.Seed = 0,
  init: types.Structure = None,
  bijectors: types.Structure = None,
  min_ess: float = 400,
  max_gradients: float = 100_000,
  max_seconds: float | None = None,
  jit_compile: bool | None = None,
  progress: bool = True,
  callback: Callable[[progress_lib.Update], bool | None] | None = None,
  checkpoint_dir: types.Path | None = None,
  dtype: tf.DType | None = None,
  coords: Mapping[str, Sequence] | None = None,
  dims: Mapping[str, Sequence[str]] | None = None,
  **pins: types.Structure,
) -> Posterior:
  """Samples a posterior; nothing has to be chosen.

  Starts, scales, the structure of the sampler (a matrix, or a map where scales
  change from place to place), trajectory lengths and the number of steps are
  found, on pairs of states and gradients that the chains have anyway. It stops
  when every coordinate has R-hat below 1.01 and `min_ess` effective draws in
  bulk and tails, or says why not; and not before draws took half of all
  gradients, as long as `max_gradients` and `max_seconds` pay for more.

  Args:
    model: `tfd.JointDistribution` with its data given by name, as keywords, in
      `data` or by `experimental_pin`; what a function of `tfpa.models` makes of
      a model in JAX, NumPyro, PyMC or NumPy; or a log density, differentiable,
      called as TFP calls it with parts [chains, event...], which returns
      [chains].
    data: Observed values of a joint distribution, a mapping of the names of its
      parts. It is for parts whose names are options too, such as `seed` and
      `init`. Others may be given by keyword instead.
    num_draws: Draws of each chain to return. Where that is not enough steps,
      chains run on and every second, fourth, ... is kept; where the budget ends
      before as many are there anew, what it still pays for is returned as well.
    num_chains: At least 4 for R-hat to tell.
    seed: Int, pair of ints or [2] int Tensor: same seed, same draws.
    init: Of a density: what its unknowns are, a structure of `tf.TensorSpec`
      of an event, or of starts [chains, event...]. Of a joint distribution:
      starts of its unknowns, by name; `None`: they are drawn.
    bijectors: Of a density: onto the supports, in the structure of `init`, or a
      dict with some of its names; the others are real.
    min_ess: Effective draws of every coordinate that are enough.
    max_gradients: What every chain may spend, warm-up included, about: an
      adaptation of another structure is planned before its cost is known.
    max_seconds: Seconds that the call may take, warm-up included; `None`: any.
      A compilation is not interrupted.
    jit_compile: Whether XLA compiles the steps; `None`: unless the density has
      operations that XLA is slow at, factors of large matrices on a CPU, or
      cannot compile: determinants, Python code. The report says so.
    progress: Whether to write progress to stderr. If the program has set up
      `logging`, the stages go to the logger `tfp_adaptive` instead.
    callback: Function that is called several times a second while chains run.
      Its argument has `phase`, `step`, `num_steps` and `accept_rate` of the
      stage. If it returns true, the run ends as after Ctrl-C. With
      `callback=lambda _: event.is_set()` another thread can end the run.
    checkpoint_dir: Folder that the call goes on from if it was cut off: every
      block of adapting steps, and draws every 20 seconds (large ones, which
      take long to write, less often), are written to it.
      With another `max_gradients` or `max_seconds` a run that was ended by them
      goes on. `None`: nothing is kept.
    dtype: tf.float32 or tf.float64: what the density is computed in. `None`:
      float64 on a CPU, also for a model that is written in float32, because
      the rounding of float32 decides acceptance where data are many; the
      model's own dtype on an accelerator. `states` have the dtype of the
      model, `unconstrained` that of the computation.
    coords: Labels of dimensions for ArviZ, `{'school': ['A', 'B']}`.
    dims: Names of dimensions of parts, without those of chains and draws,
      `{'theta': ['school']}`.
    **pins: Observed values of a joint distribution, by the names of its parts.

  Returns:
    A `Posterior`. Print it for the verdict; it has `states`, `draws`,
    `converged`, `report`, `kernel` and `more`. An interrupt (Ctrl-C) ends
    the run, not the call: what was drawn so far is returned, in the warm-up
    the states that it had reached. Before the warm-up it ends the call.

  Raises:
    TypeError: If the model is none of these kinds.
    ValueError: If an argument is not allowed, a latent variable is discrete,
      the density is none of each chain, no start has a finite one, or
      `checkpoint_dir` is damaged or of another run.
    RuntimeError: If another run writes to `checkpoint_dir`, or none can, or in
      a process that was forked after TensorFlow had run.

  Example:
    tfd = tfp.distributions
    model = tfd.JointDistributionNamedAutoBatched(
      dict(rate=tfd.Gamma(2.0, 1.0), count=lambda rate: tfd.Poisson(rate))
    )
    posterior = tfpa.sample_posterior(model, count=3.0)
    print(posterior, posterior.states)
  """
  calling.check('tfpa.sample_posterior')
  _check_sizes(num_draws, num_chains, min_ess, max_gradients, max_seconds)
  arguments.check_seed(seed)
  if callback is not None and not callable(callback):
    raise TypeError(
      '`callback` must be a function of one argument, the progress, but got '
      f'{callback!r}. Write for example `callback=print`.'
    )
  settings = Settings(
    int(num_draws),
    int(num_chains),
    random.sanitize(seed),
    float(min_ess),
    float(max_gradients),
    float('inf') if max_seconds is None else float(max_seconds),
    jit_compile,
    progress_lib.Reports(progress, callback),
    checkpoint_dir,
    dtype,
  )
  observed = data_lib.joined(data, pins)
  problem = problem_of(model, init, bijectors, num_chains, observed)
  problem = problem_lib.labelled(problem, coords, dims)
  return Run(problem, settings)()


def _check_sizes(num_draws, num_chains, min_ess, max_gradients, max_seconds):
  """Refuses numbers with which nothing could be drawn, or judged."""
  counts = dict(num_draws=(num_draws, 100), num_chains=(num_chains, 2))
  for name, (given, least) in counts.items():
    if not isinstance(given, (int, np.integer)) or given < least:
      raise ValueError(
        f'`{name}` must be an int of at least {least}, but got {given!r}. Data '
        'are given by the name of their part, `sample_posterior(model, y=y)`.'
      )
  _check_amount('min_ess', min_ess, '400`')
  _check_amount('max_gradients', max_gradients, '100_000`, or `1e9` for any')
  if max_seconds is not None:
    _check_amount('max_seconds', max_seconds, '600`, or `None` for any', True)
  if num_draws * num_chains < 2 * min_ess:
    raise ValueError(
      f'{num_draws} draws of {num_chains} chains cannot be worth '
      f'`min_ess={min_ess}` effective ones: write `num_draws='
      f'{-(-2 * int(min_ess) // num_chains)}` or more, or a smaller `min_ess`.'
    )


def _check_amount(name, given, instead, may_be_infinite=False):
  """Refuses what is no positive number, or one that nothing can reach."""
  is_number = isinstance(given, numbers.Real) and given > 0
  if not is_number or not (may_be_infinite or np.isfinite(given)):
    finite = '' if may_be_infinite else ', and finite'
    raise ValueError(
      f'`{name}` must be a positive number{finite}, but got {given!r}. Write '
      f'for example `{name}={instead}.'
    )


def problem_of(model, init, bijectors, num_chains, pins):
  """Returns the `Problem` of what the user gave."""
  if isinstance(model, tfp.distributions.JointDistribution) or isinstance(
    model, tfp.experimental.distributions.JointDistributionPinned
  ):
    if bijectors is not None:
      raise ValueError(
        '`bijectors` belong to a density: a joint distribution knows the '
        'supports of its unknowns. Leave them out. Data of that name are given '
        "by `data={'bijectors': values}`."
      )
    return problem_lib.of_joint(model, pins, init, num_chains, _options())
  if isinstance(model, Model):
    given = dict(init=init, bijectors=bijectors, **(pins or {}))
    known = [name for name, value in given.items() if value is not None]
    if known:
      raise ValueError(
        f'{", ".join(known)}: a model of `tfpa.models` has its unknowns and '
        'data already. Give them to the function that made it.'
      )
    return problem_lib.of_model(model, num_chains)
  if inspect.isgeneratorfunction(model):
    raise TypeError(
      f'`model` is the function {model.__name__} with a `yield`, but must be a '
      '`tfd.JointDistribution` or a log density. Write '
      '`@tfd.JointDistributionCoroutineAutoBatched` above its `def`.'
    )
  if isinstance(model, (type, tfp.distributions.Distribution)) or not callable(
    model
  ):
    raise TypeError(
      '`model` must be a `tfd.JointDistribution`, with its data given by name, '
      f'or a log density, a function, but got {type(model).__name__}. Of one '
      'distribution pass `log_prob`, without calling it, and '
      '`init=tf.TensorSpec(event shape)`.'
    )
  if pins:
    raise ValueError(
      f'{", ".join(map(repr, pins))}: no argument of this name, and a density '
      'has no values to pin. Bind its data before, `lambda x: log_prob(x, '
      'data)`; of a joint distribution pass itself, not its `log_prob`.'
      f'{data_lib.did_you_mean(list(pins), _options())}'
    )
  return problem_lib.of_density(model, init, bijectors, num_chains)


def _options():
  """Returns the names of all options, without the model and its data."""
  return [
    name
    for name, option in inspect.signature(sample_posterior).parameters.items()
    if name != 'model' and option.kind is not option.VAR_KEYWORD
  ]
