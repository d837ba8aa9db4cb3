"""The commands `run`, `list` and `report`.

The commands refuse wrong options before they import TensorFlow.
"""

import contextlib
import fnmatch
import json
import pathlib
import shlex
import signal
import sys
from collections.abc import Iterator
from typing import Annotated
from typing import Optional

import rich.console
import typer

from experiments.run import engine
from experiments.run import find
from experiments.run import store
from experiments.run import tasks
from experiments.run.errors import ConfigError
from experiments.run.errors import shortened
from experiments.run.errors import shown
from experiments.run.errors import USER_ERRORS

# Paths and names are printed as they are: [b] and :smile: mean nothing.
console = rich.console.Console(
  soft_wrap=True, markup=False, emoji=False, highlight=False
)
errors = rich.console.Console(
  stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False
)

_EXECUTORS = ('local', 'ray')
_MOST_NAMED = 10

Seeds = Annotated[
  Optional[list[str]],
  typer.Option(metavar='SEED', help='Such as 3, or 0:10; may be repeated.'),
]
Only = Annotated[
  Optional[list[str]],
  typer.Option(metavar='PATTERN', help='Cases to run; * stands for any text.'),
]
Set = Annotated[
  Optional[list[str]],
  typer.Option('--set', metavar='KEY=VALUE', help='Such as methods.0.name=am.'),
]
Output = Annotated[
  Optional[pathlib.Path],
  typer.Option(help='Folder of the records; default: results/NAME.'),
]
Redo = Annotated[
  Optional[list[str]],
  typer.Option(
    metavar='STATUS',
    help="Run cells of this status again: failed, 'out of time', ...",
  ),
]
ShardText = Annotated[
  Optional[str],
  typer.Option(metavar='i/n', help='Part i of n of the work, i from 0.'),
]
Executor = Annotated[
  str, typer.Option(help='Who runs the work: local, or ray for a cluster.')
]
Address = Annotated[
  Optional[str], typer.Option(help='HOST:PORT of the Ray cluster.')
]
Device = Annotated[
  Optional[str], typer.Option(help='cpu or gpu; default: what is found.')
]
DataDir = Annotated[
  Optional[pathlib.Path],
  typer.Option(
    help='Folder of data sets; default: TFP_ADAPTIVE_DATA_DIR, else ./data.'
  ),
]
Python = Annotated[
  Optional[pathlib.Path],
  typer.Option(help='Interpreter for samplers with their own environment.'),
]
Smoke = Annotated[
  bool,
  typer.Option(help='A few steps and one seed, but for --set and --seeds.'),
]


@contextlib.contextmanager
def refusing() -> Iterator[None]:
  """Ends the command with a message if the user can correct the error."""
  try:
    yield
  except USER_ERRORS as error:
    errors.print(str(error), style='red')
    raise typer.Exit(2) from None
  except KeyboardInterrupt:
    errors.print('Stopped. Finished cells are kept; run again to continue.')
    raise typer.Exit(130) from None


def run(
  name: Annotated[
    str, typer.Argument(help='Name of a study, or path of a YAML config.')
  ],
  seeds: Seeds = None,
  only: Only = None,
  set_: Set = None,
  output: Output = None,
  redo: Redo = None,
  shard: ShardText = None,
  executor: Executor = 'local',
  address: Address = None,
  device: Device = None,
  data_dir: DataDir = None,
  python: Python = None,
  smoke: Smoke = False,
):
  """Run the cells of a study or a config that have no record yet."""
  with refusing():
    # 1. Check the options that do not depend on the study.
    tasks.check_statuses(redo or ())
    chosen_seeds = tasks.parse_seeds(seeds or ())
    part = None if shard is None else tasks.parse_shard(shard)
    _check_executor(executor, address, shard)
    find.check(name)
    # 2. Load the study and its cells.
    job = engine.Job(
      str(pathlib.Path(name).absolute()) if '.' in name else name,
      '',
      tuple(set_ or ()),
      smoke,
      None if data_dir is None else str(data_dir.absolute()),
      device,
      None if python is None else str(python.absolute()),
      executor == 'local' and sys.stdout.isatty(),
    )
    found = job.load()
    cells = tasks.cells(found, only or (), chosen_seeds)
    place = output or pathlib.Path('results') / (
      f'{found.name}-smoke' if smoke else found.name
    )
    job = job._replace(folder=str(place.absolute()))
    # 3. Run the cells. Workers end with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    execute = None
    if executor == 'ray':
      from experiments.run import ray_executor

      execute = ray_executor.Cluster(address, device, console.print)
    own = engine.run(job, found, cells, redo or (), part, execute, _say)
  if _summarize(own, place):
    raise typer.Exit(1)


def _check_executor(executor, address, shard):
  if executor not in _EXECUTORS:
    raise ConfigError(
      f'--executor: {shown(executor)} was given; allowed are '
      f'{", ".join(_EXECUTORS)}.'
    )
  if address is not None and executor != 'ray':
    raise ConfigError(
      f'--address: {shown(address)} was given, but only a Ray cluster has an '
      'address. Write --executor ray as well.'
    )
  if shard is not None and executor == 'ray':
    raise ConfigError(
      f'--shard: {shown(shard)} was given with --executor ray, which divides '
      'the work itself. Leave one of them out.'
    )


def _say(text):
  console.print(text, style='red' if ': failed' in text else None)


def _summarize(own, place) -> bool:
  """Prints how many cells have each status; returns whether any did not run."""
  records = engine.current(place, own)
  counts = {
    status: sum(record.status == status for record in records)
    for status in store.STATUSES
  }
  latest = {record.cell: record for record in records}
  missing = list(map(str, tasks.missing(own, latest)))
  counts['missing'] = len(missing)
  told = ', '.join(f'{n} {status}' for status, n in counts.items() if n)
  console.print(f'{told or "Nothing to run"}. Records: {place}')
  if missing:
    more = len(missing) - _MOST_NAMED
    text = '; '.join(missing[:_MOST_NAMED])
    console.print(f'Missing: {text}{f"; and {more} more" if more > 0 else ""}.')
    console.print('To run these, give the same command again.')
  for status in ('failed', 'out of time'):
    lost = [record for record in records if record.status == status]
    for record in lost[:_MOST_NAMED]:
      reason = ((record.error or '').strip().splitlines() or [''])[-1]
      console.print(f'{record.case}, seed {record.seed}: {shortened(reason)}')
    if lost:
      console.print(f'To run these again, add --redo {shlex.quote(status)}.')
  return any(counts[s] for s in ('failed', 'out of time', 'missing'))


def list_(
  pattern: Annotated[
    Optional[str], typer.Argument(help='Part of a name or a summary, or *.')
  ] = None,
):
  """List studies, configs, targets and methods, one line each."""
  wanted = (pattern or '*').lower()
  wanted = wanted if '*' in wanted else f'*{wanted}*'
  with refusing():
    for kind, name, summary in find.entries():
      if fnmatch.fnmatchcase(f'{kind} {name} {summary}'.lower(), wanted):
        console.print(f'{kind:7} {name:44} {summary}')


def report(
  results: Annotated[
    list[str], typer.Argument(help='Names of studies, or folders of runs.')
  ],
  output: Annotated[
    Optional[pathlib.Path], typer.Option(help='File; default: print.')
  ] = None,
):
  """Show the tables of runs as Markdown."""
  with refusing():
    text = '\n'.join(map(_reported, results))
    if output is None:
      typer.echo(text)
    else:
      store.write_text(output, text)


def _reported(result: str) -> str:
  """Returns the report of one run."""
  folder = pathlib.Path(result)
  if not folder.is_dir():
    folder = pathlib.Path('results') / result
  try:
    values = json.loads((folder / store.DESCRIPTION).read_text())
  except (OSError, ValueError):
    raise ConfigError(
      f'{shown(str(folder), 120)} is not the folder of a run, because it has '
      'no study.json. Name a study that has run here, or the folder that `run` '
      'wrote: --output, or results/NAME-smoke after --smoke.'
    ) from None
  names = ('reference', 'overrides', 'is_smoke')
  job = engine.Job(folder=str(folder), **{name: values[name] for name in names})
  found = job.load()
  records = store.read(folder)
  keys = {(cell.case, cell.key) for cell in tasks.cells(found)}
  records = [record for record in records if (record.case, record.key) in keys]
  if found.study.render is not None:
    return found.study.render(records)
  return _table(found.name, records)


def _table(name: str, records: list[store.Record]) -> str:
  """Returns a plain Markdown table of all records."""
  import polars

  rows = [
    {
      'case': one.case.replace('|', r'\|'),
      'seed': one.seed,
      'status': one.status,
      **one.record,
    }
    for one in records
  ]
  # Nested values get dotted names, such as `seconds.compile`.
  frame = polars.json_normalize(rows, infer_schema_length=None, strict=False)
  with polars.Config(
    tbl_formatting='MARKDOWN',
    tbl_hide_column_data_types=True,
    tbl_hide_dataframe_shape=True,
    tbl_rows=-1,
    tbl_cols=-1,
    tbl_width_chars=2**16 - 1,
    fmt_str_lengths=200,
  ):
    return f'## {name}\n\n{frame}\n'
