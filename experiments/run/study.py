"""What a study is: named cases, seeds, and a function from both to a record.

A module in `experiments/studies/` that has a `STUDY` is a study. The first line
of its docstring is its summary in `python -m experiments list`. The engine does
the rest. It lists the missing cells and runs them here, in a shard or on a
cluster. It keeps finished cells and writes records with commit, versions and
machine.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import Literal
from typing import NamedTuple

import numpy as np
import pydantic


class Settings(pydantic.BaseModel):
  """Settings that `--set key=value` changes; part of a record's key."""

  model_config = pydantic.ConfigDict(frozen=True, extra='forbid')

  def smoke(self) -> 'Settings':
    """Returns the settings of `--smoke`, a run that takes seconds.

    It is called on the defaults. Values of `--set` replace the returned ones.
    """
    return self


class Work(NamedTuple):
  """What the engine gives to one run.

  Attributes:
    settings: Settings of the study.
    checkpoints: Folder for checkpoints. It exists, is kept until this case and
      seed have finished, and is then removed by the engine.
    data_dir: Folder of local data sets, or `None` for the default.
    progress: Whether the run may print its progress.
    python: Interpreter for samplers that need their own environment, or `None`.
  """

  settings: Settings
  checkpoints: pathlib.Path
  data_dir: pathlib.Path | None = None
  progress: bool = False
  python: str | None = None


class Result(NamedTuple):
  """What one run leaves behind.

  Attributes:
    record: JSON values by name.
    arrays: Small arrays by name, written as one `.npz` file.
    draws: `xarray.DataTree` of draws, written as a Zarr store, or `None`.
  """

  record: Mapping[str, Any]
  arrays: Mapping[str, np.ndarray] = {}
  draws: Any = None


def pairs(first: Iterable, second: Iterable) -> dict[str, tuple]:
  """Returns the cases {'a | b': (a, b)} of all combinations."""
  return {f'{a} | {b}': (a, b) for a, b in itertools.product(first, second)}


@dataclasses.dataclass(frozen=True)
class Study:
  """Cases, and how one of them is run with one seed.

  Attributes:
    cases: Function of the settings. It returns the cases by their names, in the
      order of the work. Building a case should be cheap, because every process
      builds all of them.
    run: Function (case, seed, work). It returns a `Result` or only its record.
      An exception becomes a record with status 'failed', and
      `experiments.run.errors.Refused` one with status 'refused'.
    settings: Class of the settings, with defaults for all of them.
    seeds: Default seeds.
    version: Part of every record's key. Code is not part of the key. Increase
      the version when results of `run` change, so that old records count as
      missing.
    process: What shares a process: 'run' (all cases), 'case' (all seeds of one
      case) or 'cell' (nothing). Seeds share compilations if `run` uses the same
      kernel object for them.
    max_seconds: Wall seconds after which a process is ended, or `None`. Its
      unfinished cells get status 'out of time'.
    render: Function of a list of `store.Record` that returns a Markdown report.
      With `None` the report is a plain table.
    case_key: Function of a case, or `None`. It returns JSON values that are
      part of the key of this case alone.
    prepare: Function of the work, which every process calls before its first
      run, or `None`. Its `ConfigError` or `DataError` ends the whole run.
    finish: Function of the folder of a run, the list of its records, and the
      work, or `None`. It writes tables and figures into the folder once no
      record is missing.
  """

  cases: Callable[[Any], Mapping[str, Any]]
  run: Callable[[Any, int, Work], Result | Mapping[str, Any]]
  settings: type[Settings] = Settings
  seeds: tuple[int, ...] = (0,)
  version: int = 1
  process: Literal['run', 'case', 'cell'] = 'case'
  max_seconds: float | None = None
  render: Callable[[list], str] | None = None
  case_key: Callable[[Any], Any] | None = None
  prepare: Callable[[Work], None] | None = None
  finish: Callable[[pathlib.Path, list, Work], None] | None = None
