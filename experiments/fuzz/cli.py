"""`python -m experiments fuzz`: broken inputs, and what becomes of them.

As everywhere, TensorFlow is imported inside the command.
"""

import json
import pathlib
import shlex
import sys
from typing import Annotated
from typing import Optional

import rich.console
import typer

from experiments.framework import outputs
from experiments.run import quiet
from experiments.run.errors import shortened

__all__ = ['fuzz']

_MAX_SHOWN = 40


def fuzz(
  seed: Annotated[
    Optional[list[int]], typer.Option(min=0, help='Of inputs; again: more.')
  ] = None,
  num: Annotated[int, typer.Option(min=1, help='Inputs of each seed.')] = 3000,
  only: Annotated[
    Optional[int], typer.Option(min=0, help='This input of the seed alone.')
  ] = None,
  output: Annotated[
    Optional[pathlib.Path],
    typer.Option(help='JSON file of the counts.', callback=outputs.file_option),
  ] = None,
):
  """Feed broken configs, result folders and data files to their readers."""
  quiet.quietly()
  from experiments.fuzz import run

  console = rich.console.Console(markup=False, emoji=False, highlight=False)
  seeds = seed or [0]
  if only is not None:
    outcome = run.one(seeds[0], only)
    for name, value in outcome._asdict().items():
      console.print(f'{name}: {value}', soft_wrap=True)
    raise typer.Exit(1 if outcome.faults else 0)
  runs = []
  for one in seeds:
    outcomes = run.run(one, num)
    found = [outcome for outcome in outcomes if outcome.faults]
    console.print(run.to_rich(one, outcomes))
    _print_faults(console, one, found)
    runs.append(
      {
        'seed': one,
        'counts': run.summary(outcomes),
        'faults': [[o.number, o.mutation, o.faults] for o in found],
      }
    )
  if output is not None:
    _write(output, runs)
  raise typer.Exit(1 if any(one['faults'] for one in runs) else 0)


def _print_faults(console, seed, found):
  """Says which inputs went wrong, and how to see one again."""
  for outcome in found[:_MAX_SHOWN]:
    message = shortened(outcome.message, 120)
    console.print(
      f'--seed {seed} --only {outcome.number}: {outcome.kind}, '
      f'{outcome.mutation}: {", ".join(outcome.faults)} {message}',
      soft_wrap=True,
    )
  if len(found) > _MAX_SHOWN:
    numbers = ' '.join(str(o.number) for o in found[_MAX_SHOWN:])
    console.print(f'and --only {numbers}', soft_wrap=True)


def _write(path, runs):
  arguments = ' '.join(shlex.quote(word) for word in sys.argv[1:])
  saved = {'command': f'python -m experiments {arguments}', 'runs': runs}
  path.write_text(json.dumps(saved, indent=1) + '\n', encoding='utf-8')
