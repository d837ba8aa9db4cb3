"""A run of PyMC, nutpie, NumPyro or BlackJAX; their own Python executes it.

  python theirs.py MODEL_FILE DATA.npz SAMPLER SEED CHAINS DRAWS OUTPUT.npz

It imports nothing of this repository. All defaults are the samplers' own; those
without one are in `_WARMUP`, what their documentation begins with. The clock
starts behind the imports and holds the model, compilation, and all draws on the
host.
"""

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import sys
import time

import numpy as np

__all__ = ['LANGUAGES', 'SAMPLERS', 'load', 'main']

LANGUAGES = ('tfp_model', 'numpyro_model', 'pymc_model')
_WARMUP = 1000


def _pymc(model, num_chains, num_draws, seed, **options):
  import pymc as pm

  trace = pm.sample(
    num_draws,
    chains=num_chains,
    cores=1,
    random_seed=seed,
    progressbar=False,
    discard_tuned_samples=False,  # Their gradients count.
    model=model,
    **options,
  )
  return _arviz(trace, 'lp')


def _nutpie(model, num_chains, num_draws, seed, **options):
  import nutpie

  trace = nutpie.sample(
    nutpie.compile_pymc_model(model),
    draws=num_draws,
    chains=num_chains,
    cores=1,
    seed=seed,
    progress_bar=False,
    **options,
  )
  return _arviz(trace, 'logp')


def _arviz(trace, log_prob):
  """Returns the dict that is saved, of a trace of PyMC's family."""

  def taken(stats):
    name = 'n_steps' if 'n_steps' in stats else 'tree_size'
    return float(np.mean(np.sum(np.asarray(stats[name]), axis=1)))

  def by_draw(values):
    return np.swapaxes(np.asarray(values), 0, 1)

  stats = trace.sample_stats
  posterior = trace.posterior
  return {
    'states': {name: by_draw(posterior[name]) for name in posterior},
    'target_log_prob': by_draw(stats[log_prob]),
    'diverging': by_draw(stats['diverging']),
    'warmup_gradients': taken(trace.warmup_sample_stats),
    'gradients': taken(stats),
  }


def _numpyro(model, num_chains, num_draws, seed, **options):
  import jax
  from numpyro import infer

  # As its documentation has it: a device for each chain.
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
  return {
    'states': {name: _draws_first(part) for name, part in states.items()},
    'target_log_prob': -_draws_first(extra['potential_energy']),
    'diverging': _draws_first(extra['diverging']),
    'gradients': float(np.mean(np.sum(_draws_first(extra['num_steps']), 0))),
    'warmup_gradients': lambda: _numpyro_warmup(mcmc, seed),
  }


def _numpyro_warmup(mcmc, seed):
  """Returns the gradients of a warm-up: `run` tells those of draws only."""
  import jax

  key = jax.random.PRNGKey(seed)
  mcmc.warmup(key, extra_fields=('num_steps',), collect_warmup=True)
  taken = mcmc.get_extra_fields(group_by_chain=True)['num_steps']
  return float(np.mean(np.sum(np.asarray(taken), axis=1)))


def _draws_first(part):
  return np.swapaxes(np.asarray(part), 0, 1)


def _blackjax(model, num_chains, num_draws, seed, is_diagonal):
  """BlackJAX's NUTS on NumPyro's density and starts, each chain by itself."""
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
  """Returns starts, log density of one chain, and the map to its values."""
  import jax
  from numpyro.infer.util import initialize_model

  info = initialize_model(jax.random.split(key, num_chains), model)
  # It returns deterministic values too; unknowns are what was started.
  names = list(info.param_info.z)

  def constrain(z):
    values = info.postprocess_fn(z)
    return {name: values[name] for name in names}

  return info.param_info.z, lambda z: -info.potential_fn(z), constrain


# Name -> (language of the model, run, options).
SAMPLERS = {
  'PyMC': ('pymc_model', _pymc, {}),
  'nutpie': ('pymc_model', _nutpie, {}),
  'nutpie, low rank': (
    'pymc_model',
    _nutpie,
    dict(low_rank_modified_mass_matrix=True),
  ),
  'NumPyro': ('numpyro_model', _numpyro, {}),
  'NumPyro, dense': ('numpyro_model', _numpyro, dict(dense_mass=True)),
  'BlackJAX, dense': ('numpyro_model', _blackjax, dict(is_diagonal=False)),
  'nutpie, 5000 draws': ('pymc_model', _nutpie, {}),
  'NumPyro, 5000 draws': ('numpyro_model', _numpyro, {}),
  'nutpie, long': ('pymc_model', _nutpie, dict(tune=2000, target_accept=0.95)),
  'nutpie, careful, long': (
    'pymc_model',
    _nutpie,
    dict(tune=4000, target_accept=0.99),
  ),
  'NumPyro, long': (
    'numpyro_model',
    _numpyro,
    dict(dense_mass=True, target_accept_prob=0.95),
  ),
  'NumPyro, diagonal, long': (
    'numpyro_model',
    _numpyro,
    dict(target_accept_prob=0.95),
  ),
  'NumPyro, careful, long': (
    'numpyro_model',
    _numpyro,
    dict(target_accept_prob=0.99),
  ),
}
_PACKAGES = ('pymc', 'pytensor', 'nutpie', 'numpyro', 'blackjax', 'jax')
_IMPORTS = {
  'pymc_model': ('pymc', 'nutpie'),
  'numpyro_model': ('jax', 'numpyro.distributions', 'blackjax'),
}


def load(file):
  """Returns the module of a model's file."""
  spec = importlib.util.spec_from_file_location('model', file)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  # Other data of a model that another file writes.
  if hasattr(module, 'SAME_AS'):
    other = load(pathlib.Path(file).with_name(f'{module.SAME_AS}.py'))
    for language in LANGUAGES:
      setattr(module, language, getattr(other, language))
  return module


def main():
  """Runs once and writes the draws."""
  file, data, sampler, seed, num_chains, num_draws, output = sys.argv[1:]
  language, sample, options = SAMPLERS[sampler]
  for name in _IMPORTS[language]:
    importlib.import_module(name)
  if language == 'numpyro_model':
    sys.modules['numpyro'].set_host_device_count(int(num_chains))
  module = load(file)
  with np.load(data) as arrays:
    arrays = dict(arrays)
  begin, cpu_begin = time.monotonic(), time.process_time()
  model = getattr(module, language)(**arrays)
  found = sample(model, int(num_chains), int(num_draws), int(seed), **options)
  found['seconds'] = time.monotonic() - begin
  # Compilers of PyMC are processes of their own.
  children = os.times()
  found['cpu_seconds'] = time.process_time() - cpu_begin
  found['cpu_seconds'] += children.children_user + children.children_system
  # What is counted beside the clock.
  found = {key: x() if callable(x) else x for key, x in found.items()}
  states = found.pop('states')
  versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
  np.savez(
    output,
    **{f'states/{name}': part for name, part in states.items()},
    **found,
    versions=json.dumps(versions),
  )


if __name__ == '__main__':
  main()
