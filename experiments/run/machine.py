"""The commit, the versions and the machine that made a record."""

import functools
import importlib.metadata
import os
import pathlib
import platform
import subprocess
import sys
from typing import Any

# Name of the module: name of the distribution.
_PACKAGES = {
  'arviz_base': 'arviz-base',
  'arviz_stats': 'arviz-stats',
  'blackjax': 'blackjax',
  'inference_gym': 'inference_gym',
  'jax': 'jax',
  'numpy': 'numpy',
  'numpyro': 'numpyro',
  'nutpie': 'nutpie',
  'pymc': 'pymc',
  'scipy': 'scipy',
  'tensorflow': 'tensorflow',
  'tensorflow_probability': 'tensorflow-probability',
}
# Folders of code, from the root of the checkout.
_CODE = (':/experiments', ':/tfp_adaptive')


@functools.cache
def commit() -> str | None:
  """Returns the commit of this checkout, or `None` outside a checkout.

  It ends with '-dirty' if a file was changed, or if a file of the experiments
  or the library is untracked.
  """
  try:
    found = _git('describe', '--always', '--dirty')
    is_new = _git('ls-files', '--others', '--exclude-standard', *_CODE)
  except (OSError, subprocess.CalledProcessError):
    return None
  return found.removesuffix('-dirty') + '-dirty' if is_new else found


def _git(*arguments: str) -> str:
  place = pathlib.Path(__file__).parent
  command = ['git', '-C', str(place), *arguments]
  found = subprocess.run(command, capture_output=True, text=True, check=True)
  return found.stdout.strip()


def versions() -> dict[str, str]:
  """Returns the versions of Python and of the packages that are loaded."""
  found = {'python': platform.python_version()}
  library = sys.modules.get('tfp_adaptive')
  if library is not None:
    found['tfp_adaptive'] = library.__version__
  for module, name in _PACKAGES.items():
    if module in sys.modules:
      found[name] = _version(name)
  return found


@functools.cache
def _version(name):
  try:
    return importlib.metadata.version(name)
  except importlib.metadata.PackageNotFoundError:
    return 'unknown'


def machine() -> dict[str, Any]:
  """Returns system, processor, number of cores, and accelerators."""
  found = {
    'system': platform.platform(),
    'processor': _processor(),
    'cores': len(os.sched_getaffinity(0)),
  }
  if 'tensorflow' in sys.modules:
    found['accelerators'] = _accelerators()
  return found


@functools.cache
def _processor() -> str:
  with open('/proc/cpuinfo', encoding='utf-8') as file:
    for line in file:
      if line.startswith('model name'):
        return line.partition(':')[2].strip()
  return platform.processor()


@functools.cache
def _accelerators() -> list[str]:
  tf = sys.modules['tensorflow']
  devices = tf.config.list_physical_devices()
  return [
    tf.config.experimental.get_device_details(device).get(
      'device_name', device.device_type
    )
    for device in devices
    if device.device_type != 'CPU'
  ]
