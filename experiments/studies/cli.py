"""The commands `bench` and `oracle`, and `surrogate`: studies of kernel HMC.

As everywhere, TensorFlow is imported inside the commands.
"""

import json
import pathlib
from typing import Annotated
from typing import Optional

import typer

from experiments.framework import cli
from experiments.framework import outputs
from experiments.framework import tensorflow_import

__all__ = ['bench', 'oracle', 'surrogate']

surrogate = typer.Typer(
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


def bench(
  device: cli.Device = None,
  smoke: Annotated[bool, typer.Option(help='A few steps only.')] = False,
  hamiltonian: Annotated[
    bool, typer.Option(help='HMC over structures, in place of MALA.')
  ] = False,
  latent: Annotated[
    bool, typer.Option(help='mGrad over priors, in place of MALA.')
  ] = False,
  all_: Annotated[
    bool,
    typer.Option(
      '--all', help='Every kernel: its law, its speed, chains that fill it.'
    ),
  ] = False,
  output: Annotated[
    Optional[pathlib.Path],
    typer.Option(
      help='JSON file of the numbers.', callback=outputs.file_option
    ),
  ] = None,
):
  """Print the cost of a step over chains and dimensions."""
  tensorflow_import.quietly()
  from experiments.framework import devices

  if all_:
    from experiments.studies import bench_devices as benchmark
  elif hamiltonian:
    from experiments.studies import bench_hamiltonian as benchmark
  elif latent:
    from experiments.studies import bench_latent as benchmark
  else:
    from experiments.studies import bench as benchmark

  with cli.refusing(), devices.on_device(device):
    measurements = benchmark.measure(smoke=smoke, console=cli.console)
  cli.console.print(benchmark.to_rich(measurements))
  if output is not None:
    values = [measurement._asdict() for measurement in measurements]
    output.write_text(json.dumps(values, indent=2) + '\n', encoding='utf-8')


def oracle(
  output: Annotated[
    pathlib.Path, typer.Option(help='JSON lines; finished rows are kept.')
  ] = pathlib.Path('results/oracle.jsonl'),
  num_seeds: Annotated[int, typer.Option(help='Seeds per row.')] = 5,
  smoke: Annotated[bool, typer.Option(help='One tiny row.')] = False,
):
  """Compare default settings with the best preconditioner on Gaussians."""
  tensorflow_import.quietly()
  from experiments.studies import oracle as panel

  with cli.refusing():
    outputs.check_folder(output.parent)
    outputs.check_file(output)
  panel.run(output, num_seeds=num_seeds, smoke=smoke, report=cli.console.print)
  cli.console.print(panel.to_rich(output))


@surrogate.command()
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
  tensorflow_import.quietly()
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


@surrogate.command()
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
  tensorflow_import.quietly()
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


@surrogate.command()
def orbits(
  figure: Annotated[
    pathlib.Path,
    typer.Argument(help='PNG file.', callback=outputs.file_option),
  ],
  num_draws: Annotated[int, typer.Option(help='Known of the target.')] = 200,
):
  """Draw trajectories on a plane Gaussian and on its surrogate."""
  tensorflow_import.quietly()
  from experiments.studies import orbits as study
  from experiments.studies import surrogate_figures

  found = study.measure(num_draws)
  for name, (_, rates) in found.items():
    typer.echo(f'{name}: acceptance along the orbit {rates.mean():.3f}')
  surrogate_figures.draw_orbits(found).savefig(figure)


@surrogate.command()
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
  tensorflow_import.quietly()
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
