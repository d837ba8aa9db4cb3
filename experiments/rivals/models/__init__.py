"""Posteriors as users write them: one file each, in three languages.

A file has `data()`, a dict of arrays, and of these `tfp_model`, a joint
distribution with its data pinned, `numpyro_model`, a function, and
`pymc_model`. The names of the unknowns are the same in all, and so are their
supports; `SAME_AS` names a file whose model is this one with other data. Each
library is imported inside its function: the file is read in environments that
lack the others.
"""

import pathlib

__all__ = ['MODELS']

# Name -> path of its file.
MODELS = {
  file.stem: file
  for file in sorted(pathlib.Path(__file__).parent.glob('*.py'))
  if file.stem != '__init__'
}
