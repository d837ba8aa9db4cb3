"""The commands `rivals run` and `rivals report`."""

import fnmatch
import pathlib
from typing import Annotated
from typing import Optional

import typer

from experiments.framework import cli
from experiments.framework.errors import ConfigError

__all__ = ['app']

_FOLDER = pathlib.Path('docs/results/rivals')
app = typer.Typer(
  help='Compare with PyMC, nutpie, NumPyro, BlackJAX and TFP, model by model.',
  no_args_is_help=True,
)
_Names = Optional[list[str]]
Output = Annotated[
  pathlib.Path, typer.Option(help='Folder of the records, gone on with.')
]


@app.command('run')
def run(
  only_model: Annotated[_Names, typer.Option(help='* is allowed.')] = None,
  only_sampler: Annotated[_Names, typer.Option(help='* is allowed.')] = None,
  num_seeds: Annotated[int, typer.Option(min=1)] = 1,
  first_seed: Annotated[int, typer.Option(min=0)] = 0,
  python: Annotated[
    Optional[str], typer.Option(help="The others', of `make peers`.")
  ] = None,
  max_seconds: Annotated[float, typer.Option(help='Of a run.')] = 900.0,
  output: Output = _FOLDER,
):
  """Run what the records lack, seed by seed."""
  with cli.refusing():
    from experiments.framework import json_files
    from experiments.rivals import run as run_lib

    models = _matching(run_lib.MODELS, only_model)
    samplers = _matching(run_lib.SAMPLERS, only_sampler)
    if only_sampler is None:
      samplers = [name for name in samplers if not name.endswith('long')]
    file = output / 'runs.jsonl'
    keys = ('posterior', 'sampler', 'seed')
    done = {
      tuple(record[key] for key in keys)
      for record in json_files.read_lines(file)
    }
    for seed in range(first_seed, first_seed + num_seeds):
      for model in models:
        for sampler in samplers:
          if (model, sampler, seed) in done:
            continue
          record = run_lib.run(model, sampler, seed, python, max_seconds)
          json_files.append_lines(file, record)
          cli.console.print(_line(record), soft_wrap=True, highlight=False)


def _matching(names, patterns):
  """Returns the names that match a pattern, all without one."""
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


def _line(record):
  """Returns a run in one line."""
  head = f'{record["posterior"]}, {record["sampler"]}, seed {record["seed"]}: '
  if record['status'] != 'finished':
    return head + record['status']
  word = 'converged' if record['converged'] else 'NOT CONVERGED'
  least = min(record['ess_bulk'] or 0.0, record['ess_tail'] or 0.0)
  return head + (
    f'{word}, min ESS {least:.0f}, {record["num_gradients"]:,.0f} gradients, '
    f'{record["cpu_seconds"]:.1f} CPU s {record["found"]}'
  )
