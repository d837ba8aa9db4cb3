"""The command `quickstart`. TensorFlow is imported inside of it."""

import json
import pathlib
from typing import Annotated

import typer

from experiments.framework import cli
from experiments.framework import outputs
from experiments.quickstart import tables

__all__ = ['quickstart']

_OUTPUT = pathlib.Path('results/quickstart')


def quickstart(
  html: Annotated[
    bool, typer.Option('--html', help='Write a page of its own, too.')
  ] = False,
  seed: Annotated[int, typer.Option(help='Of the samplers.')] = 0,
  output: Annotated[
    pathlib.Path, typer.Option(help='Folder of record and figures.')
  ] = _OUTPUT,
):
  """Compare sample_posterior with TFP's NUTS on two posteriors."""
  with cli.refusing():
    outputs.check_folder(output)
    records, runs = _run(seed)
    _say(f'\n{tables.to_text(records)}')
    for title, path in _write(records, runs, output, html).items():
      _say(f'{title}: {path}')


def _run(seed):
  """Returns records, and the models and outcomes that figures are made of."""
  from experiments.quickstart import models
  from experiments.quickstart import run as run_lib

  records, runs = [], {}
  for posterior, model in models.MODELS.items():
    for sampler in run_lib.SAMPLERS:
      _say(f'{posterior}, {sampler}: compiling and sampling ...')
      outcome = run_lib.run(
        sampler, model.make(), seed, progress=cli.errors.is_terminal
      )
      exact = model.exact_means()
      row = run_lib.record(posterior, sampler, seed, outcome, exact)
      records.append(row)
      runs[posterior, sampler] = model, outcome
  return records, runs


def _write(records, runs, folder, html):
  """Writes everything; returns dict of titles to paths."""
  from experiments.quickstart import figures

  paths = {'Record': folder / 'runs.jsonl'}
  lines = [json.dumps(record) + '\n' for record in records]
  outputs.write_text(paths['Record'], ''.join(lines))
  pngs = {
    'Traces': figures.to_png(figures.draw_traces(runs)),
    'Pairs': figures.to_png(figures.draw_pairs(runs)),
  }
  for title, png in pngs.items():
    paths[title] = folder / f'{title.lower()}.png'
    outputs.write_bytes(paths[title], png)
  if html:
    paths['Report'] = folder / 'report.html'
    outputs.write_text(paths['Report'], tables.to_html(records, pngs))
  return paths


def _say(text):
  cli.console.print(text, soft_wrap=True, highlight=False)
