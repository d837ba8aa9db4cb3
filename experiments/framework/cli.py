"""Commands of runs, and what the commands of all rooms share.

TensorFlow is imported inside the commands: help and mistakes in the command
line answer at once.
"""

import contextlib
import fnmatch
import json
import os
import pathlib
from typing import Annotated
from typing import Optional

import rich.console
import typer

from experiments.framework import choices
from experiments.framework import executors
from experiments.framework import outputs
from experiments.framework import tensorflow_import
from experiments.framework.errors import ConfigError
from experiments.framework.errors import DataError
from experiments.framework.errors import DeviceError
from experiments.framework.errors import StorageError
from experiments.framework.labels import in_markdown

__all__ = [
  'Address',
  'DataDir',
  'Device',
  'Executor',
  'OutputFile',
  'Shard',
  'console',
  'list_',
  'matching',
  'refusing',
  'report',
  'run_config',
  'schema',
]

CONFIG_DIR = pathlib.Path(__file__).resolve().parents[2] / 'configs'

# Paths and labels are printed as they are: [b] and :smile: mean nothing.
console = rich.console.Console(
  width=None if os.isatty(1) else 160, markup=False, emoji=False
)
errors = rich.console.Console(
  stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False
)

DataDir = Annotated[
  Optional[pathlib.Path],
  typer.Option(
    help='Folder of data sets, else TFP_ADAPTIVE_DATA_DIR, else ./data.'
  ),
]
Device = Annotated[
  Optional[str], typer.Option(help='cpu, gpu or tpu; default: what is found.')
]
Shard = Annotated[
  Optional[str],
  typer.Option(
    metavar='i/n',
    help='Every n-th cell from the i-th on, i from 0; --output is shared.',
  ),
]
Executor = Annotated[
  str, typer.Option(help='Who runs the cells: local, or ray: a cluster.')
]
Address = Annotated[
  Optional[str], typer.Option(help='HOST:PORT of the Ray cluster.')
]
OutputFile = Annotated[
  Optional[pathlib.Path],
  typer.Option(help='File; default: print.', callback=outputs.file_option),
]


@contextlib.contextmanager
def refusing():
  """Ends the command by a message where what the user gave is refused."""
  tensorflow_import.quietly()
  try:
    yield
  except (ConfigError, DataError, DeviceError, StorageError) as error:
    errors.print(str(error), style='red')
    raise typer.Exit(2) from None


def run_config(config, overrides, smoke, resume, data_dir, output, choice):
  """Runs the methods of a config, shows the tables, returns the records.

  Args:
    config: path of the YAML file.
    overrides: of `--set`, or None.
    smoke: whether a few steps are enough.
    resume: whether to go on with a run.
    data_dir: folder of local data sets, or None.
    output: folder of the results, or None.
    choice: the `choices.Choice`.
  """
  from experiments.framework import config as configs
  from experiments.framework import devices
  from experiments.framework import runner
  from experiments.framework import storage

  shard = choice.check(output)
  checked = configs.load_config(config, overrides or ())
  checked = configs.smoke(checked) if smoke else checked
  with devices.on_device(choice.device_here()), contextlib.ExitStack() as held:
    plan = runner.make_plan(checked, data_dir and str(data_dir))
    name = runner.newest_output if resume else runner.default_output
    path = output or name(checked)
    executor = choices.choose(choice, console, path)
    if shard is None:
      folder = storage.run_folder(path, checked, resume)
      folder = held.enter_context(folder)
    else:
      folder = storage.shared_folder(path, checked, shard)
      folder, division = held.enter_context(folder)
      executor = executors.Shared(division)
    records = runner.run_plan(plan, folder, console, executor=executor)
  _show(checked.name, folder, records)
  return records


def _show(name, folder, records):
  """Prints the tables of a run, what it lacks, and where it lies."""
  from experiments.framework import moments
  from experiments.framework import storage
  from experiments.framework import tables

  shown = [tables.to_rich(name, tables.join(records))]
  shown.append(moments.to_rich(records))
  for table in filter(None, shown):
    console.print(table, '', sep='\n')
  missing = storage.told_missing(folder)
  if missing:
    console.print(missing, highlight=False)
  else:
    file = folder.path / 'report.md'
    console.print(f'All columns: {file}', soft_wrap=True, highlight=False)
  console.print(f'Results: {folder.path}', soft_wrap=True, highlight=False)


def list_():
  """List configs, targets and methods."""
  tensorflow_import.quietly()
  from experiments.framework import config as configs
  from experiments.framework import yaml_files

  console.print('Configs', style='bold')
  for path in sorted(CONFIG_DIR.rglob('*.yaml')):
    values = yaml_files.load(path)
    if 'methods' in values:
      _entry(os.path.relpath(path), values.get('description', ''))
  for registry in (configs.TARGETS, configs.METHODS):
    console.print(f'{registry.kind.capitalize()}s', style='bold')
    for name in registry.names():
      parameters = [
        key if field.is_required() else f'{key}={field.default!r}'
        for key, field in registry.parameters(name).items()
      ]
      _entry(f'{name}({", ".join(parameters)})', registry.summary(name))


def _entry(name, text):
  line = f'  {name}\n      {" ".join(text.split())}'
  console.print(line, highlight=False)


def report(
  results: Annotated[
    list[pathlib.Path], typer.Argument(help='Folders of runs.')
  ],
  html: Annotated[bool, typer.Option(help='HTML instead of Markdown.')] = False,
  output: OutputFile = None,
):
  """Join runs into one table in the layout of the papers."""
  tensorflow_import.quietly()
  from experiments.framework import moments
  from experiments.framework import storage
  from experiments.framework import tables

  with refusing():
    joined = storage.join_runs(results)
    missing = [storage.told_missing(storage.RunFolder(p)) for p in results]
  if html:
    text = tables.to_html(
      [(name, tables.join(records)) for name, records in joined.items()]
    )
  else:
    text = '\n'.join(
      tables.to_markdown(name, tables.join(records))
      + moments.to_markdown(records)
      for name, records in joined.items()
    )
    text += ''.join(f'\n{in_markdown(line)}\n' for line in missing if line)
  for line in filter(None, missing):
    errors.print(line, style='yellow')
  if output is None:
    typer.echo(text)
  else:
    output.write_text(text, encoding='utf-8')
    console.print(f'Report: {output}', soft_wrap=True)


def schema(
  output: OutputFile = None,
):
  """Write the JSON schema of the configs, for editors."""
  tensorflow_import.quietly()
  from experiments.framework import config as configs

  text = json.dumps(configs.json_schema(), indent=2) + '\n'
  if output is None:
    typer.echo(text)
  else:
    output.write_text(text, encoding='utf-8')


def matching(names, patterns):
  """Returns the names that match a pattern; all names without a pattern."""
  if not patterns:
    return list(names)
  for pattern in patterns:
    if not fnmatch.filter(names, pattern):
      raise ConfigError(
        f'{pattern!r} is none of {", ".join(names)}; `*` stands for any text.'
      )
  return [
    name
    for name in names
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
  ]
