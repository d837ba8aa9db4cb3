"""Commands of `python -m experiments`.

TensorFlow is imported inside the commands: help and mistakes in the command
line answer at once.
"""

import contextlib
import json
import os
import pathlib
from typing import Annotated
from typing import Optional

import rich.console
import rich.table
import typer

from experiments.calibration import cli as cli_calibration
from experiments.framework import outputs
from experiments.framework.errors import ConfigError
from experiments.framework.errors import DataError
from experiments.framework.errors import DeviceError
from experiments.framework.errors import StorageError
from experiments.fuzz import cli as cli_fuzz
from experiments.panel import cli as cli_panel
from experiments.studies import cli as cli_surrogate

__all__ = ['app']

CONFIG_DIR = pathlib.Path(__file__).resolve().parents[2] / 'configs'

app = typer.Typer(
  help='Run and report the experiments of tfp_adaptive.',
  no_args_is_help=True,
  add_completion=False,
  pretty_exceptions_show_locals=False,
)
app.add_typer(cli_panel.app, name='panel')
app.add_typer(cli_surrogate.app, name='surrogate')
app.command('calibrate')(cli_calibration.calibrate)
app.command('fuzz')(cli_fuzz.fuzz)
# Paths and labels are printed as they are: [b] and :smile: mean nothing.
console = rich.console.Console(
  width=None if os.isatty(1) else 160, markup=False, emoji=False
)
errors = rich.console.Console(
  stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False
)

DataDir = Annotated[
  Optional[pathlib.Path],
  typer.Option(help='Folder with local copies of data sets (.npz or .csv).'),
]
Device = Annotated[
  Optional[str], typer.Option(help='cpu, gpu or tpu; default: what is found.')
]
OutputFile = Annotated[
  Optional[pathlib.Path],
  typer.Option(help='File; default: print.', callback=outputs.file_option),
]
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


def _refuse(error):
  errors.print(str(error), style='red')
  raise typer.Exit(2)


@contextlib.contextmanager
def refusing():
  """Ends the command by a message where what the user gave is refused."""
  _quiet_tensorflow()
  try:
    yield
  except (ConfigError, DataError, DeviceError, StorageError) as error:
    _refuse(error)


def _quiet_tensorflow():
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')


@app.command()
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
  device: Device = None,
  data_dir: DataDir = None,
  output: Annotated[
    Optional[pathlib.Path], typer.Option(help='Folder of the results.')
  ] = None,
  only_target: OnlyTarget = None,
  only_method: OnlyMethod = None,
  redo: Redo = None,
):
  """Run a config and write its own folder of results."""
  with refusing():
    if cli_panel.is_panel(config):
      cli_panel.run_config(
        config,
        set_ or (),
        output,
        data_dir,
        device,
        only_target or (),
        only_method or (),
        redo or (),
      )
      return
    records = _run_cells(config, set_, smoke, resume, device, data_dir, output)
  if any(record['status'] == 'failed' for record in records):
    raise typer.Exit(1)


def _run_cells(config, overrides, smoke, resume, device, data_dir, output):
  """Runs every method of a config, shows the tables, returns the records."""
  from experiments.framework import config as configs
  from experiments.framework import devices
  from experiments.framework import moments
  from experiments.framework import runner
  from experiments.framework import storage
  from experiments.framework import tables

  checked = configs.load_config(config, overrides or ())
  checked = configs.smoke(checked) if smoke else checked
  with devices.on_device(device):
    plan = runner.make_plan(checked, data_dir and str(data_dir))
    name = runner.newest_output if resume else runner.default_output
    path = output or name(checked)
    with storage.run_folder(path, checked, resume) as folder:
      records = runner.run_plan(plan, folder, console)
  console.print(tables.to_rich(checked.name, tables.join(records)))
  console.print(moments.to_markdown(records), soft_wrap=True)
  console.print(f'Results: {folder.path}', soft_wrap=True, highlight=False)
  return records


@app.command('list')
def list_():
  """List configs, targets and methods."""
  _quiet_tensorflow()
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


@app.command()
def report(
  results: Annotated[
    list[pathlib.Path], typer.Argument(help='Folders of runs.')
  ],
  html: Annotated[bool, typer.Option(help='HTML instead of Markdown.')] = False,
  output: OutputFile = None,
):
  """Join runs into one table in the layout of the papers."""
  _quiet_tensorflow()
  from experiments.framework import moments
  from experiments.framework import storage
  from experiments.framework import tables

  with refusing():
    joined = storage.join_runs(results)
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
  if output is None:
    typer.echo(text)
  else:
    output.write_text(text, encoding='utf-8')
    console.print(f'Report: {output}', soft_wrap=True)


@app.command()
def bench(
  device: Device = None,
  smoke: Annotated[bool, typer.Option(help='A few steps only.')] = False,
  hamiltonian: Annotated[
    bool, typer.Option(help='HMC over structures, in place of MALA.')
  ] = False,
  latent: Annotated[
    bool, typer.Option(help='mGrad over priors, in place of MALA.')
  ] = False,
  output: Annotated[
    Optional[pathlib.Path],
    typer.Option(
      help='JSON file of the numbers.', callback=outputs.file_option
    ),
  ] = None,
):
  """Print the cost of a step over chains and dimensions."""
  _quiet_tensorflow()
  from experiments.framework import devices

  if hamiltonian:
    from experiments.studies import bench_hamiltonian as benchmark
  elif latent:
    from experiments.studies import bench_latent as benchmark
  else:
    from experiments.studies import bench as benchmark

  with refusing(), devices.on_device(device):
    measurements = benchmark.measure(smoke=smoke, console=console)
  console.print(benchmark.to_rich(measurements))
  if output is not None:
    values = [measurement._asdict() for measurement in measurements]
    output.write_text(json.dumps(values, indent=2) + '\n', encoding='utf-8')


@app.command()
def schema(
  output: OutputFile = None,
):
  """Write the JSON schema of the configs, for editors."""
  _quiet_tensorflow()
  from experiments.framework import config as configs

  text = json.dumps(configs.json_schema(), indent=2) + '\n'
  if output is None:
    typer.echo(text)
  else:
    output.write_text(text, encoding='utf-8')


@app.command()
def oracle(
  output: Annotated[
    pathlib.Path, typer.Option(help='JSON lines; finished rows are kept.')
  ] = pathlib.Path('results/oracle.jsonl'),
  num_seeds: Annotated[int, typer.Option(help='Seeds per row.')] = 5,
  smoke: Annotated[bool, typer.Option(help='One tiny row.')] = False,
):
  """Compare default settings with the best preconditioner on Gaussians."""
  _quiet_tensorflow()
  from experiments.studies import oracle as panel

  with refusing():
    outputs.check_folder(output.parent)
    outputs.check_file(output)
  panel.run(output, num_seeds=num_seeds, smoke=smoke, report=console.print)
  console.print(panel.to_rich(output))
