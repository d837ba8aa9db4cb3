"""`python -m experiments fuzz`: broken inputs, and what becomes of them.

As in `cli`, TensorFlow is imported inside the command.
"""

import json
import os
import pathlib
import shlex
import sys
from typing import Annotated
from typing import Optional

import rich.console
import typer

from experiments import outputs

__all__ = ['fuzz']

_MAX_SHOWN = 40


def fuzz(
  seed: Annotated[int, typer.Option(min=0, help='Of all inputs.')] = 0,
  num: Annotated[int, typer.Option(min=1, help='Inputs.')] = 3000,
  only: Annotated[
    Optional[int], typer.Option(min=0, help='This input of the seed alone.')
  ] = None,
  output: Annotated[
    Optional[pathlib.Path],
    typer.Option(help='JSON file of the counts.', callback=outputs.file_option),
  ] = None,
):
  """Feed broken configs, result folders and data files to their readers."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  from experiments.fuzz import run

  console = rich.console.Console(markup=False, emoji=False, highlight=False)
  if only is not None:
    outcome = run.one(seed, only)
    for name, value in outcome._asdict().items():
      console.print(f'{name}: {value}')
    raise typer.Exit(1 if outcome.faults else 0)
  outcomes = run.run(seed, num)
  found = [outcome for outcome in outcomes if outcome.faults]
  console.print(run.to_rich(outcomes))
  for outcome in found[:_MAX_SHOWN]:
    first = outcome.message.strip().splitlines()[:1]
    console.print(
      f'--seed {seed} --only {outcome.number}: {outcome.kind}, '
      f'{outcome.mutation}: {", ".join(outcome.faults)} {first}'[:300]
    )
  if len(found) > _MAX_SHOWN:
    numbers = ' '.join(str(o.number) for o in found[_MAX_SHOWN:])
    console.print(f'and --only {numbers}', soft_wrap=True)
  if output is not None:
    _write(output, seed, run.summary(outcomes), found)
  raise typer.Exit(1 if found else 0)


def _write(path, seed, counts, found):
  arguments = ' '.join(shlex.quote(word) for word in sys.argv[1:])
  saved = {
    'command': f'python -m experiments {arguments}',
    'seed': seed,
    'counts': counts,
    'faults': [
      {'number': o.number, 'mutation': o.mutation, 'faults': o.faults}
      for o in found
    ],
  }
  path.write_text(json.dumps(saved, indent=1) + '\n', encoding='utf-8')
