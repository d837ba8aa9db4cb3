"""A config as a study: builds it, runs it, and writes its tables."""

import functools
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from experiments.papers import cell
from experiments.papers import config as configs
from experiments.papers import figures
from experiments.papers import tables
from experiments.papers.config import Config
from experiments.papers.measurements import step_counts
from experiments.papers.starts import make_starts
from experiments.run import store
from experiments.run.errors import ConfigError
from experiments.run.errors import DataError
from experiments.run.errors import shortened
from experiments.run.study import Result
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.samplers.base import BuildOptions
from experiments.samplers.base import Method
from experiments.targets.base import BuildContext
from experiments.targets.base import Target

# Most numbers in the states of all chains; memory cannot hold more.
_MAX_STATES = 10**9
_MAX_REASON = 500
# Keys of a config that do not change what a method draws and keeps.
_FREE = {
  'block_size',
  'description',
  'diagonal_image_shape',
  'methods',
  'name',
  'num_repeats',
}


class Plan(NamedTuple):
  """A config with its target and methods, all of them checked and built."""

  config: Config
  target: Target
  methods: list[Method]


def load(path, overrides: Sequence[str] = (), is_smoke: bool = False) -> Study:
  """Returns the study of a config; its methods are cases, its repeats seeds.

  Args:
    is_smoke: Whether the run should take seconds only.

  Raises:
    ConfigError: If anything is wrong with the config.
  """
  config = configs.load_config(path, overrides)
  return study(configs.smoke(config, overrides) if is_smoke else config)


def study(config: Config) -> Study:
  """Returns the study of a checked config."""

  # All cells of a process share the built methods and their compilations.
  @functools.cache
  def plan(data_dir):
    return make_plan(config, data_dir)

  def run(index: int, seed: int, work: Work) -> Result:
    built = plan(work.data_dir)
    method = built.methods[index]
    # Only `tfpa.sample` writes checkpoints.
    checkpoints = work.checkpoints if method.sample_fn is None else None
    found = cell.run_cell(
      config, index, method, built.target, seed, checkpoints, work.progress
    )
    return Result(found.record, found.arrays, found.tree())

  def finish(folder, records: list[store.Record], work: Work) -> None:
    store.write_text(folder / 'report.md', render(records))
    target = _build_target(config, work.data_dir)
    figures.draw_all(folder, records, config, target)

  def render(records: list[store.Record]) -> str:
    return tables.to_markdown(config.name, records)

  return Study(
    cases=lambda settings: {
      label: index for index, label in enumerate(config.labels())
    },
    run=run,
    seeds=tuple(range(config.num_repeats)),
    process='run',
    prepare=lambda work: plan(work.data_dir),
    case_key=functools.partial(_key, config),
    render=render,
    finish=finish,
  )


def _key(config: Config, index: int) -> Mapping[str, Any]:
  """Returns the settings that decide and store the draws of a method."""
  values = config.model_dump(mode='json', exclude_none=True)
  method = values['methods'][index]
  shared = {key: value for key, value in values.items() if key not in _FREE}
  return {**shared, 'method': {**method, 'label': config.label(index)}}


def make_plan(config: Config, data_dir=None) -> Plan:
  """Builds the target and every method.

  Raises:
    ConfigError: If a combination cannot work; names the key to change.
    DataError: If the data set cannot be found or read.
  """
  target = _build_target(config, data_dir)
  if config.num_chains * target.event_size > _MAX_STATES:
    raise ConfigError(
      f'num_chains: {config.num_chains} chains of {target.event_size} '
      f'coordinates were asked for, but {_MAX_STATES} numbers are allowed in '
      'all. Write fewer chains.'
    )
  _check_image(config.diagonal_image_shape, target.event_size)
  make_starts(config, target, repeat=0)
  methods = [
    _build_method(config, index, target) for index in range(len(config.methods))
  ]
  return Plan(config, target, methods)


def _build_target(config, data_dir):
  context = BuildContext(config.dtype, data_dir and str(data_dir))
  try:
    return config.target.build(context)
  except DataError:
    raise
  except ValueError as error:
    raise ConfigError(shortened(error, _MAX_REASON)) from error


def _check_image(shape, event_size):
  """Refuses an image that the diagonal of a stored factor does not fill."""
  if not shape:
    return
  if event_size > cell.MAX_STORED_FACTOR:
    raise ConfigError(
      f'diagonal_image_shape: {shape} was given, but factors of more than '
      f'{cell.MAX_STORED_FACTOR} coordinates are not stored. Leave it out.'
    )
  if min(shape) < 1 or math.prod(shape) > event_size:
    raise ConfigError(
      f'diagonal_image_shape: {shape} was given, but it takes two positive '
      f'ints whose product is at most the {event_size} coordinates.'
    )


def _build_method(config, index, target):
  num_adaptation_steps, _ = step_counts(config, index)
  options = BuildOptions(
    num_adaptation_steps=num_adaptation_steps,
    num_chains=config.num_chains,
    jit_compile=config.jit_compile,
    trace_diagonal=config.trace_diagonal,
  )
  where = f'methods.{index} ({config.methods[index].name})'
  try:
    config.methods[index].check_target(target)
    method = config.methods[index].build(target, options)
  except (ValueError, TypeError, NotImplementedError) as error:
    raise ConfigError(f'{where}: {shortened(error, _MAX_REASON)}') from error
  _check_options(config, where, method)
  return method


def _check_options(config, where, method):
  """Refuses options that a method without a kernel does not take."""
  if method.kernel is not None:
    return
  if config.num_steps_between_results:
    raise ConfigError(
      f'{where}: the method does not thin, but num_steps_between_results is '
      f'{config.num_steps_between_results}. Write 0, or leave the method out.'
    )
  if not config.discard_adaptation:
    raise ConfigError(
      f'{where}: the method does not record the states of all steps, but '
      'discard_adaptation is false. Write true, or leave the method out.'
    )
