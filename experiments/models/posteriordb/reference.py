"""Moments of published reference draws, and the errors of other draws.

For a scalar x with reference mean m, the mean of x and the mean of (x - m)**2
are compared:

  z = (found - reference) / sqrt(error**2 + reference error**2)

Monte Carlo standard errors are sd / sqrt(ESS). The ESS is the bulk ESS, of
ranks over all chains.
"""

import json
import pathlib
import zipfile
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from experiments.run.errors import DataError
from tfp_adaptive.driver import convergence

Draws = Mapping[str, np.ndarray]


class Moments(NamedTuple):
  """Moments of one scalar.

  Attributes:
    mean: The mean.
    mean_error: Standard error of `mean`.
    square: The mean of (x - center)**2.
    square_error: Standard error of `square`.
  """

  mean: float
  mean_error: float
  square: float
  square_error: float


class Comparison(NamedTuple):
  """Errors of draws against the reference, and their effective sizes.

  Attributes:
    worst_z_of_means: [name, z] of the largest |z|.
    worst_z_of_squares: The same for mean squares about the reference mean.
    rhat: The largest R-hat of all scalars.
    ess_bulk: The smallest bulk ESS.
    ess_tail: The smallest tail ESS.
  """

  worst_z_of_means: tuple[str, float]
  worst_z_of_squares: tuple[str, float]
  rhat: float
  ess_bulk: float
  ess_tail: float


def moments(draws: np.ndarray, center: np.ndarray) -> list[Moments]:
  """Returns the moments of scalars.

  Args:
    draws: [draws, chains, d].
    center: Center of the squares, [d].
  """
  values = np.float64(draws)
  squares = (values - center) ** 2
  both = np.concatenate([values, squares], axis=-1)
  size = convergence.diagnose(both).ess_bulk
  mean = both.mean(axis=(0, 1))
  error = both.std(axis=(0, 1), ddof=1) / np.sqrt(size)
  half = values.shape[-1]
  columns = mean[:half], error[:half], mean[half:], error[half:]
  return [Moments(*map(float, row)) for row in zip(*columns)]


def load(name: str, folder: str | pathlib.Path) -> dict[str, Moments]:
  """Returns the reference of a posterior, by the name of the scalar.

  `reference.json` of the folder has the reference, if this file exists.
  Otherwise the reference is computed from the published draws,
  `draws/NAME.json.zip`.

  Raises:
    DataError: If neither can be read.
  """
  folder = pathlib.Path(folder)
  path = folder / 'reference.json'
  try:
    if path.is_file():
      entries = json.loads(path.read_text())[name]['parameters']
      return {
        key: Moments(*(entry[field] for field in Moments._fields))
        for key, entry in entries.items()
      }
    path = folder / 'draws' / f'{name}.json.zip'
    with zipfile.ZipFile(path) as archive:
      chains = json.loads(archive.read(f'{name}.json'))
  except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
    raise DataError(
      f'{path} has no reference of {name} ({type(error).__name__}). Run '
      '`python -m experiments data posteriordb`, or name the folder of data '
      'sets with `--data-dir`.'
    ) from error
  keys = list(chains[0])
  # `chains` is a list with a dict of lists for each chain.
  rows = np.array([[chain[key] for key in keys] for chain in chains])
  draws = np.moveaxis(rows, -1, 0)
  found = moments(draws, draws.mean(axis=(0, 1)))
  return dict(zip(keys, found))


def compare(draws: Draws, reference: Mapping[str, Moments]) -> Comparison:
  """Returns the errors of draws against the reference.

  Args:
    draws: [draws, chains] by the name of the scalar.
    reference: `Moments` by the name of the scalar, for the same names.
  """
  values = np.stack([draws[name] for name in reference], axis=-1)
  center = np.array([entry.mean for entry in reference.values()])
  pairs = list(zip(reference, moments(values, center), reference.values()))
  of_means = {
    name: _z(own.mean - ref.mean, own.mean_error, ref.mean_error)
    for name, own, ref in pairs
  }
  of_squares = {
    name: _z(own.square - ref.square, own.square_error, ref.square_error)
    for name, own, ref in pairs
  }
  diagnosis = convergence.diagnose(np.float64(values))
  return Comparison(
    _worst(of_means),
    _worst(of_squares),
    float(np.max(diagnosis.rhat)),
    float(np.min(diagnosis.ess_bulk)),
    float(np.min(diagnosis.ess_tail)),
  )


def _z(difference, *errors):
  return difference / np.sqrt(np.sum(np.square(errors)))


def _worst(z):
  """Returns [name, z] of the largest |z|; a value that is not finite wins."""
  name = max(z, key=lambda k: abs(z[k]) if np.isfinite(z[k]) else np.inf)
  return name, float(z[name])
