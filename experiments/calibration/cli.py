"""`python -m experiments calibrate`: are the kernels exact?

As everywhere, TensorFlow is imported inside the command.
"""

import json
import pathlib
import shlex
import sys
import warnings
from typing import Annotated
from typing import Optional

import typer

from experiments.framework import outputs
from experiments.run import quiet

__all__ = ['calibrate']


def calibrate(
  kernel: Annotated[
    Optional[list[str]], typer.Option(help='Families; default: all.')
  ] = None,
  output: Annotated[
    Optional[pathlib.Path],
    typer.Option(
      help='Folder of calibration.md and .json.',
      callback=outputs.folder_option,
    ),
  ] = None,
  figures: Annotated[
    Optional[pathlib.Path],
    typer.Option(help='Folder of the figure.', callback=outputs.folder_option),
  ] = None,
  num_chains: Annotated[int, typer.Option(help='Data sets per test.')] = 1000,
  num_successive: Annotated[int, typer.Option(help='Steps of Geweke.')] = 100,
  seed: Annotated[int, typer.Option(help='Of the whole study.')] = 0,
  jit: Annotated[bool, typer.Option(help='Compile the runs by XLA.')] = False,
  smoke: Annotated[bool, typer.Option(help='A tiny one, no power.')] = False,
):
  """Test every kernel by ranks of simulated truths and by Geweke's test."""
  quiet.quietly()
  from experiments.calibration import chains
  from experiments.calibration import kernels
  from experiments.calibration import study
  from experiments.calibration import verdicts

  unknown = sorted(set(kernel or ()) - set(kernels.FAMILIES))
  if unknown:
    raise typer.BadParameter(
      f'no such kernel: {unknown}; there are {sorted(kernels.FAMILIES)}.'
    )
  sizes = chains.Sizes(num_chains, num_successive=num_successive)
  if smoke:
    sizes = chains.Sizes(50, 8, 4, 1000)
  with warnings.catch_warnings():
    # The pilot run returns one draw; chains that rejected there are no news.
    warnings.filterwarnings('ignore', 'No move was accepted in 1 draws')
    rows = study.measure(kernel, sizes, seed, jit, report=typer.echo)
  lowest = verdicts.limit(rows)
  typer.echo(verdicts.to_markdown(rows))
  _write(rows, sizes, seed, output, figures)
  if not smoke and not all(verdicts.verdict(row, lowest)[1] for row in rows):
    raise typer.Exit(1)


def _write(rows, sizes, seed, output, figures):
  """Writes table, numbers and figure into the folders that were given."""
  from experiments.calibration import figure
  from experiments.calibration import verdicts

  if output is not None:
    output.mkdir(parents=True, exist_ok=True)
    saved = dict(sizes=sizes._asdict(), seed=seed, rows=rows)
    (output / 'calibration.json').write_text(json.dumps(saved, indent=1) + '\n')
    (output / 'calibration.md').write_text(
      verdicts.to_report(rows, sizes, seed, _command())
    )
  if figures is not None:
    figures.mkdir(parents=True, exist_ok=True)
    figure.draw_ecdfs(rows, verdicts.limit(rows)).savefig(
      figures / 'calibration.png', dpi=110
    )


def _command():
  arguments = ' '.join(shlex.quote(word) for word in sys.argv[1:])
  return f'python -m experiments {arguments}'
