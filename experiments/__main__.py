"""Entry point of `python -m experiments`: the commands of all folders.

TensorFlow is imported inside the commands. Help texts and refusals of wrong
options therefore appear at once.
"""

import typer

from experiments.data.cli import data
from experiments.run import cli

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
):
  app.command(_name)(_command)

if __name__ == '__main__':
  app(prog_name='python -m experiments')
