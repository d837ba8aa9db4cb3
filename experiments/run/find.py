"""Finds studies and configs, and lists them without importing TensorFlow."""

import ast
import dataclasses
import importlib
import importlib.util
import pathlib
import sys
import types
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from experiments.run import yaml_files
from experiments.run.errors import ConfigError
from experiments.run.errors import did_you_mean
from experiments.run.errors import listed
from experiments.run.errors import shown
from experiments.run.errors import validated
from experiments.run.study import Settings
from experiments.run.study import Study

ROOT = pathlib.Path(__file__).resolve().parents[2]
_EXPERIMENTS = ROOT / 'experiments'
_CONFIGS = ROOT / 'configs'
# A key of a YAML file, and the module whose `load(path, overrides, is_smoke)`
# returns its study. Names keep the engine independent of other folders.
_LOADERS = {
  'targets': 'experiments.studies.panel.cells',
  'target': 'experiments.papers.config_study',
}


class Found(NamedTuple):
  """A study that was found by its name.

  Attributes:
    name: What its records call it.
    study: The study.
    settings: Its settings, overrides included.
  """

  name: str
  study: Study
  settings: Settings


def entries() -> Iterator[tuple[str, str, str]]:
  """Yields (kind, name, summary) of all that configs and `run` can name."""
  for path in sorted((_EXPERIMENTS / 'studies').iterdir()):
    file = path / '__init__.py' if path.is_dir() else path
    if file.suffix == '.py' and file.is_file():
      tree = _parsed(file)
      if _has_study(tree):
        yield 'study', path.stem, _summary(tree)
  for path in sorted(_CONFIGS.rglob('*.yaml')):
    values = yaml_files.load(path)
    if _LOADERS.keys() & values:
      text = ' '.join(str(values.get('description', '')).split())
      yield 'config', str(path.relative_to(ROOT)), text
  for kind, folder in (('target', 'targets'), ('method', 'samplers')):
    found = []
    for path in (_EXPERIMENTS / folder).rglob('*.py'):
      found += _registered(_parsed(path))
    yield from ((kind, *entry) for entry in sorted(found))


def _parsed(path):
  return ast.parse(path.read_text(encoding='utf-8'))


def _summary(tree):
  return (ast.get_docstring(tree) or '').partition('\n')[0]


def _has_study(tree):
  """Returns whether a module assigns `STUDY`."""
  targets = []
  for node in tree.body:
    targets += getattr(node, 'targets', [getattr(node, 'target', None)])
  return any(isinstance(t, ast.Name) and t.id == 'STUDY' for t in targets)


def _registered(tree):
  """Yields (name, summary) of classes under `@REGISTRY.register('name')`."""
  for node in tree.body:
    for call in getattr(node, 'decorator_list', ()):
      function = getattr(call, 'func', None)
      if getattr(function, 'attr', None) == 'register':
        yield ast.literal_eval(call.args[0]), _summary(node)


def check(reference: str) -> None:
  """Refuses the name of a study or a config that does not exist.

  Raises:
    ConfigError: If it does not exist. The message has similar names.
  """
  path = pathlib.Path(reference)
  if path.suffix in ('.yaml', '.yml'):
    if not _LOADERS.keys() & yaml_files.load(path):
      raise ConfigError(
        f'{shown(reference, 120)} is not the config of an experiment: it needs '
        f'one of the keys {" and ".join(_LOADERS)}.'
      )
  elif path.suffix == '.py':
    if not path.is_file() or not _has_study(_parsed(path)):
      raise ConfigError(f'{shown(reference, 120)} has no STUDY.')
  else:
    names = [name for kind, name, _ in entries() if kind == 'study']
    if reference not in names:
      raise ConfigError(
        f'there is no study {shown(reference)}'
        f'{did_you_mean(reference, names)}; allowed are {listed(names)}, or '
        'the path of a YAML config (python -m experiments list).'
      )


def load(
  reference: str, overrides: Sequence[str] = (), is_smoke: bool = False
) -> Found:
  """Returns the study of a name, a `.py` file or a YAML config.

  Args:
    reference: Name of a module in `experiments/studies/`, or a path.
    is_smoke: Whether the run should take seconds only. Overrides still count.

  Raises:
    ConfigError: If there is no such study, or an override does not fit.
  """
  check(reference)
  path = pathlib.Path(reference)
  if path.suffix != '.py':
    # The library imports TensorFlow without the lines that TensorFlow logs.
    importlib.import_module('tfp_adaptive')
  if path.suffix in ('.yaml', '.yml'):
    values = yaml_files.load(path, overrides)
    loader = next(_LOADERS[key] for key in _LOADERS if key in values)
    study = importlib.import_module(loader).load(path, overrides, is_smoke)
    return Found(str(values.get('name', path.stem)), study, study.settings())
  study = _module(path).STUDY
  values = {}
  if is_smoke:
    study = dataclasses.replace(study, seeds=study.seeds[:1])
    values = dict(study.settings().smoke())
  return Found(path.stem, study, _settings(study.settings, values, overrides))


def _module(path) -> types.ModuleType:
  if path.suffix != '.py':
    return importlib.import_module(f'experiments.studies.{path}')
  spec = importlib.util.spec_from_file_location(path.stem, path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[path.stem] = module
  spec.loader.exec_module(module)
  return module


def _settings(
  model: type[Settings], values: dict[str, Any], overrides: Sequence[str]
) -> Settings:
  for override in overrides:
    yaml_files.override(values, override)
  return validated(model, values, lambda path: (path, model.model_fields))
