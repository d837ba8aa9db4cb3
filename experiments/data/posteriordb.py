"""The files of posteriordb: downloaded once, checked, and kept."""

import json
import pathlib
from collections.abc import Callable

import pooch

from experiments.run.errors import DataError
from experiments.run.errors import shortened

NAME = 'posteriordb'
TERMS = 'those of each data set, in https://github.com/stan-dev/posteriordb'


def files(place: pathlib.Path) -> pooch.Pooch:
  """Returns the published files, as they lie in a data folder.

  Their addresses name a commit. All files except the Stan programs have a
  checksum.
  """
  path = pathlib.Path(__file__).with_name('posteriordb.json')
  listed = json.loads(path.read_text())
  root = (
    f'https://raw.githubusercontent.com/{listed["repository"]}/'
    f'{listed["commit"]}'
  )
  entries = listed['files']
  return pooch.create(
    place / NAME,
    root,
    registry={name: entry['sha256'] for name, entry in entries.items()},
    urls={name: f'{root}/{entry["path"]}' for name, entry in entries.items()},
  )


def num_here(place: pathlib.Path) -> int:
  """Returns how many of the files are in a data folder."""
  published = files(place)
  return sum((published.path / n).is_file() for n in published.registry)


def obtain(place: pathlib.Path, say: Callable[[str], None]) -> None:
  """Downloads the missing files of a data folder; checks the others.

  Raises:
    DataError: If a file cannot be downloaded, or a local file is different.
  """
  published = files(place)
  num_kept, num_files = num_here(place), len(published.registry)
  say(f'{NAME}: {num_files} files. Terms: {TERMS}.')
  for name, sha256 in published.registry.items():
    path = published.path / name
    # Pooch would replace a file that somebody else put there.
    if path.is_file() and sha256 not in (None, pooch.file_hash(str(path))):
      raise DataError(
        f'{shortened(path, 120)} does not have the SHA-256 {sha256}, so its '
        'content is different. Move the file away, then run the command again.'
      )
    try:
      published.fetch(name)
    except (OSError, ValueError) as error:
      raise DataError(
        f'{published.get_url(name)} could not be fetched '
        f'({type(error).__name__}: {shortened(error, 200)}). Earlier files '
        'are kept. Run the command again.'
      ) from error
  say(
    f'  {num_kept} files kept, {num_files - num_kept} written: {place / NAME}'
  )
