"""All posteriors by their name in posteriordb: DATA-MODEL."""

import json
import pathlib
import zipfile

import numpy as np
import tensorflow as tf

from experiments.posteriordb import hierarchies
from experiments.posteriordb import regressions
from experiments.posteriordb import time_series
from experiments.posteriordb.posterior import Posterior
from experiments.run.errors import DataError

__all__ = ['MODELS', 'NAMES', 'build', 'published_data', 'split_name']

MODELS = {**regressions.MODELS, **time_series.MODELS, **hierarchies.MODELS}
_DATA_OF = {
  'arK': ['arK'],
  'bball_drive_event_0': ['hmm_drive_0'],
  'diamonds': ['diamonds'],
  'earnings': [
    'earn_height',
    'log10earn_height',
    'logearn_height',
    'logearn_height_male',
    'logearn_interaction_z',
    'logearn_logheight_male',
  ],
  'eight_schools': ['eight_schools_noncentered'],
  'gp_pois_regr': ['gp_pois_regr', 'gp_regr'],
  'hudson_lynx_hare': ['lotka_volterra'],
  'kidiq': [
    'kidscore_interaction',
    'kidscore_momhs',
    'kidscore_momhsiq',
    'kidscore_momiq',
  ],
  'kidiq_with_mom_work': [
    'kidscore_interaction_c',
    'kidscore_interaction_z',
    'kidscore_mom_work',
  ],
  'kilpisjarvi_mod': ['kilpisjarvi'],
  'mesquite': [
    'logmesquite',
    'logmesquite_logva',
    'logmesquite_logvas',
    'logmesquite_logvolume',
    'mesquite',
  ],
  **{
    f'nes{year}': ['nes'] for year in (1972, 1976, 1984, 1988, 1992, 1996, 2000)
  },
  'sblri': ['blr'],
}
NAMES = tuple(
  f'{data}-{model}' for data, models in _DATA_OF.items() for model in models
)


def split_name(name: str) -> tuple[str, str]:
  """Returns the names of the data set and of the Stan program.

  Args:
    name: One of `NAMES`.
  """
  data, _, model = name.partition('-')
  return data, model


def published_data(
  name: str, folder: str | pathlib.Path
) -> dict[str, np.ndarray]:
  """Returns the data of a posterior as they are published.

  Args:
    name: One of `NAMES`.
    folder: Folder with the data files of posteriordb.

  Raises:
    DataError: If the file is not there or cannot be read.
  """
  data, _ = split_name(name)
  path = pathlib.Path(folder) / f'{data}.json.zip'
  try:
    with zipfile.ZipFile(path) as archive:
      values = json.loads(archive.read(f'{data}.json'))
  except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
    raise DataError(
      f'{path} cannot be read ({type(error).__name__}): run `python -m '
      'experiments data posteriordb`, or name the folder that has the data of '
      'posteriordb with `--data`.'
    ) from error
  return {key: np.asarray(value) for key, value in values.items()}


def build(
  name: str, folder: str | pathlib.Path, dtype: tf.DType = tf.float32
) -> Posterior:
  """Returns the model of a posterior with its data.

  Args:
    name: One of `NAMES`.
    folder: Folder with the data files of posteriordb.
    dtype: tf.float32 or tf.float64; data and constants are cast to it.
  """
  _, model = split_name(name)
  return MODELS[model](published_data(name, folder), dtype)
