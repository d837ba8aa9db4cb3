"""sample_posterior and TFP's NUTS on two posteriors, as a first run.

Neighboring features of the logistic regression are correlated. The sum of their
weights is known better than each weight, and no diagonal scale helps. In the
eight schools, effects are narrower if their spread is smaller. No matrix fits
this funnel.
"""

import pathlib
import textwrap
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments import models
from experiments.run import store
from experiments.run.study import pairs
from experiments.run.study import Result
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.samplers import on_models

_WIDTH = 80
_COLUMNS = ('Posterior', 'Sampler', 'Verdict', 'Min ESS', 'Seconds', 'ESS/s')
_NUM_WORDS = 3  # Left-aligned columns of text; others align right.
_EXPLAINED = (
  'Min ESS: effective draws, in bulk or tails, of the worst coordinate. '
  'Seconds: everything, compilation too. Not converged: no rate, no rank.'
)


class _Posterior(NamedTuple):
  """A model, and which draws the figures show.

  Attributes:
    model: Name of the model.
    traced: Coordinate whose trace is drawn.
    beside: Coordinate against which `traced` is drawn.
    scale: Scale of the axis of `traced`.
  """

  model: str
  traced: str
  beside: str
  scale: str


_POSTERIORS = {
  'regression': _Posterior(
    'logistic_regression', 'weights[0]', 'weights[1]', 'linear'
  ),
  'eight schools': _Posterior('eight_schools', 'spread', 'effect[0]', 'log'),
}


def _run(case: tuple[str, str], seed: int, work: Work) -> Result:
  """Returns the record of one run, and the draws for the figures."""
  posterior, sampler = _POSTERIORS[case[0]], case[1]
  module = models.load(posterior.model)
  outcome = on_models.run(
    sampler, lambda: module.tfp_model(**module.data()), seed, work.progress
  )
  names, values = on_models.coordinates(outcome.states)
  return Result(
    on_models.record(outcome, models.exact_means(posterior.model)),
    {
      'traced': values[..., names.index(posterior.traced)],
      'beside': values[..., names.index(posterior.beside)],
      # Replica exchange counts no divergence.
      'diverging': np.asarray(
        outcome.trace.get('diverging', np.zeros(values.shape[:2], bool))
      ),
    },
  )


def _finish(
  folder: pathlib.Path, records: list[store.Record], work: Work
) -> None:
  """Writes both figures, and prints the table."""
  del work
  seed = min(record.seed for record in records)
  records = [record for record in records if record.seed == seed]
  drawn = [(r, a) for r in records if (a := store.read_arrays(folder, r))]
  print(f'\n{to_text(_rows(records))}')
  for name in ('traces', 'pairs') if drawn else ():
    path = folder / f'{name}.png'
    _figure(drawn, name).savefig(path, dpi=80)
    print(f'{name.capitalize()}: {path}')


def _rows(records: Iterable[store.Record]) -> list[dict[str, Any]]:
  """Returns the records of finished runs, with the parts of their cases."""
  return [
    {**dict(zip(('posterior', 'sampler'), r.case.split(' | '))), **r.record}
    for r in records
    if r.status == 'finished'
  ]


def _figure(drawn, name):
  """Returns a figure of all traces or pairs, a row for each posterior."""
  import matplotlib.figure

  num_rows = -(-len(drawn) // len(on_models.SAMPLERS))
  height = {'traces': 2.0, 'pairs': 3.0}[name] * num_rows
  figure = matplotlib.figure.Figure((9.0, height), layout='constrained')
  axes = figure.subplots(
    num_rows, len(on_models.SAMPLERS), sharex='row', sharey='row', squeeze=False
  )
  for axis, (record, arrays) in zip(axes.flat, drawn):
    posterior = _POSTERIORS[record.case.partition(' | ')[0]]
    if name == 'traces':
      axis.plot(arrays['traced'], linewidth=0.3)
    else:
      x, y, bad = (arrays[k] for k in ('beside', 'traced', 'diverging'))
      axis.scatter(x, y, s=1, alpha=0.3, linewidths=0)
      axis.scatter(x[bad], y[bad], s=6, color='red', linewidths=0)
      axis.set_xlabel(posterior.beside)
    axis.set_yscale(posterior.scale)
    axis.set_title(record.case.replace(' | ', ', '), fontsize='small')
    axis.set_ylabel(posterior.traced)
  return figure


def ranked(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
  """Returns rows with the best rate first, posterior by posterior.

  Rows without convergence follow, because draws of another distribution have no
  value, however fast they are.

  Args:
    rows: Records with their `posterior` and `sampler`. Posteriors keep the
      order of their first rows.
  """
  places = list(dict.fromkeys(row['posterior'] for row in rows))
  return sorted(
    rows, key=lambda row: (places.index(row['posterior']), -(_rate(row) or 0.0))
  )


def to_text(rows: Iterable[Mapping[str, Any]]) -> str:
  """Returns the table and the verdicts as plain text, 80 columns wide."""
  rows = ranked(rows)
  table = [_COLUMNS, *map(_cells, rows)]
  widths = [max(map(len, column)) for column in zip(*table)]
  table.insert(1, tuple('-' * width for width in widths))
  lines = [
    '  '.join(
      cell.ljust(width) if index < _NUM_WORDS else cell.rjust(width)
      for index, (cell, width) in enumerate(zip(line, widths))
    ).rstrip()
    for line in table
  ]
  lines += ['', *textwrap.wrap(_EXPLAINED, _WIDTH)]
  for row in rows:
    title, *verdict = _verdict(row)
    lines += ['', title]
    for line in verdict:
      lines += textwrap.wrap(
        line, _WIDTH, initial_indent='  ', subsequent_indent='    '
      )
  return '\n'.join(lines) + '\n'


def _cells(row):
  rate = _rate(row)
  return (
    row['posterior'],
    row['sampler'],
    'converged' if row['converged'] else 'NOT CONVERGED',
    f'{_size(row):.0f}',
    f'{row["seconds"]:.0f}',
    '-' if rate is None else f'{rate:.1f}',
  )


def _size(row):
  """Returns the smaller of bulk and tail ESS, or 0 if no chain moved."""
  return min(row['ess_bulk'] or 0.0, row['ess_tail'] or 0.0)


def _rate(row):
  return _size(row) / row['seconds'] if row['converged'] else None


def _verdict(row):
  """Returns a title and the lines of the verdict."""
  found = f', {row["found"]}' if row['found'] else ''
  exact = []
  if row['worst_error']:
    error, name = row['worst_error']
    exact = [f'worst mean: {error:.1f} standard errors off ({name})']
  return [
    f'{row["posterior"]}, {row["sampler"]}{found}',
    *row['verdict'].splitlines(),
    *exact,
    f'{row["num_gradients"]:,.0f} gradients of each chain, warm-up included',
  ]


STUDY = Study(
  lambda settings: pairs(_POSTERIORS, on_models.SAMPLERS),
  _run,
  process='cell',
  render=lambda records: f'```text\n{to_text(_rows(records))}```\n',
  finish=_finish,
)
