"""What commands of rooms share that are not yet studies of the engine."""

import fnmatch
import pathlib
from typing import Annotated
from typing import Optional

import typer

from experiments.framework import outputs
from experiments.run.cli import console
from experiments.run.cli import DataDir
from experiments.run.cli import Device
from experiments.run.cli import errors
from experiments.run.cli import refusing
from experiments.run.errors import ConfigError

__all__ = [
  'DataDir',
  'Device',
  'OutputFile',
  'console',
  'errors',
  'matching',
  'refusing',
]

OutputFile = Annotated[
  Optional[pathlib.Path],
  typer.Option(help='File; default: print.', callback=outputs.file_option),
]


def matching(names, patterns):
  """Returns the names that match a pattern; all names without a pattern."""
  if not patterns:
    return list(names)
  for pattern in patterns:
    if not fnmatch.filter(names, pattern):
      raise ConfigError(
        f'{pattern!r} is none of {", ".join(names)}; `*` stands for any text.'
      )
  return [
    name
    for name in names
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
  ]
