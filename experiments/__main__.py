"""Entry point of `python -m experiments`: the commands of all rooms.

TensorFlow is imported inside the commands: help and mistakes in the command
line answer at once.
"""

import typer

from experiments.calibration.cli import calibrate
from experiments.framework.data_cli import data
from experiments.fuzz.cli import fuzz
from experiments.posteriordb import cli as posteriordb_cli
from experiments.quickstart.cli import quickstart
from experiments.rivals import cli as rivals_cli
from experiments.run import cli

__all__ = ['app']

app = typer.Typer(
  help='Run and report the experiments of tfp_adaptive.',
  no_args_is_help=True,
  add_completion=False,
  pretty_exceptions_show_locals=False,
)
for _name, _command in (
  ('run', cli.run),
  ('list', cli.list_),
  ('report', cli.report),
  ('data', data),
  # Until these rooms are studies of the engine.
  ('calibrate', calibrate),
  ('fuzz', fuzz),
  ('quickstart', quickstart),
):
  app.command(_name)(_command)
app.add_typer(posteriordb_cli.app, name='posteriordb')
app.add_typer(rivals_cli.app, name='rivals')

if __name__ == '__main__':
  app(prog_name='python -m experiments')
