"""One run of this library, in a process of its own.

python -m experiments.posteriordb.here NAME SEED DTYPE FOLDER OUTPUT.npz
"""

import json
import sys
import time
from importlib import metadata

__all__ = ['main']


def main() -> None:
  """Runs once, and writes the draws and what they cost."""
  begin = time.process_time()
  import numpy as np
  import tensorflow as tf

  import tfp_adaptive as tfpa
  from experiments.posteriordb import posterior as posterior_lib
  from experiments.posteriordb import processes
  from experiments.posteriordb import registry

  import_seconds = time.process_time() - begin
  name, seed, dtype, folder, output = sys.argv[1:]
  clock = processes.Clock()
  case = registry.build(name, folder, tf.as_dtype(dtype))
  posterior = tfpa.sample_posterior(
    case.model, seed=int(seed), progress=False, **case.pins
  )
  draws = posterior_lib.parameters(case, posterior.states._asdict())
  cost = clock.read()
  num_chains = posterior.unconstrained.shape[1]
  stages = [
    [stage.name, stage.found, float(stage.num_gradients), float(stage.seconds)]
    for stage in posterior.report
  ]
  record = {
    'converged': bool(posterior.converged),
    'failed': posterior.failed,
    'structure': posterior.choice,
    'ended_by': posterior.ended_by,
    'stages': stages,
    'gradients': float(posterior.num_gradients) * num_chains,
    'import_cpu_seconds': import_seconds,
    **cost,
    'versions': {
      package: metadata.version(package)
      for package in ('tensorflow', 'tensorflow_probability', 'numpy')
    },
  }
  np.savez(output, record=json.dumps(record), **_columns(draws))


def _columns(draws):
  """Returns what the parent reads: `names`, and `draws` [draws, chains, d]."""
  import numpy as np

  return {
    'names': list(draws),
    'draws': np.stack(list(draws.values()), axis=-1),
  }


if __name__ == '__main__':
  main()
