"""The commands `rivals run` and `rivals check`."""

import pathlib
from typing import Annotated
from typing import Optional

import typer

from experiments.framework import cli
from experiments.rivals.models import MODELS

__all__ = ['app']

_FOLDER = pathlib.Path('docs/results/rivals')
# Of log densities, relative; TFP's are in float32.
_LARGEST_GAP = 1e-4
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

    models = cli.matching(MODELS, only_model)
    samplers = cli.matching(run_lib.SAMPLERS, only_sampler)
    if only_sampler is None:
      samplers = [name for name in samplers if name not in run_lib.ON_REQUEST]
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
          record['together'] = samplers
          json_files.append_lines(file, record)
          cli.console.print(_line(record), soft_wrap=True, highlight=False)


@app.command('check')
def check(
  python: Annotated[str, typer.Option(help="The others', of `make peers`.")],
  only_model: Annotated[_Names, typer.Option(help='* is allowed.')] = None,
  output: Output = _FOLDER,
):
  """Compare the log densities of every model in its three languages."""
  with cli.refusing():
    import numpy as np

    from experiments.framework import json_files
    from experiments.rivals import run as run_lib

    differing = []
    for model in cli.matching(MODELS, only_model):
      found = run_lib.log_densities(model, python)
      values = np.stack(list(found.values()))
      gap = np.ptp(values, axis=0) / (1.0 + np.abs(values).max(axis=0))
      record = {'posterior': model, 'gap': float(gap.max())}
      record.update({key: part.tolist() for key, part in found.items()})
      # One of each model: the newest.
      file = output / 'densities.jsonl'
      others = [
        other
        for other in json_files.read_lines(file)
        if other['posterior'] != model
      ]
      file.unlink(missing_ok=True)
      json_files.append_lines(file, *others, record)
      cli.console.print(f'{model}: {gap.max():.1e}', highlight=False)
      if not gap.max() < _LARGEST_GAP:
        differing.append(model)
  if differing:
    cli.console.print(f'Not the same density: {", ".join(differing)}')
    raise typer.Exit(1)


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
