"""Sets of files of one repository: addresses and checksums alone.

The address of a file names the commit, so what lies there cannot change. A
checksum is compared as well where one is known.
"""

import json
import pathlib
from typing import NamedTuple
from typing import Optional

__all__ = ['FILE_SETS', 'FileSet', 'PublishedFile']


class PublishedFile(NamedTuple):
  """A file at a fixed address.

  Attributes:
    name: Path in the folder of the set.
    address: Where it is published.
    sha256: SHA-256 of its bytes; `None` where the commit alone fixes it.
  """

  name: str
  address: str
  sha256: Optional[str]


class FileSet(NamedTuple):
  """Files that belong together.

  Attributes:
    files: All of them.
    terms: License or terms, as far as they are known.
  """

  files: tuple[PublishedFile, ...]
  terms: str


def _read(name: str, terms: str) -> FileSet:
  """Returns the set that a JSON file beside this one lists."""
  text = pathlib.Path(__file__).with_name(f'{name}.json').read_text()
  listed = json.loads(text)
  root = (
    f'https://raw.githubusercontent.com/{listed["repository"]}/'
    f'{listed["commit"]}'
  )
  files = tuple(
    PublishedFile(local, f'{root}/{entry["path"]}', entry['sha256'])
    for local, entry in listed['files'].items()
  )
  return FileSet(files, terms)


FILE_SETS = {
  'posteriordb': _read(
    'posteriordb',
    'those of each data set, in https://github.com/stan-dev/posteriordb',
  )
}
