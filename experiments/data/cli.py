"""The command `python -m experiments data`."""

import pathlib
from typing import Annotated
from typing import Optional

import typer

from experiments.data import datasets
from experiments.data import posteriordb
from experiments.data.sources import BUNDLED
from experiments.data.sources import SOURCES
from experiments.run.errors import DataError
from experiments.run.errors import StorageError


def data(
  names: Annotated[
    Optional[list[str]],
    typer.Argument(
      metavar='[NAME]...', help='Data sets; without a name, a list.'
    ),
  ] = None,
  all_: Annotated[
    bool, typer.Option('--all', help='All data sets of the papers.')
  ] = False,
  data_dir: Annotated[
    Optional[pathlib.Path],
    typer.Option(help='Folder; default: TFP_ADAPTIVE_DATA_DIR, else ./data.'),
  ] = None,
):
  """Fetch data sets of the papers into the data folder, and check them."""
  names = names or []
  missing = []
  if names and all_:
    _refuse(f'{", ".join(names)} and --all were given; write either.')
  if not names and not all_:
    _list(datasets.folder(data_dir))
  for name in SOURCES if all_ else names:
    # A set that cannot be fetched does not stop the others.
    try:
      _obtain(name, data_dir)
    except (DataError, StorageError) as error:
      typer.secho(str(error), fg='red', err=True)
      missing.append(name)
  if missing:
    _refuse(f'Data sets that are missing: {", ".join(missing)}.')
  typer.echo(f'Data folder: {datasets.folder(data_dir)}')


def _obtain(name, data_dir):
  if name in BUNDLED:
    typer.echo(f'{name}: part of scikit-learn, nothing to download.')
  elif name == posteriordb.NAME:
    posteriordb.obtain(datasets.folder(data_dir), typer.echo)
  else:
    datasets.obtain(name, typer.echo, data_dir)


def _refuse(text):
  typer.secho(text, fg='red', err=True)
  raise typer.Exit(2)


def _list(place):
  """Shows every data set, whether it is here, and its terms."""
  for name in SOURCES:
    path = datasets.find(name, place)
    _show(name, SOURCES[name].size, path and path.name, SOURCES[name].terms)
  num_here = posteriordb.num_here(place)
  size = f'{len(posteriordb.files(place).registry)} files'
  here = num_here and f'{num_here} files'
  _show(posteriordb.NAME, size, here, posteriordb.TERMS)
  typer.echo(
    'Fetch one by `python -m experiments data NAME`. --all fetches all but '
    f'{posteriordb.NAME}.'
  )


def _show(name, size, here, terms):
  here = f'here: {here}' if here else 'not here'
  typer.echo(f'{name:14} {size:12} {here:24} {terms}')
