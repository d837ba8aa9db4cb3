"""One run of another sampler on a Stan program; its own Python executes it.

  python theirs.py PROGRAM.stan DATA.json SAMPLER SEED CHAINS DRAWS OUTPUT.npz

This file imports nothing of the repository but `processes.py` beside it. All
settings are the samplers' own defaults. Warm-up counts as cost.
"""

import importlib.metadata
import json
import pathlib
import sys

import numpy as np

__all__ = ['SAMPLERS', 'main']


def _stan(program, data, num_chains, num_draws, seed, clock):
  """PyStan: NUTS with 1000 steps of warm-up."""
  import stan

  model = stan.build(program, data=data, random_seed=seed)
  compiled = clock.read()
  fit = model.sample(
    num_chains=num_chains,
    num_samples=num_draws,
    num_warmup=1000,
    save_warmup=True,
  )
  names = [*fit.sample_and_sampler_param_names, *fit.constrained_param_names]
  # [names, warm-up and draws, chains].
  columns = dict(zip(names, fit.values))
  draws = {
    _bracketed(name): columns[name][-num_draws:]
    for name in fit.constrained_param_names
  }
  kept = columns['divergent__'][-num_draws:]
  return draws, {
    'gradients': float(np.sum(columns['n_leapfrog__'])),
    'num_diverging': int(np.sum(kept)),
    'compile_cpu_seconds': compiled['cpu_seconds'],
    'compile_wall_seconds': compiled['wall_seconds'],
  }


def _nutpie(program, data, num_chains, num_draws, seed, clock):
  """nutpie on the same Stan program, compiled by BridgeStan."""
  import nutpie

  compiled_model = nutpie.compile_stan_model(code=program).with_data(**data)
  compiled = clock.read()
  trace = nutpie.sample(
    compiled_model,
    draws=num_draws,
    chains=num_chains,
    cores=1,
    seed=seed,
    progress_bar=False,
  )
  draws = {}
  for name, part in trace.posterior.items():
    values = np.swapaxes(np.asarray(part), 0, 1)
    for index in np.ndindex(*values.shape[2:]):
      places = ','.join(str(i + 1) for i in index)
      key = f'{name}[{places}]' if index else str(name)
      draws[key] = values[(..., *index)]
  blocks = trace.warmup_sample_stats, trace.sample_stats
  return draws, {
    'gradients': float(sum(np.sum(block['n_steps']) for block in blocks)),
    'num_diverging': int(np.sum(trace.sample_stats['diverging'])),
    'compile_cpu_seconds': compiled['cpu_seconds'],
    'compile_wall_seconds': compiled['wall_seconds'],
  }


# Name -> (function, packages whose versions are kept).
SAMPLERS = {
  'Stan': (_stan, ('pystan', 'httpstan')),
  'nutpie': (_nutpie, ('nutpie', 'bridgestan')),
}


def _bracketed(name):
  """Returns Stan's `beta.1.2` as `beta[1,2]`."""
  head, *places = name.split('.')
  return f'{head}[{",".join(places)}]' if places else head


def main() -> None:
  """Runs once, and writes the draws and what they cost."""
  sys.path.insert(0, str(pathlib.Path(__file__).parent))
  import processes

  program, data, sampler, seed, num_chains, num_draws, output = sys.argv[1:]
  sample, packages = SAMPLERS[sampler]
  text = pathlib.Path(program).read_text()
  values = json.loads(pathlib.Path(data).read_text())
  clock = processes.Clock()
  draws, record = sample(
    text, values, int(num_chains), int(num_draws), int(seed), clock
  )
  record |= clock.read()
  record['run_cpu_seconds'] = (
    record['cpu_seconds'] - record['compile_cpu_seconds']
  )
  record['versions'] = {p: importlib.metadata.version(p) for p in packages}
  np.savez(
    output,
    record=json.dumps(record),
    names=list(draws),
    draws=np.stack(list(draws.values()), axis=-1),
  )


if __name__ == '__main__':
  main()
