"""Models as users write them, by this library, TFP, PyMC, NumPyro and others.

The other libraries run in their own environment (`make peers`). Long runs of
two of them give the means that judge all runs. These long runs, and defaults
that draw five times as much, are cases with `--set others=true` only.
"""

import os

import pydantic

from experiments import models
from experiments.data import datasets
from experiments.run.study import pairs
from experiments.run.study import Settings
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.samplers import on_models
from experiments.samplers import theirs


class _Settings(Settings):
  # This only adds cases, so the keys of other cases do not change.
  others: bool = pydantic.Field(False, exclude=True)


def _cases(settings: _Settings) -> dict[str, tuple[str, str]]:
  """Returns {'model | sampler': (model, sampler)}."""
  chosen = [
    name
    for name, (language, *_) in theirs.SAMPLERS.items()
    if language != theirs.STAN
    and (settings.others or not on_models.is_long(name))
  ]
  return pairs(models.MODELS, (*on_models.SAMPLERS, *chosen))


def prepare(work: Work) -> None:
  """Tells models the folder of data sets, because `data` has no arguments."""
  if work.data_dir:
    os.environ[datasets.DATA_DIR_VARIABLE] = str(work.data_dir)


def _run(case: tuple[str, str], seed: int, work: Work):
  """Returns the record of one run."""
  name, sampler = case
  model = models.load(name)
  data = model.data()
  if sampler in on_models.SAMPLERS:
    outcome = on_models.run(
      sampler, lambda: model.tfp_model(**data), seed, work.progress
    )
  else:
    outcome = on_models.run_theirs(
      sampler, models.path(name), data, seed, work.python
    )
    # Traces hold deterministic values as well.
    names = unknowns(model.tfp_model(**data))
    states = {name: outcome.states[name] for name in names}
    outcome = outcome._replace(states=states)
  return on_models.record(outcome, models.exact_means(name))


def unknowns(model) -> list[str]:
  """Returns the names of a model's unknowns, in the order of the model."""
  # A model without data has no pins.
  draw = getattr(model, 'sample_unpinned', None) or model.sample
  return list(draw(seed=0)._asdict())


STUDY = Study(
  _cases, _run, _Settings, process='cell', max_seconds=900.0, prepare=prepare
)
