"""The run.json of a run: what each session of it was made with."""

import datetime
import importlib.metadata
import pathlib
import platform
import sys
import warnings

import tensorflow as tf

from experiments.framework.errors import ConfigError
from experiments.framework.errors import listed
from experiments.framework.errors import shortened
from experiments.framework.json_files import read_json
from experiments.framework.outputs import write_json

__all__ = ['append', 'read']

_PACKAGES = (
  'tfp_adaptive',
  'tensorflow',
  'tensorflow-probability',
  'inference_gym',
  'arviz-base',
  'arviz-stats',
  'numpy',
)


def append(folder):
  """Adds versions, device and command of this process to the run.json.

  Warns where the session before had other versions.

  Args:
    folder: with the run.json: that of a run, or of a shard.
  """
  sessions = read(folder)
  versions = {name: _version(name) for name in _PACKAGES}
  if sessions:
    _tell_changed(sessions[-1]['versions'], versions)
  sessions.append(
    {
      'started': datetime.datetime.now().astimezone().isoformat(),
      'command': sys.argv,
      'python': platform.python_version(),
      'platform': platform.platform(),
      'versions': versions,
      'devices': [device.name for device in tf.config.list_logical_devices()],
    }
  )
  write_json(pathlib.Path(folder) / 'run.json', sessions)


def read(folder):
  """Returns versions, device and command of each session so far."""
  file = pathlib.Path(folder) / 'run.json'
  if not file.exists():
    return []
  sessions = read_json(file)
  if not isinstance(sessions, list) or not all(map(_is_session, sessions)):
    raise ConfigError(
      f'{shortened(file, 160)} must hold a list of sessions; restore or '
      'delete it.'
    )
  return sessions


def _is_session(value):
  return isinstance(value, dict) and isinstance(value.get('versions'), dict)


def _tell_changed(before, now):
  changed = [
    f'{name} {before.get(name)} before, {version} now'
    for name, version in now.items()
    if before.get(name) != version
  ]
  if changed:
    warnings.warn(
      f'this run was begun with other versions ({listed(changed)}), and its '
      'repeats will be averaged over both; start a new run where that matters.',
      stacklevel=2,
    )


def _version(package):
  try:
    return importlib.metadata.version(package)
  except importlib.metadata.PackageNotFoundError:
    return None
