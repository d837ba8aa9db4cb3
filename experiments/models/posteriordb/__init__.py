"""34 posteriors of posteriordb with published reference draws.

Each model is written as a user would write it, as a joint distribution with the
published data. `tfpa.ImproperUniform` stands for a missing prior of the Stan
program. Names are those of posteriordb: DATA-PROGRAM.
"""

import json
import pathlib
import zipfile

import numpy as np
import tensorflow as tf

from experiments.models.posteriordb import hierarchies
from experiments.models.posteriordb import regressions
from experiments.models.posteriordb import time_series
from experiments.models.posteriordb.posterior import Posterior
from experiments.run.errors import DataError

# Name -> function of data and dtype.
MODELS = {**regressions.MODELS, **time_series.MODELS, **hierarchies.MODELS}
NAMES = tuple(sorted(MODELS))


def build(
  name: str, folder: pathlib.Path, dtype: tf.DType = tf.float32
) -> Posterior:
  """Returns the model of a posterior with its data.

  Args:
    dtype: tf.float32 or tf.float64, the dtype of data and constants.
  """
  return MODELS[name](published_data(name, folder), dtype)


def published_data(name: str, folder: pathlib.Path) -> dict[str, np.ndarray]:
  """Returns the published data of a posterior.

  Raises:
    DataError: If the file is not there or cannot be read.
  """
  data, _, _ = name.partition('-')
  path = folder / f'{data}.json.zip'
  try:
    with zipfile.ZipFile(path) as archive:
      values = json.loads(archive.read(f'{data}.json'))
  except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
    raise DataError(
      f'{path} cannot be read ({type(error).__name__}). Run `python -m '
      'experiments data posteriordb`, or name the folder of data sets with '
      '`--data-dir`.'
    ) from error
  return {key: np.asarray(value) for key, value in values.items()}


def program(name: str, folder: pathlib.Path) -> pathlib.Path:
  """Returns the path of a posterior's Stan program.

  Raises:
    DataError: If the program is not there.
  """
  path = folder / 'stan' / f'{name.partition("-")[2]}.stan'
  if not path.is_file():
    raise DataError(
      f'{path} is not there. Run `python -m experiments data posteriordb`, '
      'which downloads the Stan programs.'
    )
  return path
