"""The config of a panel: targets, methods, one budget; and its gates.

Everything that decides the numbers of a cell goes into its key, so that no
record is taken for one that was made otherwise.
"""

import hashlib
import json
import pathlib
from typing import Annotated
from typing import NamedTuple

from pydantic import Field

import tfp_adaptive as tfpa
from experiments.framework import explain
from experiments.framework import yaml_files
from experiments.framework.config import Config
from experiments.framework.config import expand_methods
from experiments.framework.config import Init
from experiments.framework.config import MAX_CHAINS
from experiments.framework.config import MAX_NAME
from experiments.framework.config import NAME_PATTERN
from experiments.framework.config import NormalInit
from experiments.framework.errors import ConfigError
from experiments.framework.errors import did_you_mean
from experiments.framework.errors import listed
from experiments.framework.errors import shown
from experiments.framework.json_files import read_json
from experiments.framework.registry import METHODS
from experiments.framework.registry import Parameters
from experiments.framework.registry import TARGETS

__all__ = [
  'Gates',
  'Panel',
  'PanelConfig',
  'digest',
  'find_label',
  'load_panel',
]


class Gates(Parameters):
  """What a run must pass, fixed before any run."""

  version: int = Field(ge=1)
  max_rhat: float = Field(gt=1, description='largest rank-normalised R-hat')
  min_ess: float = Field(gt=0, description='smallest ESS, all chains together')
  max_abs_z: float = Field(gt=0, description='largest error, standard errors')


class PanelConfig(Parameters):
  """Targets and methods, each with each, under one budget."""

  name: str = Field(pattern=NAME_PATTERN, max_length=MAX_NAME)
  description: str = ''
  gates: str = Field(description='YAML file, relative to this one')
  references: str = Field(
    description='folder of reference moments, relative to this file'
  )
  edition: int = Field(1, ge=1, description='raise it to run all cells anew')
  editions_of_method: dict[str, Annotated[int, Field(ge=1)]] = Field(
    default={},
    description='label: edition, raised where that sampler alone has changed',
  )
  editions_of_target: dict[str, Annotated[int, Field(ge=1)]] = Field(
    default={},
    description='label: edition, raised where that density is written anew',
  )
  targets: list[TARGETS.union()] = Field(min_length=1)
  methods: list[METHODS.union()] = Field(min_length=1)
  num_seeds: int = Field(10, ge=1, le=10**4)
  num_chains: int = Field(ge=1, le=MAX_CHAINS)
  gradients_per_chain: int = Field(
    ge=100,
    le=10**9,
    description='of a whole run, Hessian-vector products among them',
  )
  gradients_of_target: dict[str, Annotated[int, Field(ge=100)]] = Field(
    default={},
    description='label: gradients_per_chain, where that would take too long',
  )
  adaptation_share: float = Field(0.5, gt=0, lt=1)
  max_draws: int = Field(
    ge=100, description='recorded of one chain; more steps are thinned'
  )
  seconds_per_pair: float = Field(
    gt=0, description='for all seeds of one method on one target'
  )
  seed: int = Field(0, ge=0)
  init: Init = NormalInit()
  float64_targets: list[str] = Field(
    default=[], description='labels; all others are sampled in float32'
  )
  targets_without_xla: list[str] = Field(
    default=[], description='labels; compiled by tf.function alone'
  )

  def target_label(self, index):
    """Returns the target's name, with the arguments that were given."""
    target = self.targets[index]
    given = sorted(target.model_fields_set - {'name'})
    return '_'.join([target.name, *(str(getattr(target, k)) for k in given)])

  def method_label(self, index):
    method = self.methods[index]
    return method.label or method.default_label()

  def target_labels(self):
    return [self.target_label(i) for i in range(len(self.targets))]

  def method_labels(self):
    return [self.method_label(i) for i in range(len(self.methods))]


def _options(model):
  """Returns what is set of a model: a new option changes no old record."""
  return model.model_dump(mode='json', exclude_none=True)


class Panel(NamedTuple):
  """A checked config with its gates."""

  config: PanelConfig
  gates: Gates
  # Folder of the references.
  reference_dir: pathlib.Path

  @property
  def gates_digest(self):
    return digest(self.gates.model_dump(mode='json'))

  def key(self, target_index, method_index):
    """Returns what a cell's record must agree in to be kept."""
    config = self.config
    shared = ('num_chains', 'adaptation_share', 'max_draws', 'seed')
    return digest(
      {
        **{name: getattr(config, name) for name in shared},
        'gradients_per_chain': self.budget(target_index).gradients_per_chain,
        'init': config.init.model_dump(mode='json'),
        'edition': config.edition,
        'target': _options(config.targets[target_index]),
        'dtype': self.dtype(target_index),
        'method': _options(config.methods[method_index]),
        'gates': self.gates_digest,
        **({} if self.is_jit_compiled(target_index) else {'xla': False}),
        **self._editions(target_index, method_index),
        'library': tfpa.__version__,
        'reference': self._reference(target_index),
      }
    )

  def _editions(self, target_index, method_index):
    """Returns those of target and method, where they are not the first."""
    config = self.config
    target = config.editions_of_target.get(config.target_label(target_index))
    method = config.editions_of_method.get(config.method_label(method_index))
    found = {'edition_of_target': target, 'edition_of_method': method}
    return {
      name: value for name, value in found.items() if value not in (None, 1)
    }

  def reference_path(self, target_index):
    label = self.config.target_label(target_index)
    return self.reference_dir / f'{label}.json'

  def _reference(self, target_index):
    path = self.reference_path(target_index)
    if not path.is_file():
      return None
    return digest(read_json(path))

  def dtype(self, target_index):
    label = self.config.target_label(target_index)
    return 'float64' if label in self.config.float64_targets else 'float32'

  def is_jit_compiled(self, target_index):
    """Returns whether TensorFlow's samplers are compiled by XLA there."""
    label = self.config.target_label(target_index)
    return label not in self.config.targets_without_xla

  def budget(self, target_index):
    """Returns the `PanelConfig` with the gradients of that target."""
    label = self.config.target_label(target_index)
    found = self.config.gradients_of_target.get(label)
    if found is None:
      return self.config
    return self.config.model_copy(update={'gradients_per_chain': found})

  def pair_config(self, target_index, method_index, counts=None):
    """Returns the `Config` of one target and one method.

    Args:
      target_index: in the panel.
      method_index: in the panel.
      counts: (num_adaptation_steps, num_results, steps of a result), or None:
        not yet known.
    """
    config = self.config
    num_adaptation_steps, num_results, thinning = counts or (100, 100, 1)
    return Config(
      name=config.name,
      target=config.targets[target_index],
      methods=[config.methods[method_index]],
      num_chains=config.num_chains,
      num_adaptation_steps=num_adaptation_steps,
      num_results=num_results,
      num_steps_between_results=thinning - 1,
      num_repeats=config.num_seeds,
      seed=config.seed,
      init=config.init,
      dtype=self.dtype(target_index),
      jit_compile=self.is_jit_compiled(target_index),
    )


def digest(values):
  """Returns 16 hexadecimal digits of anything JSON can hold."""
  text = json.dumps(values, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_panel(path, overrides=()):
  """Returns the checked `Panel` of a YAML file.

  Args:
    path: of the file; its gates lie beside it.
    overrides: 'dotted.key=value' strings.

  Raises:
    ConfigError: whatever is wrong with either file.
  """
  values = expand_methods(yaml_files.load(path, overrides))
  explain.check_names(values)
  config = explain.checked(PanelConfig, values)
  _check(config)
  folder = pathlib.Path(path).resolve().parent
  gates = explain.checked(Gates, yaml_files.load(folder / config.gates))
  return Panel(config, gates, (folder / config.references).resolve())


def _check(config):
  """Refuses labels that are twice or nowhere, and a second budget."""
  _check_labels('targets', config.target_labels())
  _check_labels('methods', config.method_labels())
  for key in (
    'float64_targets',
    'targets_without_xla',
    'gradients_of_target',
    'editions_of_target',
  ):
    for label in getattr(config, key):
      find_label(key, label, config.target_labels())
  for label in config.editions_of_method:
    find_label('editions_of_method', label, config.method_labels())
  for index, method in enumerate(config.methods):
    for name in ('num_adaptation_steps', 'num_results'):
      if getattr(method, name) is not None:
        raise ConfigError(
          f'methods.{index}.{name}: {getattr(method, name)} was given, but a '
          'panel has one budget for all methods, gradients_per_chain; leave '
          'it out.'
        )


def find_label(key, label, labels):
  """Returns the label's index; refuses one that is not there."""
  if label not in labels:
    raise ConfigError(
      f'{key}: {shown(label)}{did_you_mean(label, labels)}; allowed are '
      f'{listed(labels)}.'
    )
  return labels.index(label)


def _check_labels(key, labels):
  repeated = sorted({label for label in labels if labels.count(label) > 1})
  if repeated:
    raise ConfigError(
      f'{key}: {shown(repeated[0])} is there {labels.count(repeated[0])} '
      'times; leave one out, or give each its own label.'
    )
