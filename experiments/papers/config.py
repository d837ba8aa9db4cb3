"""The config of an experiment: YAML in, a checked and frozen object out.

A wrong config is refused before anything is computed, by a message that names
the key, the value and what is allowed.
"""

import itertools
from typing import Literal

from pydantic import Field

import experiments.samplers.catalogue
import experiments.targets  # noqa: F401
from experiments.run import yaml_files
from experiments.run.errors import ConfigError
from experiments.run.errors import shown
from experiments.targets import registry
from experiments.targets.registry import METHODS
from experiments.targets.registry import Parameters
from experiments.targets.registry import TARGETS

SMOKE_ADAPTATION_STEPS = 40
SMOKE_RESULTS = 20
SMOKE_SURROGATE = 50
# A table or a figure cannot show more rows.
_MAX_METHODS = 200
# No machine runs more; larger numbers are refused at once.
MAX_CHAINS = 10**6
_MAX_STEPS = 10**9
_MAX_REPEATS = 10**4
# A config gives its name to a folder.
NAME_PATTERN = r'^[A-Za-z0-9][A-Za-z0-9_.-]*$'
MAX_NAME = 100
# Parameters of which a method may list several values, and how a given label
# shows the value.
_LISTED = {'num_leapfrog_steps': 'L={}', 'target_accept_prob': '{:g}'}


class Init(Parameters):
  """Where chains start."""

  kind: Literal[
    'climb', 'normal', 'prior', 'suggested', 'target_normal', 'zeros'
  ] = Field(
    'normal',
    description='N(0, scale^2 I); moved uphill by Adam; from the prior; around '
    "the target's suggestion; the Gaussian target, widened; zero",
  )
  scale: float | None = Field(
    None, gt=0, description='None: 0.1 for suggested, 1 for others'
  )
  num_steps: int = Field(200, ge=1, description='climb: steps of Adam')


class Config(Parameters):
  """One experiment: a target, methods, and how long they run."""

  name: str = Field(pattern=NAME_PATTERN, max_length=MAX_NAME)
  description: str = ''
  target: TARGETS.union()
  methods: list[METHODS.union()] = Field(min_length=1)
  num_chains: int = Field(1, ge=1, le=MAX_CHAINS)
  num_adaptation_steps: int = Field(ge=0, le=_MAX_STEPS)
  num_results: int = Field(ge=4, le=_MAX_STEPS)
  num_steps_between_results: int = Field(0, ge=0, le=_MAX_STEPS)
  counts: Literal['steps', 'gradients'] = Field(
    'steps', description='gradients: a method takes counts / L steps'
  )
  num_repeats: int = Field(1, ge=1, le=_MAX_REPEATS)
  seed: int = Field(0, ge=0)
  init: Init = Init()
  dtype: Literal['float32', 'float64'] = 'float32'
  block_size: int | None = Field(None, ge=1)
  jit_compile: bool = True
  save_draws: bool = True
  trace_diagonal: bool = Field(
    False, description="record the learned factor's diagonal at every step"
  )
  discard_adaptation: bool = Field(
    True, description='false: the adapting steps are draws too'
  )
  reference: str | None = Field(
    None, description='folder of a run, from whose draws distances are taken'
  )
  diagonal_image_shape: list[int] | None = Field(
    None, min_length=2, max_length=2, description='diag C drawn as an image'
  )

  def label(self, index):
    """Returns the table's row name of a method."""
    return self.methods[index].row_label()

  def labels(self):
    return [method.row_label() for method in self.methods]


def load_config(path, overrides=()):
  """Returns the checked config of a YAML file.

  Args:
    overrides: 'dotted.key=value' strings; the value is read as YAML.

  Raises:
    ConfigError: If anything is wrong; names all mistakes if possible.
  """
  return parse_config(yaml_files.load(path, overrides))


def parse_config(values):
  """Returns the checked config of nested dicts and lists."""
  values = expand_methods(values)
  registry.check_names(values)
  config = registry.checked(Config, values)
  labels = config.labels()
  repeated = sorted({label for label in labels if labels.count(label) > 1})
  if repeated:
    raise ConfigError(
      f'methods: the label {shown(repeated[0])} is used '
      f'{labels.count(repeated[0])} '
      'times. Give each method its own label with label: ...'
    )
  return config


def expand_methods(values):
  """Returns values with one method for each value of a list.

  Args:
    values: Nested dicts and lists. A method with `num_leapfrog_steps: [1, 5]`
      stands for two methods, whose given labels are followed by L=1 and L=5.
      `target_accept_prob: [0.3, 0.6]` works in the same way.
  """
  methods = values.get('methods')
  if not isinstance(methods, list):
    return values
  expanded = []
  for method in methods:
    expanded += itertools.islice(_expand(method), _MAX_METHODS + 1)
    if len(expanded) > _MAX_METHODS:
      raise ConfigError(
        f'methods: there are more than {_MAX_METHODS} methods, with one for '
        'each value of a list. Write shorter lists, or several configs.'
      )
  return {**values, 'methods': expanded}


def _expand(method):
  """Yields a method for each combination of listed values."""
  if not isinstance(method, dict):
    yield method
    return
  listed = {
    key: method[key]
    for key in _LISTED
    if method.get(key) and isinstance(method[key], list)
  }
  for values in itertools.product(*listed.values()):
    yield _with_values(method, dict(zip(listed, values)))


def _with_values(method, values):
  """Returns a method with single values, which its label shows if given."""
  method = {**method, **values}
  if isinstance(method.get('label'), str):
    for key, value in values.items():
      if isinstance(value, int | float):
        method['label'] += f', {_LISTED[key].format(value)}'
  return method


def smoke(config, overrides=()):
  """Returns the same config shrunk to a few steps, to see that it runs.

  Args:
    overrides: 'dotted.key=value' strings, whose keys keep their values.
  """
  kept = {text.partition('=')[0].strip().split('.')[-1] for text in overrides}
  values = config.model_dump(mode='json')
  limits = {
    'num_adaptation_steps': SMOKE_ADAPTATION_STEPS,
    'num_results': SMOKE_RESULTS,
    'num_chains': 2,
    'num_repeats': 1,
    'history_draws': SMOKE_SURROGATE,
    'num_points': SMOKE_SURROGATE,
    'num_features': SMOKE_SURROGATE,
  }
  for part in [values, *values['methods']]:
    for key, limit in limits.items():
      if part.get(key) is not None and key not in kept:
        part[key] = min(part[key], limit)
  for key, value in (('num_steps_between_results', 0), ('block_size', None)):
    if key not in kept:
      values[key] = value
  return Config.model_validate(values)
