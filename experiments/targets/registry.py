"""Registries of targets and methods, by their names in configs.

An entry is a pydantic class. Its fields are the parameters that a config may
give, and its `build` makes the target or the method. To add an entry, write a
class with the decorator.
"""

from typing import Annotated
from typing import Any
from typing import Literal
from typing import Union

import pydantic

from experiments.run.errors import ConfigError
from experiments.run.errors import did_you_mean
from experiments.run.errors import listed
from experiments.run.errors import shown
from experiments.run.errors import validated


class Parameters(pydantic.BaseModel):
  """Base of everything read from YAML: no unknown keys, no silent casts."""

  model_config = pydantic.ConfigDict(
    extra='forbid', strict=True, frozen=True, allow_inf_nan=False
  )


class Registry:
  """Entries of one kind, which configs call by name."""

  def __init__(self, kind):
    self.kind = kind
    self._entries: dict[str, type[Parameters]] = {}
    self._refused: dict[str, str] = {}

  def register(self, name):
    """Returns a class decorator that enters the class under `name`."""

    def decorate(cls):
      if name in self._entries:
        raise ValueError(f'{self.kind} {name!r} is registered twice.')
      entry = pydantic.create_model(
        cls.__name__,
        __base__=cls,
        __module__=cls.__module__,
        __doc__=cls.__doc__,
        name=(Literal[name], ...),
      )
      self._entries[name] = entry
      return entry

    return decorate

  def refuse(self, name, reason):
    """Enters a name that is known but cannot be used here."""
    self._refused[name] = reason

  def names(self):
    return sorted(self._entries)

  def parameters(self, name):
    """Returns {parameter: field} of an entry, without its name."""
    fields = dict(self._entries[name].model_fields)
    fields.pop('name')
    return fields

  def check_name(self, name, key):
    """Raises `ConfigError` unless `name` is registered."""
    if not isinstance(name, str):
      raise ConfigError(
        f'{key}: {shown(name)} was given. Write the name of one {self.kind}, '
        f'such as {self.names()[0]}.'
      )
    if name in self._refused:
      raise ConfigError(
        f'{key}: {name!r} cannot be used: {self._refused[name]}'
      )
    if name not in self._entries:
      raise ConfigError(
        f'{key}: unknown {self.kind} {shown(name)}'
        f'{did_you_mean(name, self._entries)}; '
        f'allowed are {listed(self.names())} (python -m experiments list).'
      )

  def union(self) -> Any:
    """Returns a union of all entries, discriminated by name."""
    entries = tuple(self._entries[name] for name in self.names())
    return Annotated[
      Union[entries],  # noqa: UP007
      pydantic.Field(discriminator='name'),
    ]


TARGETS = Registry('target')
METHODS = Registry('method')
_REGISTRIES = {'target': TARGETS, 'targets': TARGETS, 'methods': METHODS}


def checked(model, values):
  """Returns the model of nested dicts and lists; see `errors.validated`."""
  return validated(model, values, lambda path: _locate(model, path))


def check_names(values):
  """Refuses unknown targets and methods, with the names that are close."""
  for key, registry in _REGISTRIES.items():
    entries = values.get(key)
    if isinstance(entries, dict):
      entries = {key: entries}
    elif isinstance(entries, list):
      entries = {f'{key}.{i}': entry for i, entry in enumerate(entries)}
    else:
      continue
    for where, entry in entries.items():
      if isinstance(entry, dict) and 'name' in entry:
        registry.check_name(entry['name'], f'{where}.name')


def _locate(model, location):
  """Returns the path without pydantic's tags, and the keys allowed there."""
  registry = _REGISTRIES.get(location[0])
  # A list's entries stand one deeper: targets.0.<tag>.
  depth = 1 if location[0] == 'target' else 2
  if registry is not None and len(location) > depth:
    name = location.pop(depth)
    return location, {'name', *registry.parameters(name)}
  if location[0] == 'init' and len(location) > 1:
    model = model.model_fields['init'].annotation
  return location, set(model.model_fields)
