"""Writes results: refused before any computing, or whole, or told in words."""

import contextlib
import json
import os
import pathlib
import socket
import tempfile

import typer

from experiments.run.errors import ConfigError
from experiments.run.errors import shortened
from experiments.run.errors import shown
from experiments.run.errors import StorageError

__all__ = [
  'check_file',
  'check_folder',
  'file_option',
  'folder_option',
  'storing',
  'write_bytes',
  'write_json',
  'write_text',
]


def check_folder(path):
  """Makes a folder; refuses one in which no file can be made."""
  try:
    pathlib.Path(path).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path, prefix='.'):
      pass
  # A path with a NUL is a ValueError.
  except (OSError, ValueError) as error:
    raise ConfigError(
      f'the output folder {shown(str(path), 120)} cannot be written '
      f'({_reason(error)}); name another with --output.'
    ) from error


def check_file(path):
  """Refuses a file that cannot be written; leaves one that is there."""
  if os.path.isdir(path):
    raise ConfigError(
      f'the output file {shown(str(path), 120)} is a folder; name a file in it.'
    )
  try:
    if os.path.exists(path):
      with open(path, 'ab'):
        return
    # Its own name: it may be too long, or hold what no name can.
    with open(path, 'xb'):
      pass
    os.remove(path)
  except (OSError, ValueError) as error:
    raise ConfigError(
      f'the output file {shown(str(path), 120)} cannot be written '
      f'({_reason(error)}); name another, in a folder that exists.'
    ) from error


def _reason(error):
  return shortened(getattr(error, 'strerror', None) or error)


def file_option(path):
  """As `check_file`, for options of the command line."""
  return _option(check_file, path)


def folder_option(path):
  """As `check_folder`, for options of the command line."""
  return _option(check_folder, path)


def _option(check, path):
  if path is not None:
    try:
      check(path)
    except ConfigError as error:
      raise typer.BadParameter(str(error)) from error
  return path


@contextlib.contextmanager
def storing(path):
  """Says in one sentence that `path` cannot be written, and what to do."""
  try:
    yield
  except OSError as error:
    raise StorageError(
      f'{shown(str(path), 120)} cannot be written ({_reason(error)}). What was '
      'finished before is kept: make room, then continue with --resume '
      '--output FOLDER.'
    ) from error


def write_text(path, text):
  """Writes a file, whole or not at all."""
  write_bytes(path, text.encode('utf-8'))


def write_bytes(path, content):
  """Writes a file, whole or not at all."""
  path = pathlib.Path(path)
  # Processes of two machines may have one number.
  aside = path.with_name(f'.{path.name}.{socket.gethostname()}.{os.getpid()}')
  with storing(path):
    try:
      aside.unlink(missing_ok=True)
      with open(aside, 'xb') as file:  # Never through a link of its name.
        file.write(content)
      os.replace(aside, path)
    finally:
      aside.unlink(missing_ok=True)


def write_json(path, value):
  """Writes JSON, whole or not at all."""
  write_text(path, json.dumps(value, indent=2) + '\n')
