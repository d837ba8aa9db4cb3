"""Posteriors of posteriordb: means and mean squares against reference draws.

`--set others=true` adds cases for Stan and for nutpie on the Stan programs,
which need an interpreter that has these packages (`--python`). It also adds
this library in float32, which is not its default on a CPU.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any
from typing import Literal

import numpy as np
import pydantic
import tensorflow as tf

from experiments.data import datasets
from experiments.models import posteriordb
from experiments.models.posteriordb import reference as reference_lib
from experiments.models.posteriordb.posterior import named
from experiments.run.errors import DataError
from experiments.run.study import pairs
from experiments.run.study import Settings
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.samplers import on_models
from experiments.samplers import theirs

_LARGEST_RHAT, _LEAST_ESS = 1.01, 400.0
_IN_FLOAT32 = f'{on_models.OURS} in float32'
_STAN = [
  name
  for name, (language, *_) in theirs.SAMPLERS.items()
  if language == theirs.STAN
]


class _Settings(Settings):
  # Stan programs are always in float64.
  dtype: Literal['float32', 'float64'] = 'float32'
  # This only adds cases, so the keys of other cases do not change.
  others: bool = pydantic.Field(False, exclude=True)


def _cases(settings: _Settings) -> dict[str, tuple[str, str]]:
  """Returns {'posterior | sampler': (posterior, sampler)}."""
  others = (_IN_FLOAT32, *_STAN) if settings.others else ()
  return pairs(posteriordb.NAMES, (on_models.OURS, *others))


def _folder(work: Work) -> pathlib.Path:
  return datasets.folder(work.data_dir) / 'posteriordb'


def _prepare(work: Work) -> None:
  """Ends the whole run if the data were not downloaded."""
  posteriordb.published_data(posteriordb.NAMES[0], _folder(work))


def _run(case: tuple[str, str], seed: int, work: Work):
  """Returns the record of one run."""
  name, sampler = case
  folder = _folder(work)
  reference = reference_lib.load(name, folder)
  if sampler in (on_models.OURS, _IN_FLOAT32):
    dtype, before = work.settings.dtype, 0.0  # This process is for this run.
    posterior = posteriordb.build(name, folder, tf.as_dtype(dtype))
    options = dict(posterior.pins)
    if sampler == _IN_FLOAT32:
      options['dtype'] = tf.float32
    outcome = on_models.run(
      on_models.OURS, lambda: posterior.model, seed, work.progress, **options
    )
    reported = posterior.reported(outcome.states)
  else:
    dtype, before = 'float64', sum(os.times()[:4])
    program = posteriordb.program(name, folder)
    data = posteriordb.published_data(name, folder)
    outcome = on_models.run_theirs(sampler, program, data, seed, work.python)
    reported = outcome.states
  return {
    'dtype': dtype,
    # All imports are included.
    'process_cpu_seconds': sum(os.times()[:4]) - before,
    **judged(name, outcome, reported, reference),
  }


def judged(
  name: str,
  outcome: on_models.Outcome,
  reported: Mapping[str, np.ndarray],
  reference: Mapping[str, reference_lib.Moments],
) -> dict[str, Any]:
  """Returns the record of an outcome.

  `converged` is a sampler's own verdict. For a sampler without a verdict,
  `is_enough` judges R-hat and effective draws of the reference's scalars.

  Args:
    reported: Draws [draws, chains, ...] by name; names that the reference lacks
      are left out.

  Raises:
    DataError: If there are no draws of a scalar of the reference.
  """
  draws = named(reported)
  missing = sorted(set(reference) - set(draws))
  if missing:
    raise DataError(
      f'there are no draws of {", ".join(missing)} of {name}, because the '
      'model and the reference have different versions.'
    )
  draws = {key: draws[key] for key in reference}
  comparison = reference_lib.compare(draws, reference)
  is_enough = (
    comparison.rhat < _LARGEST_RHAT
    and min(comparison.ess_bulk, comparison.ess_tail) >= _LEAST_ESS
  )
  num_draws, num_chains = next(iter(draws.values())).shape
  own, diverging = outcome.own_converged, outcome.trace.get('diverging', ())
  cost = dict(outcome.cost)
  return {
    'converged': is_enough if own is None else own,
    'structure': outcome.found,
    'gradients': outcome.num_gradients * num_chains,
    'wall_seconds': cost.pop('seconds'),
    **cost,
    **outcome.more,
    'num_diverging': int(np.sum(diverging)),
    'is_enough': is_enough,
    **comparison._asdict(),
    'num_draws': num_draws,
    'num_chains': num_chains,
  }


STUDY = Study(
  _cases, _run, _Settings, process='cell', max_seconds=3600.0, prepare=_prepare
)
