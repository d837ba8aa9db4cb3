"""Commands of `python -m experiments surrogate`: studies of kernel HMC.

As in `cli`, TensorFlow is imported inside the commands.
"""

import json
import os
import pathlib
from typing import Annotated
from typing import Optional

import typer

from experiments.framework import outputs

__all__ = ['app']

app = typer.Typer(
  help='Studies of the learned scores behind kernel HMC.',
  no_args_is_help=True,
  pretty_exceptions_show_locals=False,
)

Output = Annotated[
  Optional[pathlib.Path],
  typer.Option(help='JSON file of all rows.', callback=outputs.file_option),
]
Figure = Annotated[
  Optional[pathlib.Path],
  typer.Option(help='PNG file.', callback=outputs.file_option),
]
Smoke = Annotated[bool, typer.Option(help='A tiny one.')]


@app.command()
def history(
  num_repeats: Annotated[int, typer.Option(help='Runs per row.')] = 30,
  sizes: Annotated[
    Optional[list[int]], typer.Option(help='Draws known, and features.')
  ] = None,
  smoke: Smoke = False,
  output: Output = None,
  figure: Figure = None,
):
  """KMC, KAMH, HMC and a random walk on a banana, over growing histories."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  from experiments.studies import growing_history
  from experiments.studies import surrogate_figures

  protocol = growing_history.Protocol(num_repeats=num_repeats)
  if sizes:
    protocol = protocol._replace(sizes=tuple(sizes))
  if smoke:
    protocol = protocol._replace(
      sizes=(30,), num_repeats=1, num_results=20, num_burnin_steps=10
    )
  rows = growing_history.measure(protocol, report=typer.echo)
  typer.echo(growing_history.to_markdown(rows))
  _write(rows, output)
  if figure is not None:
    surrogate_figures.draw_history(rows).savefig(figure)


@app.command()
def trajectories(
  num_trials: Annotated[int, typer.Option(help='Spectra per cell.')] = 10,
  event_sizes: Annotated[
    Optional[list[int]], typer.Option(help='Dimensions.')
  ] = None,
  sizes: Annotated[
    Optional[list[int]], typer.Option(help='Draws known, and features.')
  ] = None,
  smoke: Smoke = False,
  output: Output = None,
  figure: Figure = None,
):
  """Acceptance along trajectories on Gaussians, over dimension and draws."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  from experiments.studies import surrogate_figures
  from experiments.studies import trajectory_acceptance

  grid = trajectory_acceptance.Grid(num_trials=num_trials)
  if event_sizes:
    grid = grid._replace(event_sizes=tuple(event_sizes))
  if sizes:
    grid = grid._replace(sizes=tuple(sizes))
  if smoke:
    grid = grid._replace(event_sizes=(2,), sizes=(30,), num_trials=1)
  rows = trajectory_acceptance.measure(grid, report=typer.echo)
  typer.echo(trajectory_acceptance.to_markdown(rows))
  _write(rows, output)
  if figure is not None:
    surrogate_figures.draw_acceptance(rows).savefig(figure)


@app.command()
def orbits(
  figure: Annotated[
    pathlib.Path,
    typer.Argument(help='PNG file.', callback=outputs.file_option),
  ],
  num_draws: Annotated[int, typer.Option(help='Known of the target.')] = 200,
):
  """Draw trajectories on a plane Gaussian and on its surrogate."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  from experiments.studies import orbits as study
  from experiments.studies import surrogate_figures

  found = study.measure(num_draws)
  for name, (_, rates) in found.items():
    typer.echo(f'{name}: acceptance along the orbit {rates.mean():.3f}')
  surrogate_figures.draw_orbits(found).savefig(figure)


@app.command()
def evaluate(
  run: Annotated[pathlib.Path, typer.Argument(help='Folder of a run.')],
  reference: Annotated[
    Optional[pathlib.Path],
    typer.Option(help='Folder of a long run; default: exact draws.'),
  ] = None,
  first: Annotated[
    int, typer.Option(help='Steps left out of the ESS; 0: the adapting ones.')
  ] = 0,
  data_dir: Annotated[
    Optional[pathlib.Path], typer.Option(help='As in `run`.')
  ] = None,
  output: Output = None,
):
  """KS, MMD and ESS per target call of a run with `keep_states: true`."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  from experiments.framework import cli
  from experiments.framework.storage import RunFolder
  from experiments.studies import against_reference

  with cli.refusing():
    states = None
    if reference is not None:
      states = against_reference.reference_states(RunFolder.open(reference))
    rows = against_reference.compare(
      RunFolder.open(run), states, first, data_dir and str(data_dir)
    )
  typer.echo(against_reference.to_markdown(rows))
  _write(rows, output)


def _write(rows, output):
  if output is not None:
    output.write_text(json.dumps(rows, indent=1) + '\n', encoding='utf-8')
