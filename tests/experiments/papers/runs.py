"""Runs of a config in this process, for the tests of several rooms."""

import pathlib

from experiments.papers import config_study
from experiments.run import engine
from experiments.run import find
from experiments.run import store
from experiments.run import tasks
from experiments.run.study import Work


def run_here(config, folder, data_dir=None) -> list[store.Record]:
  """Runs all cells of a config, writes tables and figures, returns records."""
  folder = pathlib.Path(folder)
  study = config_study.study(config)
  found = find.Found(config.name, study, study.settings())
  data_dir = None if data_dir is None else str(data_dir)
  cells = tasks.cells(found)
  engine.run_cells(engine.Job('', str(folder), data_dir=data_dir), found, cells)
  records = engine.current(folder, cells)
  study.finish(folder, records, Work(found.settings, folder, data_dir))
  return records
