"""`sample_posterior`: from a model to named draws with a verdict.

This file checks the arguments; `stages.py` runs the stages of the report:

starts     Each chain gets a start with a finite density.
look       The first warm-up: HMC learns a matrix by the Fisher divergence.
structure  Matrices and maps are compared on pairs of states and gradients.
adapt      The best structure adapts, unless the chains have it already.
sample     Chains draw until all checks pass and half of the gradients were
           spent on draws, or the budget ends. If the checks are far from
           passing, the chains adapt again, for longer.
"""

import inspect
import math
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
  """Samples a posterior; the user need not choose settings.

  The call finds starts, scales, trajectory lengths, the number of steps and the
  structure of the sampler. The structure is a preconditioning matrix, a map
  (change of variables) if scales depend on other coordinates, or replica
  exchange between modes. Adaptation uses the gradients of its own steps. The
  starts, the choice of the structure and checks take additional gradients.

  The run stops when every coordinate has R-hat below 1.01 and `min_ess`
  effective draws in bulk, tails and moments, and at least half of all gradients
  were spent on draws. If `max_gradients` or `max_seconds` ends the run first,
  the verdict names the checks that failed.

  Args:
    model: One of three kinds. A `tfd.JointDistribution`, with data given by
      name, in `data` or by `experimental_pin`. A model in JAX, NumPyro, PyMC or
      NumPy that a function of `tfpa.models` returned. A differentiable log
      density, called as TFP calls it: parts [chains, event...] -> [chains].
    data: Observed values of a joint distribution, a mapping from names of its
      parts. Use it for parts with the name of an option, such as `seed` or
      `init`. Other data may also be keywords.
    num_draws: Draws of each chain to return, an int of at least 100. If these
      draws are not enough, the chains run on and are thinned by 2, 4, ... If
      the budget ends in between, the extra draws are returned too.
    num_chains: Number of chains, at least 2. Use 4 or more, because R-hat says
      little about fewer chains.
    seed: Int, pair of ints or [2] int Tensor. The same seed gives the same
      draws.
    init: For a density: its unknowns, as a structure of a `tf.TensorSpec` of
      each event, or of starts [chains, event...]. For a joint distribution:
      starts of its unknowns, by name, or `None` to draw the starts.
    bijectors: For a density: bijectors onto the supports, in the structure of
      `init` or as a dict by name. Unknowns without a bijector are unbounded.
    min_ess: Effective draws that every coordinate must have.
    max_gradients: Gradients that every chain may compute, warm-up included. A
      run may exceed the budget, because the costs of an adaptation and of
      steps that are tried again are not known before.
    max_seconds: Seconds that the call may take, warm-up included; `None`: no
      limit. A compilation is not interrupted.
    jit_compile: Whether XLA compiles the steps. `None`: yes, unless XLA cannot
      compile the density (determinants, Python code) or is slow at it (factors
      of large matrices on a CPU). The report gives the reason.
    progress: Whether to write progress to stderr. If your program has set up
      `logging`, messages about the stages go to the logger `tfp_adaptive`
      instead.
    callback: Function that is called several times a second while chains run.
      Its argument has `phase`, `step`, `num_steps` and `accept_rate` of the
      stage. If it returns true, the run ends as after Ctrl-C. With
      `callback=lambda _: event.is_set()` another thread can end the run.
    checkpoint_dir: Folder from which the same call resumes if it was cut off. A
      warm-up is saved every 250 steps or more often. Draws are saved every 20
      seconds, or less often if this takes long. If `max_gradients` or
      `max_seconds` ended the run, the same call with a larger value resumes it.
      `None`: nothing is written.
    dtype: Dtype of the computation: tf.float64, or tf.float32 for a float32
      model. `None`: float64 on a CPU, the model's own dtype on an accelerator.
      On a CPU even float32 models are computed in float64, because with many
      data the rounding of float32 decides acceptance. `states` have the model's
      dtype, `unconstrained` has the dtype of the computation.
    coords: Labels of dimensions for ArviZ, `{'school': ['A', 'B']}`.
    dims: Names of the dimensions of parts, without chain and draw,
      `{'theta': ['school']}`.
    **pins: Observed values of a joint distribution, by the names of its parts.

  Returns:
    A `Posterior`. Print it for the verdict; it has `states`, `draws`,
    `converged`, `report`, `kernel` and `more`. After an interrupt (Ctrl-C)
    during or after the warm-up, the call returns the draws so far, or the last
    states of the warm-up. Before the warm-up, an interrupt raises.

  Raises:
    TypeError: If the model is none of these kinds.
    ValueError: If an argument is not allowed, a latent variable is discrete,
      the density is not one number for each chain, no start has a finite
      density, or `checkpoint_dir` is damaged or belongs to another run.
    RuntimeError: If another run writes to `checkpoint_dir`, if no run can write
      there, or if the process was forked after TensorFlow had run.

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
  """Refuses numbers with which no run could draw or pass its checks."""
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
      f'{num_draws} draws of {num_chains} chains are too few for '
      f'`min_ess={min_ess}` effective draws: write `num_draws='
      f'{math.ceil(2 * min_ess / num_chains)}` or more, or a smaller `min_ess`.'
    )


def _check_amount(name, given, instead, may_be_infinite=False):
  """Refuses all but positive numbers; infinity needs `may_be_infinite`."""
  is_number = isinstance(given, numbers.Real) and given > 0
  if not is_number or not (may_be_infinite or np.isfinite(given)):
    finite = '' if may_be_infinite else ', and finite'
    raise ValueError(
      f'`{name}` must be a positive number{finite}, but got {given!r}. Write '
      f'for example `{name}={instead}.'
    )


def problem_of(model, init, bijectors, num_chains, pins):
  """Returns the `Problem` for the model and data of the user."""
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
      f'or a log density, a function, but got {type(model).__name__}. For a '
      'single distribution pass its `log_prob` without calling it, and '
      '`init=tf.TensorSpec(event shape)`.'
    )
  if pins:
    raise ValueError(
      f'{" and ".join(map(repr, pins))} {"are" if len(pins) > 1 else "is"} no '
      'argument, and a density has no parts that take data. Bind its data '
      'before, `lambda x: log_prob(x, data)`; pass a joint distribution '
      'itself, not its `log_prob`.'
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
