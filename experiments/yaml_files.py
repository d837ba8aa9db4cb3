"""YAML files as nested dicts and lists, with overrides of single keys."""

import pathlib
import re

import yaml

from experiments.errors import ConfigError

__all__ = ['load']


class _Loader(yaml.SafeLoader):
  """YAML 1.2 floats: 1e-3 is a number, not a string."""


_Loader.yaml_implicit_resolvers = {
  first: list(rules)
  for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
  'tag:yaml.org,2002:float',
  re.compile(r'^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$'),
  list('-+0123456789.'),
)


def load(path, overrides=()):
  """Returns the dict that a YAML file holds.

  Args:
    path: of the file.
    overrides: 'dotted.key=value' strings; the value is read as YAML.

  Raises:
    ConfigError: if there is no such file, or it holds no keys and values, or
      an override does not fit.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise ConfigError(f'there is no config file {str(path)!r}.')
  try:
    values = yaml.load(path.read_text(encoding='utf-8'), Loader=_Loader)
  except yaml.YAMLError as error:
    raise ConfigError(f'{path} is not YAML: {error}') from error
  if not isinstance(values, dict):
    raise ConfigError(f'{path} must hold keys and values.')
  for override in overrides:
    _override(values, override)
  return values


def _override(values, override):
  """Sets `dotted.key=value` inside nested dicts and lists."""
  key, separator, text = override.partition('=')
  if not separator or not key.strip():
    raise ConfigError(f'--set {override!r}: write key=value.')
  value = yaml.load(text, Loader=_Loader)
  steps = key.strip().split('.')
  node = values
  for i, step in enumerate(steps):
    is_last = i == len(steps) - 1
    where = '.'.join(steps[: i + 1])
    if isinstance(node, list):
      if not step.isdigit() or int(step) >= len(node):
        raise ConfigError(
          f'--set {override!r}: {where!r} must be a number from 0 to '
          f'{len(node) - 1}.'
        )
      step = int(step)
    elif not isinstance(node, dict):
      raise ConfigError(f'--set {override!r}: {where!r} is not in the config.')
    if is_last:
      node[step] = value
    elif isinstance(node, dict):
      node = node.setdefault(step, {})
    else:
      node = node[step]
