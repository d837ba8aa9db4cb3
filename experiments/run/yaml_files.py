"""YAML files as nested dicts and lists, with overrides of single keys.

Numbers follow YAML 1.2: 1e-3 is a number, but 017, 1:30 and 2024-01-31 are
text. A key may stand only once in a dict.
"""

import os
import re

import yaml

from experiments.run.errors import ConfigError
from experiments.run.errors import shortened
from experiments.run.errors import shown

_KEPT_RESOLVERS = ('bool', 'null')


class _Loader(yaml.SafeLoader):
  """Refuses a repeated key, whose last value PyYAML would take."""

  def construct_mapping(self, node, deep=False):
    seen = set()
    for key, _ in node.value:
      if str(key.value) in seen:
        raise yaml.constructor.ConstructorError(
          problem=f'the key {shown(key.value)} is there twice',
          problem_mark=key.start_mark,
        )
      seen.add(str(key.value))
    return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
  first: [rule for rule in rules if rule[0].endswith(_KEPT_RESOLVERS)]
  for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_NUMBERS = {
  'int': r'^[-+]?(0|[1-9][0-9_]*)$',
  'float': r'^([-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?'
  r'|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$',
}
for _name, _form in _NUMBERS.items():
  _Loader.add_implicit_resolver(
    f'tag:yaml.org,2002:{_name}', re.compile(_form), list('-+0123456789.')
  )


def load(path, overrides=()):
  """Returns the dict that a YAML file holds.

  Args:
    overrides: 'dotted.key=value' strings; the value is read as YAML.

  Raises:
    ConfigError: If there is no such file, the file holds no keys and values,
      or an override does not fit.
  """
  name = shown(str(path), 120)
  # `isfile` returns False for names that no file can have.
  if not os.path.isfile(path):
    raise ConfigError(f'there is no config file {name}.')
  try:
    with open(path, encoding='utf-8-sig') as file:
      text = file.read()
  except (OSError, UnicodeDecodeError) as error:
    raise ConfigError(
      f'{name} cannot be read ({error}); save it as UTF-8.'
    ) from error
  values = _parsed(text, name)
  if not isinstance(values, dict):
    raise ConfigError(f'{name} must hold keys and values, such as name: small.')
  for text in overrides:
    override(values, text)
  return values


def _parsed(text, origin):
  """Returns the values of a YAML text."""
  try:
    return yaml.load(text, Loader=_Loader)
  except (yaml.YAMLError, ValueError) as error:
    mark = getattr(error, 'problem_mark', None)
    place = f', line {mark.line + 1}' if mark else ''
    problem = shortened(getattr(error, 'problem', None) or error, 160)
    raise ConfigError(f'{origin} is not YAML{place}: {problem}.') from error


def override(values: dict, text: str) -> None:
  """Sets `dotted.key=value` inside nested dicts and lists."""
  given = f'--set {shown(text)}'
  key, separator, value = text.partition('=')
  steps = key.strip().split('.')
  if not separator or not all(steps):
    raise ConfigError(f'{given}: write key=value, with dots between keys.')
  value = _parsed(value, given)
  node = values
  for i, step in enumerate(steps):
    is_last = i == len(steps) - 1
    where = shown('.'.join(steps[: i + 1]))
    if isinstance(node, list):
      step = _index(step, len(node), f'{given}: {where}')
    elif not isinstance(node, dict):
      raise ConfigError(f'{given}: {where} is not in the config.')
    if is_last:
      node[step] = value
    elif isinstance(node, dict):
      node = node.setdefault(step, {})
    else:
      node = node[step]


def _index(step, size, where):
  """Returns the number of a list's entry."""
  if re.fullmatch('[0-9]{1,9}', step) and int(step) < size:
    return int(step)
  raise ConfigError(f'{where} must be a number from 0 to {size - 1}.')
