"""The command that fetches data sets: `python -m experiments data`."""

from typing import Annotated
from typing import Optional

import rich.table
import typer

from experiments.framework import cli
from experiments.framework import data as local_data
from experiments.framework import downloads
from experiments.framework.data_sources import DOWNLOADS
from experiments.framework.file_sets import FILE_SETS
from experiments.run.errors import DataError

__all__ = ['data']


def data(
  names: Annotated[
    Optional[list[str]],
    typer.Argument(metavar='[NAME]...', help='Data sets; none: list them.'),
  ] = None,
  all_: Annotated[
    bool, typer.Option('--all', help='All data sets of the papers.')
  ] = False,
  data_dir: cli.DataDir = None,
):
  """Fetch data sets of the papers into the data folder, and check them.

  The folder is --data-dir, else TFP_ADAPTIVE_DATA_DIR, else ./data.
  """
  folder = local_data.folder(data_dir)
  with cli.refusing():
    if names and all_:
      raise DataError(f'{", ".join(names)} and --all were given; write either.')
    if not names and not all_:
      _list(data_dir)
    elif len(names or DOWNLOADS) == 1:
      downloads.obtain(names[0], cli.console, data_dir)
    else:
      _obtain_all(names or list(DOWNLOADS), data_dir)
  cli.console.print(f'Data folder: {folder}', soft_wrap=True, highlight=False)


def _obtain_all(names, data_dir):
  """Fetches each set; one that cannot be had keeps no other from coming."""
  missing = []
  for name in names:
    try:
      downloads.obtain(name, cli.console, data_dir)
    except DataError as error:
      cli.errors.print(str(error), style='red')
      missing.append(name)
  if missing:
    raise DataError(
      f'{len(missing)} of {len(names)} data sets are missing: '
      f'{", ".join(missing)}.'
    )


def _list(data_dir):
  """Shows every data set, whether it is here, and its terms."""
  table = rich.table.Table('Data set', 'Rows x columns', 'Here', 'Terms')
  for name, source in DOWNLOADS.items():
    path = downloads.local_copy(name, data_dir)
    shape = ' x '.join(map(str, source.shape))
    table.add_row(name, shape, path.name if path else 'no', source.terms)
  for name, listed in FILE_SETS.items():
    num_here = len(downloads.local_files(name, data_dir))
    here = f'{num_here} files' if num_here else 'no'
    table.add_row(name, f'{len(listed.files)} files', here, listed.terms)
  cli.console.print(table)
  cli.console.print(
    'Fetch one by `python -m experiments data NAME`. --all fetches all but '
    f'{", ".join(FILE_SETS)}.'
  )
