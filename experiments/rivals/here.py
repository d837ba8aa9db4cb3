"""A run of this library or of TFP, in a process of its own.

  python -m experiments.rivals.here MODEL_FILE DATA.npz SAMPLER SEED OUTPUT.npz

The clock starts behind the imports, before the model is made.
"""

import json
import sys
import time
from importlib import metadata

import numpy as np

from experiments.quickstart import run as quickstart
from experiments.rivals import theirs

__all__ = ['SAMPLERS', 'main']

SAMPLERS = tuple(quickstart.SAMPLERS)


def main():
  """Runs once and writes the draws."""
  file, data, sampler, seed, output = sys.argv[1:]
  module = theirs.load(file)
  with np.load(data) as arrays:
    arrays = dict(arrays)
  begin, cpu_begin = time.monotonic(), time.process_time()
  outcome = quickstart.run(sampler, module.tfp_model(**arrays), int(seed))
  seconds = time.monotonic() - begin
  cpu_seconds = time.process_time() - cpu_begin
  packages = ('tensorflow', 'tensorflow_probability')
  np.savez(
    output,
    names=outcome.names,
    values=outcome.values,
    **outcome.trace,
    warmup_gradients=outcome.num_warmup_gradients,
    gradients=outcome.num_gradients - outcome.num_warmup_gradients,
    found=outcome.found,
    own_converged=json.dumps(outcome.own_converged),
    seconds=seconds,
    cpu_seconds=cpu_seconds,
    versions=json.dumps({name: metadata.version(name) for name in packages}),
  )


if __name__ == '__main__':
  main()
