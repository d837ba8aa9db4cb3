"""Posteriors as users write them: one file each, in three languages.

`data()` of a file returns a dict of arrays. From these, `tfp_model` makes a
joint distribution with pinned data, `numpyro_model` a function, and
`pymc_model` a model of PyMC. All three have the same unknowns with the same
supports. Some files have `exact_means()`, posterior means by coordinate. Some
files only have data for the model of another file. Each function imports its
library, so that environments without the other libraries can read these files.
`posteriordb` holds published posteriors.
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
  """Returns the known posterior means by coordinate."""
  module = load(name)
  return module.exact_means() if hasattr(module, 'exact_means') else {}
