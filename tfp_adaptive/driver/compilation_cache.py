"""Keeps compiled programs on disk, so that a later process can load them.

This is XLA's own cache, which works on CPUs. It identifies a program only by a
digest of the program. Code for another processor would be loaded and may crash,
so the folder is named by version, flags and processor. Names of functions are
part of the digest. They contain numbers that grow with every earlier trace, so
tracing a block first raises their counter to a multiple of 100,000.
"""

import hashlib
import os
import pathlib
import platform
import tempfile

import tensorflow as tf

from tfp_adaptive.core import tfp_private
from tfp_adaptive.interfaces import types

_VARIABLE = 'TF_XLA_FLAGS'
_FLAG = '--tf_xla_persistent_cache_directory='
_OF_DEVICES = '--tf_xla_persistent_cache_device_types=CPU'
_CPU_INFO = pathlib.Path('/proc/cpuinfo')
_MOST_NAMES = 100_000  # Names count from a multiple of this.


def cache_compilations(directory: types.Path | None = None) -> str:
  """Keeps compiled programs on disk for later processes; works on CPUs only.

  Call it after the imports, before any op of TensorFlow. A later process that
  samples the same model with the same data and counts does not compile again,
  and its draws are the same. It still traces, which takes a third of the time
  or more. A density that calls a `tf.function` which ran before may be compiled
  again.

  Delete the folder when it is large, or when a run fails to read or write it: a
  program takes some megabytes, holds the data, and is never removed. Nobody
  else should have write access, because programs in the folder are run.

  Args:
    directory: Folder, created if missing. `None`: `tfp_adaptive` in
      `$XDG_CACHE_HOME`, or in `~/.cache`.

  Returns:
    The subfolder for this processor, version and flags, a str.

  Raises:
    RuntimeError: If TensorFlow is initialized already, for example by an op,
      because it then has read its flags.
    ValueError: If the folder cannot be written to, has spaces in its name, or
      another folder is set already.

  Example:
    import tfp_adaptive as tfpa

    tfpa.cache_compilations()  # Before all else.
  """
  flags = os.environ.get(_VARIABLE, '')
  if directory is None:
    base = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
    directory = pathlib.Path(base, 'tfp_adaptive')
  others = [f for f in flags.split() if not f.startswith((_FLAG, _OF_DEVICES))]
  folder = pathlib.Path(directory).expanduser().absolute() / _identity(others)
  if len(str(folder).split()) > 1:
    raise ValueError(
      f'TensorFlow takes no spaces in a flag, but `directory` is '
      f'{str(directory)!r}. Give another folder.'
    )
  wanted = f'{_FLAG}{folder}'
  if wanted in flags.split():
    return str(folder)
  if _FLAG in flags:
    raise ValueError(
      f'{_VARIABLE} sets another folder already: {flags!r}. Call '
      f'`tfpa.cache_compilations` only once, or remove `{_FLAG}...` from the '
      'environment variable.'
    )
  if tfp_private.has_started():
    raise RuntimeError(
      'TensorFlow is initialized already, and reads its flags only once. Call '
      '`tfpa.cache_compilations()` right after the imports.'
    )
  _check_is_writable(folder)
  os.environ[_VARIABLE] = ' '.join([*others, wanted, _OF_DEVICES])
  return str(folder)


def number_names():
  """Makes names in cached programs independent of earlier traces."""
  if _FLAG in os.environ.get(_VARIABLE, ''):
    tfp_private.number_names_from_multiple(_MOST_NAMES)


def _identity(flags):
  """Returns a name for version, flags and processor; code depends on these."""
  processor = [platform.machine(), platform.processor()]
  if _CPU_INFO.exists():
    lines = _CPU_INFO.read_text().splitlines()
    keys = ('model name', 'flags', 'Features', 'CPU part')
    processor += sorted({line for line in lines if line.startswith(keys)})
  parts = [
    tf.version.VERSION,
    tf.version.GIT_VERSION,
    os.environ.get('XLA_FLAGS', ''),
    *sorted(flags),
    *processor,
  ]
  digest = hashlib.sha256('\n'.join(parts).encode()).hexdigest()
  return f'tensorflow-{tf.version.VERSION}-{digest[:12]}'


def _check_is_writable(folder):
  try:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryFile(dir=folder):
      pass
  except OSError as error:
    raise ValueError(
      f'`directory` cannot be written to: {error}. Give another folder.'
    ) from error
