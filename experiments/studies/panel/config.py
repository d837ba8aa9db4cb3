"""The config of a panel: targets, methods, one budget, and checks of runs.

Everything that decides the numbers of a case is part of its key, so that
records of other settings count as missing.
"""

import json
import pathlib
from typing import Annotated
from typing import Any
from typing import NamedTuple

from pydantic import Field

import tfp_adaptive as tfpa
from experiments.papers.config import Config
from experiments.papers.config import expand_methods
from experiments.papers.config import Init
from experiments.papers.config import MAX_CHAINS
from experiments.papers.config import MAX_NAME
from experiments.papers.config import NAME_PATTERN
from experiments.run import find
from experiments.run import yaml_files
from experiments.run.errors import ConfigError
from experiments.run.errors import did_you_mean
from experiments.run.errors import listed
from experiments.run.errors import shortened
from experiments.run.errors import shown
from experiments.run.store import digest
from experiments.studies.panel import truth as truths
from experiments.targets import registry
from experiments.targets.base import BuildContext
from experiments.targets.base import Target
from experiments.targets.registry import METHODS
from experiments.targets.registry import Parameters
from experiments.targets.registry import TARGETS

# The committed panel.
DEFAULT = find.ROOT / 'configs' / 'inference_gym' / 'panel.yaml'


class Gates(Parameters):
  """The checks that a run must pass, fixed before any run."""

  version: int = Field(ge=1)
  max_rhat: float = Field(gt=1, description='largest rank-normalized R-hat')
  min_ess: float = Field(gt=0, description='smallest ESS, all chains together')
  max_abs_z: float = Field(gt=0, description='largest error, standard errors')


class PanelConfig(Parameters):
  """Targets and methods in all combinations, under one budget."""

  name: str = Field(pattern=NAME_PATTERN, max_length=MAX_NAME)
  description: str = ''
  gates: str = Field(description='YAML file of checks, relative to this file')
  references: str = Field(
    description='folder of reference moments, relative to this file'
  )
  edition: int = Field(1, ge=1, description='raise it to run all cells again')
  targets: list[TARGETS.union()] = Field(min_length=1)
  methods: list[METHODS.union()] = Field(min_length=1)
  num_seeds: int = Field(10, ge=1, le=10**4)
  num_chains: int = Field(ge=1, le=MAX_CHAINS)
  gradients_per_chain: int = Field(
    ge=100,
    le=10**9,
    description='gradients of a whole run, Hessian-vector products included',
  )
  gradients_of_target: dict[str, Annotated[int, Field(ge=100)]] = Field(
    default={},
    description='label: gradients_per_chain of a slow target',
  )
  adaptation_share: float = Field(0.5, gt=0, lt=1)
  max_draws: int = Field(
    ge=100,
    description='draws of one chain that are recorded; others are thinned',
  )
  seconds_per_pair: float = Field(
    gt=0, description='time for all seeds of one method on one target'
  )
  seed: int = Field(0, ge=0)
  init: Init = Init()
  float64_targets: list[str] = Field(
    default=[],
    description='labels of targets in float64; others are in float32',
  )
  targets_without_xla: list[str] = Field(
    default=[], description='labels of targets that only tf.function compiles'
  )


class Panel(NamedTuple):
  """A checked config with its checks; targets and methods by label."""

  config: PanelConfig
  gates: Gates
  # Folder of the references.
  reference_dir: pathlib.Path
  # {label: parameters}.
  targets: dict[str, Any]
  methods: dict[str, Any]

  @property
  def gates_digest(self) -> str:
    return digest(self.gates.model_dump(mode='json'))

  def key(self, target: str, method: str) -> str:
    """Returns the digest of everything that decides the numbers of a case."""
    config = self.config
    shared = ('num_chains', 'adaptation_share', 'max_draws', 'seed')
    reference = self.reference(target)
    return digest(
      {
        **{name: getattr(config, name) for name in shared},
        'gradients_per_chain': self.budget(target).gradients_per_chain,
        'init': config.init.model_dump(mode='json'),
        'edition': config.edition,
        # Unset values are left out, so that a new option changes no old key.
        'target': self.targets[target].model_dump(
          mode='json', exclude_none=True
        ),
        'dtype': self.dtype(target),
        'method': self.methods[method].model_dump(
          mode='json', exclude_none=True
        ),
        'gates': self.gates_digest,
        **({} if self.is_jit_compiled(target) else {'xla': False}),
        'library': tfpa.__version__,
        'reference': None if reference is None else digest(reference),
      }
    )

  def reference(self, target: str) -> dict | None:
    """Returns the reference moments of a target, or None without any."""
    path = self.reference_dir / f'{target}.json'
    if not path.is_file():
      return None
    try:
      return json.loads(path.read_text(encoding='utf-8'))
    # Wrong text, numbers of 5000 digits, or values that nest too deeply.
    except (OSError, ValueError, RecursionError) as error:
      raise ConfigError(
        f'{shortened(path, 160)} cannot be read as JSON '
        f'({type(error).__name__}: {shortened(error)}); restore the file.'
      ) from error

  def dtype(self, target: str) -> str:
    return 'float64' if target in self.config.float64_targets else 'float32'

  def is_jit_compiled(self, target: str) -> bool:
    """Returns whether XLA compiles TensorFlow's samplers for that target."""
    return target not in self.config.targets_without_xla

  def budget(self, target: str) -> PanelConfig:
    """Returns the config with the gradients of that target."""
    found = self.config.gradients_of_target.get(target)
    if found is None:
      return self.config
    return self.config.model_copy(update={'gradients_per_chain': found})

  def pair_config(
    self,
    target: str,
    method: str,
    num_adaptation_steps: int = 100,
    num_results: int = 100,
    thinning: int = 1,
  ) -> Config:
    """Returns the `Config` of one target and one method."""
    config = self.config
    return Config(
      name=config.name,
      target=self.targets[target],
      methods=[self.methods[method]],
      num_chains=config.num_chains,
      num_adaptation_steps=num_adaptation_steps,
      num_results=num_results,
      num_steps_between_results=thinning - 1,
      num_repeats=config.num_seeds,
      seed=config.seed,
      init=config.init,
      dtype=self.dtype(target),
      jit_compile=self.is_jit_compiled(target),
    )

  def problem(
    self, target: str, data_dir: Any = None
  ) -> tuple[Target, truths.Truth | None]:
    """Returns a target and its truth.

    Args:
      data_dir: Folder of local data sets, or `None` for the default.
    """
    _check_label('target', target, self.targets)
    context = BuildContext(self.dtype(target), data_dir and str(data_dir))
    built = self.targets[target].build(context)
    return built, truths.load_truth(built, target, self.reference(target))


def load_panel(path, overrides=()) -> Panel:
  """Returns the checked `Panel` of a YAML file.

  Args:
    path: Path of the YAML file. The file of its checks is in the same folder.

  Raises:
    ConfigError: If anything is wrong with either file.
  """
  values = expand_methods(yaml_files.load(path, overrides))
  registry.check_names(values)
  config = registry.checked(PanelConfig, values)
  targets = _by_label('targets', config.targets, _target_label)
  methods = _by_label('methods', config.methods, lambda m: m.row_label())
  _check(config, targets)
  folder = pathlib.Path(path).resolve().parent
  gates = registry.checked(Gates, yaml_files.load(folder / config.gates))
  references = (folder / config.references).resolve()
  return Panel(config, gates, references, targets, methods)


def _target_label(target):
  """Returns the target's name, with the arguments that were given."""
  given = sorted(target.model_fields_set - {'name'})
  return '_'.join([target.name, *(str(getattr(target, k)) for k in given)])


def _by_label(key, entries, label_of):
  """Returns {label: entry}; refuses a repeated label."""
  labels = list(map(label_of, entries))
  repeated = sorted({label for label in labels if labels.count(label) > 1})
  if repeated:
    raise ConfigError(
      f'{key}: {shown(repeated[0])} is there {labels.count(repeated[0])} '
      'times. Leave one of them out, or give each its own label.'
    )
  return dict(zip(labels, entries, strict=True))


def _check(config, targets):
  """Refuses labels that do not exist, and a second budget."""
  for key in ('float64_targets', 'targets_without_xla', 'gradients_of_target'):
    for label in getattr(config, key):
      _check_label(key, label, targets)
  for index, method in enumerate(config.methods):
    for name in ('num_adaptation_steps', 'num_results'):
      if getattr(method, name) is not None:
        raise ConfigError(
          f'methods.{index}.{name}: {getattr(method, name)} was given, but a '
          'panel has one budget for all methods, gradients_per_chain. Leave '
          f'{name} out.'
        )


def _check_label(key, label, allowed):
  """Refuses a label that does not exist."""
  if label not in allowed:
    raise ConfigError(
      f'{key}: {shown(label)}{did_you_mean(label, allowed)}; allowed are '
      f'{listed(allowed)}.'
    )
