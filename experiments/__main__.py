"""Entry point of `python -m experiments`: the commands of all rooms.

TensorFlow is imported inside the commands: help and mistakes in the command
line answer at once.
"""

import pathlib
from typing import Annotated
from typing import Optional

import typer

from experiments.framework import choices
from experiments.framework import cli
from experiments.framework.data_cli import data
from experiments.fuzz.cli import fuzz
from experiments.run import cli as run_cli
from experiments.run import yaml_files
from experiments.studies import cli as studies_cli

__all__ = ['app']

Redo = Annotated[
  Optional[list[str]],
  typer.Option(help="Run cells of a status again: 'out of time' ..."),
]


def run(
  config: Annotated[
    pathlib.Path, typer.Argument(help='Name of a study, or YAML file.')
  ],
  set_: Annotated[
    Optional[list[str]],
    typer.Option('--set', metavar='KEY=VALUE', help='E.g. methods.0.name=am.'),
  ] = None,
  smoke: Annotated[bool, typer.Option(help='A few steps only.')] = False,
  resume: Annotated[
    bool,
    typer.Option(help='Continue --output, or the newest run of this config.'),
  ] = False,
  device: cli.Device = None,
  data_dir: cli.DataDir = None,
  output: Annotated[
    Optional[pathlib.Path], typer.Option(help='Folder of the results.')
  ] = None,
  redo: Redo = None,
  shard: cli.Shard = None,
  executor: cli.Executor = 'local',
  address: cli.Address = None,
  seeds: run_cli.Seeds = None,
  only: run_cli.Only = None,
  python: run_cli.Python = None,
):
  """Run a study, or a config and write its own folder of results."""
  with cli.refusing():
    is_panel = config.suffix == '.yaml' and 'targets' in yaml_files.load(config)
  if is_panel or config.suffix != '.yaml':
    run_cli.run(
      str(config),
      seeds,
      only,
      set_,
      output,
      redo,
      shard,
      executor,
      address,
      device,
      data_dir,
      python,
      smoke,
    )
    return
  choice = choices.Choice(shard, executor, address, device)
  with cli.refusing():
    records = cli.run_config(
      config, set_, smoke, resume, data_dir, output, choice
    )
  if any(record['status'] == 'failed' for record in records):
    raise typer.Exit(1)


app = typer.Typer(
  help='Run and report the experiments of tfp_adaptive.',
  no_args_is_help=True,
  add_completion=False,
  pretty_exceptions_show_locals=False,
)
app.add_typer(studies_cli.surrogate, name='surrogate')
for _name, _command in (
  ('fuzz', fuzz),
  ('run', run),
  ('data', data),
  ('list', run_cli.list_),
  ('report', cli.report),
  ('bench', studies_cli.bench),
  ('schema', cli.schema),
  ('oracle', studies_cli.oracle),
):
  app.command(_name)(_command)

if __name__ == '__main__':
  app(prog_name='python -m experiments')
