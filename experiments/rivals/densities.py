"""Log densities of a model in PyMC and NumPyro; their own Python executes it.

  python densities.py MODEL_FILE DATA.npz POINTS.npz OUTPUT.npz

Of all unknowns in their own supports, [points] for each language; in float64.
It imports nothing of this repository.
"""

import sys

import jax
import numpy as np
import theirs
from numpyro.infer.util import log_density
from pytensor.graph.replace import clone_replace
from pytensor.tensor import as_tensor

__all__ = ['main']


def main():
  """Writes the densities at the points."""
  file, data, points, output = sys.argv[1:]
  jax.config.update('jax_enable_x64', True)
  module = theirs.load(file)
  with np.load(data) as arrays:
    arrays = dict(arrays)
  with np.load(points) as given:
    columns = dict(given)
  count = len(next(iter(columns.values())))
  rows = [{name: x[i] for name, x in columns.items()} for i in range(count)]
  of_pymc = _of_pymc(module.pymc_model(**arrays))
  model = module.numpyro_model(**arrays)
  np.savez(
    output,
    pymc=[of_pymc(row) for row in rows],
    numpyro=[float(log_density(model, (), {}, row)[0]) for row in rows],
  )


def _of_pymc(model):
  """Returns {name: value} -> log density, without Jacobians."""
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
