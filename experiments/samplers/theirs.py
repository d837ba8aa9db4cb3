"""Samples a model by another library, in the Python of that library.

  python theirs.py FOLDER

The folder has `task.json` (model, sampler, seed, num_chains, num_draws) and
`data.npz`. Draws are written there as `draws.npz`. If there is a `points.npz`,
log densities at these points are written instead, as `densities.npz`. A model
is a file that `experiments.models` describes, or a Stan program.

This file imports nothing of the repository. All settings are the samplers'
defaults. Where a sampler has no default for the warm-up, it gets the 1000 steps
of its documentation. The clock starts after the imports. It includes the
compilation and the transfer of all draws to the host.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import resource
import sys
import time

import numpy as np

_WARMUP = 1000
_KIB = 1024


class Clock:
  """Measures CPU and wall seconds from its construction on.

  Children that have ended count, because compilers are separate processes.
  """

  def __init__(self):
    self._begin = self._now()

  def read(self):
    """Returns dict of `seconds`, `cpu_seconds` and `peak_bytes` so far.

    The peak is the peak of the process or of its largest child.
    """
    wall, cpu = (now - then for now, then in zip(self._now(), self._begin))
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    peak = max(resource.getrusage(kind).ru_maxrss for kind in kinds)
    return {
      'seconds': wall,
      'cpu_seconds': cpu,
      'peak_bytes': float(peak * _KIB),
    }

  @staticmethod
  def _now():
    children = os.times()
    cpu = time.process_time()
    cpu += children.children_user + children.children_system
    return time.monotonic(), cpu


def _pymc(model, num_chains, num_draws, seed, **options):
  import pymc as pm

  trace = pm.sample(
    num_draws,
    chains=num_chains,
    cores=1,
    random_seed=seed,
    progressbar=False,
    discard_tuned_samples=False,  # Gradients of tuning count.
    model=model,
    **options,
  )
  return _arviz(trace, 'lp')


def _nutpie(model, num_chains, num_draws, seed, **options):
  import nutpie

  compiled = nutpie.compile_pymc_model(model)
  return _by_nutpie(compiled, num_chains, num_draws, seed, **options)


def _by_nutpie(compiled, num_chains, num_draws, seed, **options):
  import nutpie

  trace = nutpie.sample(
    compiled,
    draws=num_draws,
    chains=num_chains,
    cores=1,
    seed=seed,
    progress_bar=False,
    **options,
  )
  return _arviz(trace, 'logp')


def _arviz(trace, log_prob):
  """Returns the arrays of a trace of PyMC or nutpie."""

  def taken(stats):
    name = 'n_steps' if 'n_steps' in stats else 'tree_size'
    return float(np.mean(np.sum(np.asarray(stats[name]), axis=1)))

  stats, posterior = trace.sample_stats, trace.posterior
  return {
    'states': {name: _draws_first(posterior[name]) for name in posterior},
    'target_log_prob': _draws_first(stats[log_prob]),
    'diverging': _draws_first(stats['diverging']),
    'warmup_gradients': taken(trace.warmup_sample_stats),
    'gradients': taken(stats),
  }


def _numpyro(model, num_chains, num_draws, seed, **options):
  import jax
  from numpyro import infer

  # Each chain has a device, as in NumPyro's documentation.
  mcmc = infer.MCMC(
    infer.NUTS(model, **options),
    num_warmup=_WARMUP,
    num_samples=num_draws,
    num_chains=num_chains,
    progress_bar=False,
  )
  fields = ('num_steps', 'potential_energy', 'diverging')
  mcmc.run(jax.random.PRNGKey(seed), extra_fields=fields)
  states = mcmc.get_samples(group_by_chain=True)
  extra = mcmc.get_extra_fields(group_by_chain=True)

  def warmup_gradients():
    """Runs the warm-up again, because `run` counts only gradients of draws."""
    key = jax.random.PRNGKey(seed)
    mcmc.warmup(key, extra_fields=('num_steps',), collect_warmup=True)
    taken = mcmc.get_extra_fields(group_by_chain=True)['num_steps']
    return float(np.mean(np.sum(np.asarray(taken), axis=1)))

  return {
    'states': {name: _draws_first(part) for name, part in states.items()},
    'target_log_prob': -_draws_first(extra['potential_energy']),
    'diverging': _draws_first(extra['diverging']),
    'gradients': float(np.mean(np.sum(_draws_first(extra['num_steps']), 0))),
    'warmup_gradients': warmup_gradients,
  }


def _draws_first(part):
  return np.swapaxes(np.asarray(part), 0, 1)


def _blackjax(model, num_chains, num_draws, seed, is_diagonal):
  """BlackJAX's NUTS on NumPyro's density and starts, with separate chains."""
  import blackjax
  import jax

  key = jax.random.PRNGKey(seed)
  starts, log_prob, constrain = _unconstrained(model, key, num_chains)
  warmup = blackjax.window_adaptation(
    blackjax.nuts,
    log_prob,
    is_mass_matrix_diagonal=is_diagonal,
    adaptation_info_fn=lambda state, info, _: info.num_integration_steps,
  )

  def one_chain(given):
    key, start = given
    key, warmup_key = jax.random.split(key)
    adapted, taken = warmup.run(warmup_key, start, _WARMUP)
    nuts = blackjax.nuts(log_prob, **adapted.parameters)

    def step(state, key):
      state, info = nuts.step(key, state)
      drawn = state.position, state.logdensity, info.is_divergent
      return state, (*drawn, info.num_integration_steps)

    keys = jax.random.split(key, num_draws)
    return jax.numpy.sum(taken), jax.lax.scan(step, adapted.state, keys)[1]

  keys = jax.random.split(key, num_chains)
  program = jax.jit(lambda given: jax.lax.map(one_chain, given))
  warmup_taken, (z, log_probs, diverging, taken) = program((keys, starts))
  states = jax.jit(jax.vmap(jax.vmap(constrain)))(z)
  return {
    'states': {name: _draws_first(part) for name, part in states.items()},
    'target_log_prob': _draws_first(log_probs),
    'diverging': _draws_first(diverging),
    'warmup_gradients': float(np.mean(np.asarray(warmup_taken))),
    'gradients': float(np.mean(np.sum(np.asarray(taken), axis=1))),
  }


def _unconstrained(model, key, num_chains):
  """Returns starts, the log density of one chain, and the map to values."""
  import jax
  from numpyro.infer.util import initialize_model

  info = initialize_model(jax.random.split(key, num_chains), model)
  # `param_info.z` has only unknowns, without deterministic values.
  names = list(info.param_info.z)

  def constrain(z):
    values = info.postprocess_fn(z)
    return {name: values[name] for name in names}

  return info.param_info.z, lambda z: -info.potential_fn(z), constrain


def _stan(program, num_chains, num_draws, seed):
  """PyStan: NUTS with 1000 steps of warm-up."""
  import stan

  clock = Clock()
  text, data = program
  # Stan takes positive seeds only.
  model = stan.build(text, data=data, random_seed=seed + 1)
  compiled = clock.read()
  fit = model.sample(
    num_chains=num_chains,
    num_samples=num_draws,
    num_warmup=_WARMUP,
    save_warmup=True,
  )
  names = [*fit.sample_and_sampler_param_names, *fit.constrained_param_names]
  # [names, warm-up and draws, chains]. `fit[name]` does not separate warm-up.
  columns = dict(zip(names, fit._draws))
  taken = np.mean(columns['n_leapfrog__'], axis=1)
  return {
    'states': {
      _bracketed(name): columns[name][-num_draws:]
      for name in fit.constrained_param_names
    },
    'diverging': columns['divergent__'][-num_draws:] > 0,
    'warmup_gradients': float(np.sum(taken[:-num_draws])),
    'gradients': float(np.sum(taken[-num_draws:])),
    **_compilation(compiled),
  }


def _bracketed(name):
  """Returns Stan's `beta.1.2` as `beta[1,2]`."""
  head, *places = name.split('.')
  return f'{head}[{",".join(places)}]' if places else head


def _nutpie_of_stan(program, num_chains, num_draws, seed):
  """Runs nutpie on the same Stan program, compiled by BridgeStan."""
  import nutpie

  clock = Clock()
  text, data = program
  model = nutpie.compile_stan_model(code=text).with_data(**data)
  compiled = clock.read()
  found = _by_nutpie(model, num_chains, num_draws, seed + 1)
  return {**found, **_compilation(compiled)}


def _compilation(cost):
  return {f'compile_{name}': cost[name] for name in ('seconds', 'cpu_seconds')}


_PYMC, _NUMPYRO, STAN = 'pymc_model', 'numpyro_model', 'stan'
_LOW_RANK = {'low_rank_modified_mass_matrix': True}
# Name -> (language of the model, run, options).
SAMPLERS = {
  'PyMC': (_PYMC, _pymc, {}),
  'nutpie': (_PYMC, _nutpie, {}),
  'nutpie, low rank': (_PYMC, _nutpie, _LOW_RANK),
  'NumPyro': (_NUMPYRO, _numpyro, {}),
  'NumPyro, dense': (_NUMPYRO, _numpyro, {'dense_mass': True}),
  'BlackJAX, dense': (_NUMPYRO, _blackjax, {'is_diagonal': False}),
  'nutpie, 5000 draws': (_PYMC, _nutpie, {}),
  'NumPyro, 5000 draws': (_NUMPYRO, _numpyro, {}),
  'nutpie, long': (_PYMC, _nutpie, {'tune': 2000, 'target_accept': 0.95}),
  'nutpie, careful, long': (
    _PYMC,
    _nutpie,
    {'tune': 4000, 'target_accept': 0.99},
  ),
  'NumPyro, long': (
    _NUMPYRO,
    _numpyro,
    {'dense_mass': True, 'target_accept_prob': 0.95},
  ),
  'NumPyro, diagonal, long': (_NUMPYRO, _numpyro, {'target_accept_prob': 0.95}),
  'NumPyro, careful, long': (_NUMPYRO, _numpyro, {'target_accept_prob': 0.99}),
  'Stan': (STAN, _stan, {}),
  'nutpie on Stan': (STAN, _nutpie_of_stan, {}),
}
# Packages that are imported before the clock, whose versions are recorded.
_IMPORTS = {
  _pymc: ('pymc', 'nutpie'),
  _nutpie: ('pymc', 'nutpie'),
  _numpyro: ('jax', 'numpyro.distributions', 'blackjax'),
  _blackjax: ('jax', 'numpyro.distributions', 'blackjax'),
  _stan: ('stan',),
  _nutpie_of_stan: ('nutpie',),
}
_PACKAGES = (
  *('pymc', 'pytensor', 'nutpie', 'numpyro', 'blackjax', 'jax'),
  *('pystan', 'httpstan', 'bridgestan'),
)


def main():
  """Runs the task in the folder."""
  folder = pathlib.Path(sys.argv[1])
  task = json.loads((folder / 'task.json').read_text())
  with np.load(folder / 'data.npz') as arrays:
    data = dict(arrays)
  if (folder / 'points.npz').is_file():
    with np.load(folder / 'points.npz') as points:
      found = _densities(_module(task['model']), data, dict(points))
    np.savez(folder / 'densities.npz', **found)
    return
  found = _sample(data, **task)
  states = found.pop('states')
  np.savez(
    folder / 'draws.npz',
    **{f'states/{name}': part for name, part in states.items()},
    **found,
    versions=json.dumps(_versions()),
  )


def _sample(data, model, sampler, seed, num_chains, num_draws):
  """Returns states, trace and costs of one run."""
  language, sample, options = SAMPLERS[sampler]
  if language == _NUMPYRO:
    _give_devices(num_chains)
  for name in _IMPORTS[sample]:
    importlib.import_module(name)
  clock = Clock()
  built = _build(model, language, data)
  found = sample(built, num_chains, num_draws, seed, **options)
  found |= clock.read()
  # Functions count gradients after the clock has stopped.
  return {key: x() if callable(x) else x for key, x in found.items()}


def _give_devices(count):
  """Gives JAX a device for each chain, else NumPyro compiles each chain again.

  Call it before anything uses JAX. Some packages use JAX when imported.
  """
  import jax
  import numpyro

  numpyro.set_host_device_count(count)
  if jax.local_device_count() != count:
    raise RuntimeError(f'JAX has no {count} devices: it was used too early.')


def _build(model, language, data):
  if language == STAN:
    values = {name: value.tolist() for name, value in data.items()}
    return pathlib.Path(model).read_text(), values
  return getattr(_module(model), language)(**data)


def _module(file):
  """Returns the module of a model's file."""
  spec = importlib.util.spec_from_file_location('model', file)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def _versions():
  found = {}
  for name in _PACKAGES:
    try:
      found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return found


def _densities(module, data, columns):
  """Returns log densities of all unknowns in their own supports, float64.

  Args:
    columns: dict of points, [points, ...], for each unknown.
  """
  import jax
  from numpyro.infer.util import log_density

  jax.config.update('jax_enable_x64', True)
  count = len(next(iter(columns.values())))
  rows = [{name: x[i] for name, x in columns.items()} for i in range(count)]
  pymc_density = _pymc_density(module.pymc_model(**data))
  model = module.numpyro_model(**data)
  return {
    'pymc': [pymc_density(row) for row in rows],
    'numpyro': [float(log_density(model, (), {}, row)[0]) for row in rows],
  }


def _pymc_density(model):
  """Returns {name: value} -> log density, without Jacobians."""
  from pytensor.graph.replace import clone_replace
  from pytensor.tensor import as_tensor

  log_prob = model.compile_logp(jacobian=False)

  def density(row):
    values = {}
    # A bound may be another unknown.
    given = {v: as_tensor(row[v.name]).astype(v.dtype) for v in model.free_RVs}
    for variable in model.free_RVs:
      transform = model.rvs_to_transforms[variable]
      value = row[variable.name]
      if transform is not None:
        inputs = clone_replace(variable.owner.inputs, given)
        value = transform.forward(as_tensor(value), *inputs).eval()
      values[model.rvs_to_values[variable].name] = value
    return float(log_prob(values))

  return density


if __name__ == '__main__':
  main()
