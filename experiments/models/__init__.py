"""Posteriors as users write them: one file each, in three languages.

A file has `data()`, a dict of arrays, and from these `tfp_model`, a joint
distribution with its data pinned, `numpyro_model`, a function, and
`pymc_model`. The names of the unknowns are the same in all of them, and so are
the supports. Some files have `exact_means()`, posterior means by coordinate,
and some only have data for the model of another file. Each library is imported
inside its function, because environments that lack the others read these files,
too. `posteriordb` holds published posteriors.
"""

import importlib
import inspect
import pathlib
import types

# Names of all models, which are those of their files.
MODELS = tuple(
  sorted(
    file.stem
    for file in pathlib.Path(__file__).parent.glob('*.py')
    if file.stem != '__init__'
  )
)


def load(name: str) -> types.ModuleType:
  """Returns the module of a model."""
  return importlib.import_module(f'experiments.models.{name}')


def path(name: str) -> str:
  """Returns the path of the file with the three languages of a model."""
  return inspect.getsourcefile(load(name).tfp_model)


def exact_means(name: str) -> dict[str, float]:
  """Returns the posterior means that are known, by coordinate."""
  module = load(name)
  return module.exact_means() if hasattr(module, 'exact_means') else {}
