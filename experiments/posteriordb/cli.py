"""The commands `posteriordb run` and `posteriordb list`."""

import pathlib
from typing import Annotated
from typing import Optional

import typer
import typer.core

from experiments.data import datasets
from experiments.framework import cli

__all__ = ['app']

_MANY = ('--names', '--seeds', '--samplers')


class _ManyValues(typer.core.TyperCommand):
  """A command that takes `--seeds 0 1` for `--seeds 0 --seeds 1`."""

  def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
    return super().parse_args(ctx, _repeated(args))


def _repeated(args):
  """Returns arguments with the option before each of its values."""
  found, option, is_first = [], None, False
  for arg in args:
    if arg.startswith('--'):
      option, is_first = (arg if arg in _MANY else None), True
    elif option and not is_first:
      found.append(option)
    else:
      is_first = False
    found.append(arg)
  return found


app = typer.Typer(
  help='Sample posteriors of posteriordb and compare with its reference.',
  no_args_is_help=True,
)
Folder = Annotated[
  Optional[pathlib.Path],
  typer.Option(
    '--data',
    help='Folder with the files of posteriordb, else TFP_ADAPTIVE_DATA_DIR/'
    'posteriordb, else ./data/posteriordb.',
  ),
]


@app.command('run', cls=_ManyValues)
def run(
  output: Annotated[
    pathlib.Path, typer.Option(help='Records, one JSON line for each run.')
  ],
  names: Annotated[
    Optional[list[str]],
    typer.Option(metavar='NAME...', help='Posteriors; * stands for any text.'),
  ] = None,
  samplers: Annotated[
    Optional[list[str]],
    typer.Option(
      metavar='NAME...', help='sample_posterior (default), Stan, nutpie.'
    ),
  ] = None,
  seeds: Annotated[
    Optional[list[int]],
    typer.Option(metavar='SEED...', min=0, help='Default: 0.'),
  ] = None,
  dtype: Annotated[
    str, typer.Option(help='float32 or float64; Stan has float64 alone.')
  ] = 'float32',
  data: Folder = None,
  python: Annotated[
    Optional[str], typer.Option(help='Interpreter of Stan and nutpie.')
  ] = None,
  max_seconds: Annotated[
    float, typer.Option(min=1.0, help='Wall seconds of one run.')
  ] = 3600.0,
):
  """Run what the file of records lacks, seed by seed."""
  if dtype not in ('float32', 'float64'):
    raise typer.BadParameter(
      f'--dtype is float32 or float64, but got {dtype!r}.'
    )
  with cli.refusing():
    from experiments.posteriordb import registry
    from experiments.posteriordb import run as run_lib

    tasks = _tasks(
      cli.matching(registry.NAMES, names),
      cli.matching(run_lib.SAMPLERS, samplers or [run_lib.HERE]),
      seeds or [0],
      dtype,
    )
    _run_missing(tasks, output, _folder(data), python, max_seconds)


@app.command('list')
def list_(data: Folder = None):
  """List the posteriors."""
  from experiments.posteriordb import registry

  for name in registry.NAMES:
    cli.console.print(name, highlight=False)
  cli.console.print(f'Data folder: {_folder(data)}', soft_wrap=True)


def _run_missing(tasks, output, folder, python, max_seconds):
  """Runs the tasks that a file has no finished record of."""
  from experiments.framework import json_files
  from experiments.posteriordb import run as run_lib

  done = {
    run_lib.key(record)
    for record in json_files.read_lines(output)
    if record['status'] == 'finished'
  }
  for task in tasks:
    if task in done:
      continue
    record = run_lib.run(task, folder, python, max_seconds)
    json_files.append_lines(output, record)
    cli.console.print(_line(record), soft_wrap=True, highlight=False)


def _folder(data):
  # Processes run elsewhere: a relative path would be another one there.
  return (data or datasets.folder() / 'posteriordb').resolve()


def _tasks(names, samplers, seeds, dtype):
  """Returns all tasks, seed by seed; Stan programs are in float64."""
  from experiments.posteriordb import run as run_lib

  return [
    run_lib.Task(
      name, sampler, seed, dtype if sampler == run_lib.HERE else 'float64'
    )
    for seed in seeds
    for name in names
    for sampler in samplers
  ]


def _line(record):
  """Returns a run in one line."""
  head = f'{record["name"]}, {record["sampler"]}, seed {record["seed"]}: '
  if record['status'] != 'finished':
    return head + record['status']
  word = 'converged' if record['converged'] else 'NOT CONVERGED'
  name, z = max(
    (record['worst_z_of_means'], record['worst_z_of_squares']),
    key=lambda pair: abs(pair[1]),
  )
  return head + (
    f'{word}, {record.get("structure", "NUTS")}, worst z {z:.1f} ({name}), '
    f'{record["gradients"]:,.0f} gradients, {record["cpu_seconds"]:.1f} CPU s, '
    f'{record["peak_bytes"] / 2**20:,.0f} MiB'
  )
