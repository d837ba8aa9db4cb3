"""Commands of `python -m experiments panel`, and `run` of a panel's config."""

import contextlib
import math
import os
import pathlib
import signal
import sys
import threading
import time
from typing import Annotated
from typing import Optional

import typer

from experiments.framework import choices
from experiments.framework import cli
from experiments.framework import executors
from experiments.framework import outputs
from experiments.framework import shards

__all__ = ['app', 'is_panel', 'run_config']

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT_CONFIG = ROOT / 'configs' / 'inference_gym' / 'panel.yaml'
DEFAULT_OUTPUT = ROOT / 'docs' / 'results' / 'inference_gym'

app = typer.Typer(
  help='Many targets, every method, seeds: runs, references and the page.',
  no_args_is_help=True,
  pretty_exceptions_show_locals=False,
)

Config = Annotated[pathlib.Path, typer.Option(help='YAML file of the panel.')]
Output = Annotated[
  pathlib.Path, typer.Option(help='Folder of the records and the page.')
]
DataDir = Annotated[
  Optional[pathlib.Path],
  typer.Option(
    envvar='TFP_ADAPTIVE_DATA_DIR', help='Folder with copies of data sets.'
  ),
]
Overrides = Annotated[
  Optional[list[str]], typer.Option('--set', metavar='KEY=VALUE')
]
Redo = Annotated[
  Optional[list[str]],
  typer.Option(help="Run cells of this status again, e.g. 'out of time'."),
]
Device = Annotated[Optional[str], typer.Option(help='cpu, gpu or tpu.')]


def is_panel(path):
  """Returns whether a YAML file is meant as a panel: it lists `targets`."""
  from experiments.framework import yaml_files

  return 'targets' in yaml_files.load(path)


def run_config(
  config, overrides, output, data_dir, only_target, only_method, redo, choice
):
  """Runs a panel; what is in the output folder already is kept.

  Args:
    config: path of the YAML file.
    overrides: of `--set`.
    output: folder of the records, or None.
    data_dir: folder of local data sets, or None.
    only_target: labels.
    only_method: labels.
    redo: statuses.
    choice: the `choices.Choice`.

  Returns:
    The names of the pairs that a cluster lost.

  Raises:
    ConfigError: whatever is wrong with config, filters or folder.
  """
  from experiments.panel import run
  from experiments.panel.cells import CellFile
  from experiments.panel.config import load_panel

  shard = choice.check(output)
  # So that the process of a pair ends with this one.
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
  panel = load_panel(config, overrides)
  chosen = run.pairs(panel, only_target, only_method)
  file = CellFile((output or DEFAULT_OUTPUT).absolute())
  executor = choices.choose(choice, cli.console, file.folder)
  options = run.Options(
    config.absolute(),
    tuple(overrides),
    data_dir and data_dir.absolute(),
    tuple(redo),
    choice.device,
    is_shared=executor.is_remote or shard is not None,
  )
  outputs.check_folder(file.folder)
  with contextlib.ExitStack() as held:
    if shard is None:
      held.enter_context(outputs.writing(file.folder))
    else:
      names = run.pair_names(panel.config, chosen)
      division = shards.joined(file.folder, shard, names)
      executor = executors.Shared(held.enter_context(division))
    return run.run_panel(
      panel, file, chosen, options, report=_say, executor=executor
    )


def _say(text):
  print(text, flush=True)


@app.command(hidden=True)
def pair(
  config: Annotated[pathlib.Path, typer.Argument()],
  target: Annotated[str, typer.Argument()],
  method: Annotated[str, typer.Argument()],
  output: Output = DEFAULT_OUTPUT,
  set_: Overrides = None,
  redo: Redo = None,
  data_dir: DataDir = None,
  device: Device = None,
  shared: Annotated[bool, typer.Option()] = False,
):
  """Run the seeds of one method on one target, in this process."""
  with cli.refusing():
    from experiments.framework import devices
    from experiments.panel.cells import CellFile
    from experiments.panel.config import find_label
    from experiments.panel.config import load_panel
    from experiments.panel.pair import run_pair

    panel = load_panel(config, set_ or ())
    target_index = find_label('target', target, panel.config.target_labels())
    method_index = find_label('method', method, panel.config.method_labels())
    held, checkpoints = contextlib.nullcontext(), None
    if shared:
      _end_with_parent()
      place = panel.key(target_index, method_index)
      # The process that started this one keeps the time.
      held = outputs.alone(output / 'locks' / place, math.inf)
      checkpoints = output / 'checkpoints'
    with held, devices.on_device(device):
      run_pair(
        panel,
        target_index,
        method_index,
        CellFile(output),
        data_dir,
        tuple(redo or ()),
        lambda text: _say(f'  {text}'),
        checkpoints,
      )


def _end_with_parent():
  """Ends this process soon after the one that started it.

  A worker of a cluster may be killed where it cannot stop what it started.
  """
  parent = os.getppid()

  def watch():
    while os.getppid() == parent:
      time.sleep(1.0)
    os._exit(1)

  threading.Thread(target=watch, daemon=True).start()


@app.command()
def reference(
  targets: Annotated[list[str], typer.Argument(help='Labels in the panel.')],
  config: Config = DEFAULT_CONFIG,
  data_dir: DataDir = None,
  num_adaptation_steps: Annotated[int, typer.Option(min=40)] = 2000,
  num_results: Annotated[int, typer.Option(min=4)] = 10000,
  seed: Annotated[int, typer.Option(min=0)] = 1000,
  num_climbs: Annotated[
    int,
    typer.Option(
      min=0,
      help='Look for modes from so many starts, and start in them; for '
      'targets that are sampled.',
    ),
  ] = 0,
):
  """Write the moments of targets from long runs."""
  with cli.refusing():
    from experiments.panel.config import find_label
    from experiments.panel.config import load_panel
    from experiments.panel.reference import write_reference

    panel = load_panel(config)
    labels = panel.config.target_labels()
    indices = [find_label('target', label, labels) for label in targets]
    for label, index in zip(targets, indices, strict=True):
      found = write_reference(
        panel,
        index,
        data_dir,
        num_adaptation_steps,
        num_results,
        seed,
        num_climbs,
      )
      shown = {k: v for k, v in found.items() if not _is_long(v)}
      _say(f'{label}: {shown}')


def _is_long(value):
  return isinstance(value, list) and len(value) > 2


@app.command()
def report(config: Config = DEFAULT_CONFIG, output: Output = DEFAULT_OUTPUT):
  """Write the page and the tables of the records so far."""
  with cli.refusing():
    from experiments.panel.cells import CellFile
    from experiments.panel.config import load_panel
    from experiments.panel.page import write_page

    panel = load_panel(config)
    outputs.check_folder(output)
    shards.check(output)
    file = CellFile(output)
    file.check_gates(panel.gates_digest)
    _say(f'Page: {write_page(panel, file)}')
