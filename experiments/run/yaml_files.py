"""YAML files as nested dicts and lists, with overrides of single keys.

A config is small, so what is large is refused before it is read through: long
files and deep nesting. Only what JSON can hold is taken: text, numbers, true,
false, null, lists and dicts with text as keys, each key once. There are no
aliases, because a short one can stand for very much.
"""

import os
import re

import yaml

from experiments.run.errors import ConfigError
from experiments.run.errors import shortened
from experiments.run.errors import shown

_MAX_BYTES = 300_000
_MAX_DEPTH = 30
_MAX_NODES = 20_000
_MAX_INTEGER = 2**63
_KEPT_RESOLVERS = ('bool', 'null')
_CONTROL = re.compile(r'[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]')


class _Refused(yaml.MarkedYAMLError):
  """What YAML allows and a config does not."""

  def __init__(self, problem, node):
    super().__init__(problem=problem, problem_mark=node.start_mark)


class _Loader(yaml.SafeLoader):
  """Builds small trees of what JSON can hold."""

  def __init__(self, text):
    super().__init__(text)
    self._depth = 0
    self._num_nodes = 0

  def compose_node(self, parent, index):
    """Composes as PyYAML does, and counts."""
    event = self.peek_event()
    self._depth += 1
    self._num_nodes += 1
    if self._depth > _MAX_DEPTH:
      raise _Refused(f'it nests deeper than {_MAX_DEPTH} levels', event)
    if self._num_nodes > _MAX_NODES:
      raise _Refused(f'it holds more than {_MAX_NODES} values', event)
    if isinstance(event, yaml.AliasEvent):
      alias = shortened(event.anchor)
      raise _Refused(f'*{alias} is an alias; write its value', event)
    if event.tag not in (None, '!'):
      raise _Refused(f'the tag {shown(event.tag)} is not allowed', event)
    node = super().compose_node(parent, index)
    self._depth -= 1
    return node

  def construct_mapping(self, node, deep=False):
    seen = set()
    for key, _ in node.value:
      if isinstance(key, yaml.ScalarNode):
        if key.value in seen:
          raise _Refused(f'the key {shown(key.value)} is there twice', key)
        seen.add(key.value)
    values = super().construct_mapping(node, deep)
    if not all(isinstance(key, str) for key in values):
      raise _Refused('keys must be text; put them in quotes', node)
    return values


def _construct_integer(loader, node):
  text = node.value.replace('_', '')
  # Python reads no more than 4300 digits, and no count needs twenty.
  if len(text) > 20 or abs(int(text)) >= _MAX_INTEGER:
    raise _Refused(
      f'the number {shortened(node.value, 30)} has {len(text)} digits; '
      'integers must be below 2^63',
      node,
    )
  return int(text)


def _construct_text(loader, node):
  text = loader.construct_scalar(node)
  found = _CONTROL.search(text)
  if found:
    raise _Refused(
      f'the character U+{ord(found[0]):04X} cannot be part of a text', node
    )
  return text


# YAML 1.2: 1e-3 is a number; 017, 1:30 and 2024-01-31 are none.
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
_Loader.add_constructor('tag:yaml.org,2002:int', _construct_integer)
_Loader.add_constructor('tag:yaml.org,2002:str', _construct_text)


def load(path, overrides=()):
  """Returns the dict that a YAML file holds.

  Args:
    overrides: 'dotted.key=value' strings; the value is read as YAML.

  Raises:
    ConfigError: if there is no such file, or it holds no keys and values, or
      an override does not fit.
  """
  name = shown(str(path), 120)
  # False, not an exception, for names that no file can have.
  if not os.path.isfile(path):
    raise ConfigError(f'there is no config file {name}.')
  try:
    with open(path, 'rb') as file:
      content = file.read(_MAX_BYTES + 1)
  except OSError as error:
    raise ConfigError(f'{name} cannot be read ({error.strerror}).') from error
  if len(content) > _MAX_BYTES:
    raise ConfigError(
      f'{name} has more than {_MAX_BYTES} bytes; a config is a short YAML file.'
    )
  try:
    text = content.decode('utf-8-sig')
  except UnicodeDecodeError as error:
    raise ConfigError(
      f'{name} is not UTF-8 (byte {error.start}); save it as UTF-8.'
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
  except yaml.reader.ReaderError as error:
    raise ConfigError(
      f'{origin} is not YAML: the character U+{error.character:04X} at '
      f'position {error.position} is not allowed.'
    ) from error
  except yaml.MarkedYAMLError as error:
    mark = error.problem_mark or error.context_mark
    problem = shortened(error.problem or error.context, 160)
    raise ConfigError(
      f'{origin} is not YAML, line {mark.line + 1}: {problem}.'
    ) from error


def override(values: dict, text: str) -> None:
  """Sets `dotted.key=value` inside nested dicts and lists."""
  given = f'--set {shown(text)}'
  key, separator, value = text.partition('=')
  steps = key.strip().split('.')
  if not separator or not all(steps):
    raise ConfigError(f'{given}: write key=value, with dots between keys.')
  if len(steps) > _MAX_DEPTH or len(text) > _MAX_BYTES:
    raise ConfigError(
      f'{given}: at most {_MAX_DEPTH} keys and {_MAX_BYTES} bytes are allowed.'
    )
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
