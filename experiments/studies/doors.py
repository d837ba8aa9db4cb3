"""Models in other languages through `tfpa.models`, beside their own samplers.

`rivals` has the same models as joint distributions, and long runs that judge
these runs. This process needs JAX, NumPyro and PyMC. Their samplers run in the
interpreter of `--python`, which needs these packages as well.
"""

import importlib
from collections.abc import Callable

import numpy as np

import tfp_adaptive as tfpa
from experiments import models
from experiments.run.errors import Refused
from experiments.run.study import pairs
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.samplers import on_models
from experiments.studies import rivals
from tfp_adaptive.posterior import density as density_lib
from tfp_adaptive.posterior.model import problem as problem_lib

MODELS = models.MODELS[:10]
_PEERS = ('NumPyro', 'PyMC', 'nutpie')
_NUM_POINTS = 20


def _from_numpyro(module, data):
  """Returns NumPyro's model and log density of unconstrained dicts."""
  import jax
  from numpyro.infer import util

  model = module.numpyro_model(**data)
  info = util.initialize_model(jax.random.PRNGKey(0), model)
  return tfpa.models.from_numpyro(model), lambda z: -info.potential_fn(z)


def _from_pymc(module, data):
  """Returns PyMC's model and log density of unconstrained dicts."""
  model = module.pymc_model(**data)
  return tfpa.models.from_pymc(model), model.compile_logp()


def _from_numpy(module, data):
  """Returns the same for PyMC's model with compiled gradients of PyTensor."""
  model = module.pymc_model(**data)
  both = model.logp_dlogp_function(ravel_inputs=True)
  both.set_extra_values({})
  point = {v.name: model.initial_point()[v.name] for v in both._grad_vars}
  outputs = model.unobserved_value_vars
  shown = model.compile_fn(
    outputs, inputs=model.value_vars, on_unused_input='ignore'
  )

  def to_shown(x):
    sizes = [int(np.size(value)) for value in point.values()]
    parts = np.split(x, np.cumsum(sizes)[:-1])
    pairs = zip(point.items(), parts, strict=True)
    found = shown({n: np.reshape(x, np.shape(v)) for (n, v), x in pairs})
    return dict(zip((x.name for x in outputs), found))

  init = {name: np.shape(value) for name, value in point.items()}
  made = tfpa.models.from_numpy(both, init, shown=to_shown)
  return made, model.compile_logp()


_DOORS: dict[str, Callable] = {
  'from_numpyro': _from_numpyro,
  'from_pymc': _from_pymc,
  'from_numpy': _from_numpy,
}


def _gap(model, own):
  """Returns the largest relative difference of log densities at 20 points.

  Args:
    model: `tfpa.models.Model`, whose unknowns have no bounds.
    own: Log density of the original library, a function of a dict of arrays.
  """
  problem = problem_lib.of_model(model, _NUM_POINTS)
  density = density_lib.Density(problem, _NUM_POINTS)
  rows = np.random.default_rng(0).normal(size=[_NUM_POINTS, problem.event_size])
  found, _ = density.evaluate(0.5 * rows)
  specs = dict(sorted(model.init.items()))
  sizes = [spec.shape.num_elements() for spec in specs.values()]
  expected = []
  for row in 0.5 * rows:
    parts = np.split(row, np.cumsum(sizes)[:-1])
    pairs = zip(specs.items(), parts, strict=True)
    point = {n: np.reshape(x, spec.shape) for (n, spec), x in pairs}
    expected.append(float(own(point)))
  return float(np.max(np.abs(found / np.array(expected) - 1.0)))


def _run(case: tuple[str, str], seed: int, work: Work):
  """Returns the record of one run."""
  name, sampler = case
  module = models.load(name)
  data = module.data()
  if sampler in _DOORS:
    outcome, more = _through(_DOORS[sampler], module, data, seed, work)
  else:
    outcome, more = (
      on_models.run_theirs(sampler, models.path(name), data, seed, work.python),
      {},
    )
  unknowns = rivals.unknowns(module.tfp_model(**data))
  states = {name: outcome.states[name] for name in unknowns}
  return {**on_models.record(outcome._replace(states=states)), **more}


def _through(door, module, data, seed, work):
  """Returns the `Outcome` of a model of another language, and its gap."""
  try:
    for package in ('jax', 'numpyro', 'pymc', 'pymc.sampling.jax'):
      importlib.import_module(package)
  except ImportError as error:
    raise Refused(f"{error}. Run `pip install '.[numpyro,pymc]'`.") from error
  outcome = on_models.run(
    on_models.OURS, lambda: door(module, data)[0], seed, work.progress
  )
  with importlib.import_module('jax').experimental.enable_x64():
    return outcome, {'gap': _gap(*door(module, data))}


STUDY = Study(
  lambda settings: pairs(MODELS, (*_DOORS, *_PEERS)),
  _run,
  process='cell',
  max_seconds=900.0,
  prepare=rivals.prepare,
)
