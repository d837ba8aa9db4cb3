"""Says what is wrong with a config: key, value, and what is allowed.

Every kind of config is a pydantic model. Its fields `target` or `targets`, and
`methods`, are entries of the registries.
"""

from experiments.run.errors import validated
from experiments.targets.registry import METHODS
from experiments.targets.registry import TARGETS

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
