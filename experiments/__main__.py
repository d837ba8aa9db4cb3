"""Entry point of `python -m experiments`: the commands of all rooms.

TensorFlow is imported inside the commands: help and mistakes in the command
line answer at once.
"""

import pathlib
from typing import Annotated
from typing import Optional

import typer

from experiments.calibration.cli import calibrate
from experiments.data.cli import data
from experiments.framework import choices
from experiments.framework import cli
from experiments.framework import errors
from experiments.panel import cli as panel_cli
from experiments.posteriordb import cli as posteriordb_cli
from experiments.quickstart.cli import quickstart
from experiments.rivals import cli as rivals_cli
from experiments.studies import cli as studies_cli

__all__ = ['app']

OnlyTarget = Annotated[
  Optional[list[str]],
  typer.Option(help='Panels: run these targets only; * is allowed.'),
]
OnlyMethod = Annotated[
  Optional[list[str]],
  typer.Option(help='Panels: run these methods only; * is allowed.'),
]
Redo = Annotated[
  Optional[list[str]],
  typer.Option(help="Panels: run cells of a status again: 'out of time' ..."),
]


_OF_PANELS = 'is of panels alone; leave it out, of methods change the config'
_NOT_OF_PANELS = (
  'is not of panels: they go on by themselves, and a few steps are '
  '--set gradients_per_chain=1000 with an --output of their own'
)


def _refuse(why, options):
  """Refuses options that were given and would be passed over."""
  for name, value in options.items():
    if value:
      raise errors.ConfigError(f'{name} {why}.')


def run(
  config: Annotated[pathlib.Path, typer.Argument(help='YAML file.')],
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
  only_target: OnlyTarget = None,
  only_method: OnlyMethod = None,
  redo: Redo = None,
  shard: cli.Shard = None,
  executor: cli.Executor = 'local',
  address: cli.Address = None,
):
  """Run a config and write its own folder of results."""
  choice = choices.Choice(shard, executor, address, device)
  with cli.refusing():
    if panel_cli.is_panel(config):
      _refuse(_NOT_OF_PANELS, {'--smoke': smoke, '--resume': resume})
      lost = panel_cli.run_config(
        config,
        set_ or (),
        output,
        data_dir,
        only_target or (),
        only_method or (),
        redo or (),
        choice,
      )
      raise typer.Exit(1 if lost else 0)
    only = {'--only-target': only_target, '--only-method': only_method}
    _refuse(_OF_PANELS, only | {'--redo': redo})
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
app.add_typer(panel_cli.app, name='panel')
app.add_typer(posteriordb_cli.app, name='posteriordb')
app.add_typer(rivals_cli.app, name='rivals')
app.add_typer(studies_cli.surrogate, name='surrogate')
for _name, _command in (
  ('calibrate', calibrate),
  ('quickstart', quickstart),
  ('run', run),
  ('data', data),
  ('list', cli.list_),
  ('report', cli.report),
  ('bench', studies_cli.bench),
  ('schema', cli.schema),
  ('oracle', studies_cli.oracle),
):
  app.command(_name)(_command)

if __name__ == '__main__':
  app(prog_name='python -m experiments')
