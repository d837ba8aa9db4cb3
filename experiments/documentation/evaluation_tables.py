"""Pages of the site that are made from saved results.

  python -m experiments.documentation.evaluation_tables docs

writes evaluation_tables.md, and panel.html where there are runs to show. Absent
or partial records make no error: the page says what is missing.
"""

import json
import pathlib
import sys

__all__ = ['evaluation_page', 'measurement_tables', 'progress_table']

_HEAD = """# All tables of the evaluation

The library's samplers against today's best, on the models of inference_gym and
two logistic regressions, all with default settings, judged by known moments.
`python -m experiments run configs/inference_gym/panel.yaml` runs all of it, and
continues where it was stopped; `make docs` makes this page from its records.

How to read it: a sampler may be ahead per gradient and behind per second, and
one whose runs failed the gates has no number at all. Library and peers are each
represented by their best method on that target: look at the table of failed
runs before you conclude that a family always does what its best member did.
"""
_NONE = """## No runs yet

There are no records of the panel that fit today's config and library. What will
stand here: who wins where and by how much, failed runs, squared bias.
"""
_WHOLE = """All of it on one page, with the curves of squared bias:
[panel.html](panel.html).
"""
# (title, note, file, {column: its key or index path}).
_MEASUREMENTS = (
  (
    'Defaults against the exact covariance',
    'Rotated Gaussians, steps of one size, nothing else set: ESS per gradient '
    'over that of the best factor at the same acceptance. `python -m '
    'experiments oracle`.',
    'oracle.jsonl',
    {
      'd': ('case', 0),
      'Condition': ('case', 1),
      'Chains': ('case', 2),
      'Adapting steps': ('case', 3),
      'Precision': ('case', 4),
      'Proposal': ('case', 5),
      'Seed': ('seed',),
      'Min ESS, ratio': ('min_ratio',),
      'Median ESS, ratio': ('median_ratio',),
      'Condition left': ('condition_left',),
    },
  ),
  (
    'Cost of a step of MALA',
    'Microseconds on one core. `python -m experiments bench`.',
    'bench.json',
    {
      'Chains': ('num_chains',),
      'd': ('event_size',),
      'Bare loop': ('bare',),
      'Frozen': ('frozen',),
      'Adapting': ('adapting',),
      'Frozen / bare': ('frozen_over_bare',),
      'Adapting / frozen': ('adapting_over_frozen',),
    },
  ),
  (
    'Cost of a step of HMC, L = 5',
    'Microseconds on one core. `python -m experiments bench --hamiltonian`.',
    'bench_hamiltonian.json',
    {
      'Case': ('name',),
      'Chains': ('num_chains',),
      'd': ('event_size',),
      'Frozen': ('frozen',),
      'Adapting, autodiff / frozen': ('autodiff_over_frozen',),
      'Adapting, finite differences / frozen': (
        'finite_difference_over_frozen',
      ),
    },
  ),
  (
    'Cost of a step of mGrad by prior',
    'Microseconds on one core. `python -m experiments bench --latent`.',
    'bench_latent.json',
    {
      'Case': ('group',),
      'Prior': ('prior',),
      'Precision': ('dtype',),
      'Chains': ('num_chains',),
      'd': ('event_size',),
      'Microseconds': ('microseconds',),
      'Speedup over dense': ('speedup',),
    },
  ),
  (
    'Restarts of runs',
    'Each in a process of its own: a finished run asked for with one thing '
    'changed must be refused; one that was stopped and is continued unchanged '
    'must end in the same bits. Seconds are those of telling runs apart. '
    '`python -m experiments.studies.restarts`.',
    'restarts.json',
    {
      'Restart': ('restart',),
      'Cases': ('num',),
      'Refused': ('refused',),
      'Same bits': ('same_bits',),
      'Neither': ('others',),
      'Median seconds': ('median_seconds',),
      'Most seconds': ('max_seconds',),
    },
  ),
  (
    'Runs that met a fault',
    'Killed, killed inside of a write, on a full disk, stopped by an error, or '
    'joined by a second writer, at random moments; then asked for again. '
    '`python -m experiments.studies.faults`.',
    'faults.json',
    {
      'Fault': ('kind',),
      'Cases': ('num',),
      'Ended in the same bits': ('same_bits',),
      'Most blocks computed twice': ('most_blocks_lost',),
      'Told in words': ('num_told',),
    },
  ),
  (
    'Sweeps in several processes',
    'Forty small cells, in one process and in several; digests of all that '
    'they drew, against those of one process. Between cells a worker measures '
    'and writes one and finds the next. '
    '`python -m experiments.studies.cluster`.',
    'cluster.json',
    {
      'Run in': ('way',),
      'Cells': ('num_cells',),
      'Lost': ('num_lost',),
      'Same bits': ('num_same_bits',),
      'Continued elsewhere': ('num_continued',),
      'Seconds': ('seconds',),
      'Of these in cells, all workers': ('seconds_in_cells',),
      'Between two cells': ('seconds_between_cells',),
    },
  ),
  (
    'Memory of kernels made one after the other',
    'In one process, megabytes that it holds. `python -m '
    'experiments.studies.bench_memory`.',
    'memory.json',
    {
      'Kernels': ('label',),
      'Number': ('num_kernels',),
      'After ten': ('megabytes_after_ten',),
      'After all': ('megabytes_after_all',),
      'Growth': ('growth_megabytes',),
      'Growth for each': ('growth_per_kernel',),
    },
  ),
  (
    'Broken inputs',
    'Configs, folders of runs and data files, by the seed of the fuzzer. '
    '`python -m experiments fuzz --seed 0 --seed 20261122`, a command that '
    'commit d5e03fa has last.',
    'fuzz.json',
    {
      'Seed': ('seed',),
      'Inputs': ('counts', 'all', 'inputs'),
      'Refused': ('counts', 'all', 'refused'),
      'Read': ('counts', 'all', 'accepted'),
      'Tracebacks': ('counts', 'all', 'traceback'),
      'Hangs': ('counts', 'all', 'hang'),
      'Wrongly read': ('counts', 'all', 'wrong accept'),
      'Wrongly refused': ('counts', 'all', 'wrong refusal'),
      'Longest message': ('counts', 'all', 'longest message'),
    },
  ),
)


def evaluation_page(panel, records, num_stale):
  """Returns the page as Markdown.

  Args:
    panel: the `Panel`.
    records: those that count.
    num_stale: how many were left out.
  """
  from experiments.panel import page
  from experiments.panel import page_tables
  from experiments.panel.grid import to_markdown
  from experiments.panel.summary import summarize

  parts = [_HEAD]
  if records:
    pairs = summarize(records)
    shown = [*page.tables(pairs), page_tables.truth_table(records)]
    parts.append(_WHOLE)
    parts += [to_markdown(_escaped(table)) for table in shown]
  else:
    parts.append(_NONE)
  if num_stale:
    parts.append(
      f'{num_stale} records of other settings, versions or references are '
      'left out.\n'
    )
  parts.append(to_markdown(progress_table(panel, records)))
  return '\n'.join(parts)


def progress_table(panel, records):
  """Returns the `Table` of runs that are in and that are missing."""
  from experiments.panel.grid import Table

  config = panel.config
  methods = config.method_labels()
  rows, num_in = [], 0
  for target in config.target_labels():
    seeds = {label: 0 for label in methods}
    done = dict(seeds)
    for record in records:
      if record['target'] == target:
        seeds[record['method']] += 1
        # A method that does not apply says so once.
        refused = record['status'] == 'refused'
        done[record['method']] = max(
          done[record['method']],
          config.num_seeds if refused else seeds[record['method']],
        )
    missing = [m for m in methods if done[m] < config.num_seeds]
    num_in += sum(done.values())
    named = ', '.join(missing)
    rows.append(
      [
        target,
        f'{sum(done.values())} of {len(methods) * config.num_seeds}',
        named if 0 < len(missing) < len(methods) else 'all' if missing else '-',
      ]
    )
  total = len(rows) * len(methods) * config.num_seeds
  note = (
    f'{num_in} of {total} runs are in: {len(rows)} targets, {len(methods)} '
    f'methods, {config.num_seeds} seeds; a method that does not apply to a '
    'target counts as done.'
  )
  header = ['Target', 'Runs that are in', 'Methods with runs missing']
  return Table('What is in, and what is missing', note, header, rows)


def measurement_tables(folder):
  """Returns Markdown tables of the other measurements kept as JSON."""
  from experiments.panel.grid import Table
  from experiments.panel.grid import to_markdown

  parts = []
  for title, note, name, columns in _MEASUREMENTS:
    path = pathlib.Path(folder) / name
    if not path.is_file():
      parts.append(f'## {title}\n\n{note} `{name}` is missing.\n')
      continue
    rows = [
      [_shown(_get(record, keys)) for keys in columns.values()]
      for record in _read(path)
    ]
    parts.append(to_markdown(Table(title, note, list(columns), rows)))
  return '\n'.join(parts)


def _escaped(table):
  """Returns the table with text that Markdown leaves as it is."""
  rows = [
    [
      cell._replace(text=_literal(cell.text))
      if hasattr(cell, 'text')
      else _literal(cell)
      for cell in row
    ]
    for row in table.rows
  ]
  return table._replace(rows=rows, note=_literal(table.note))


def _literal(text):
  for sign in ('\\', '*', '_', '<', '[', '`'):
    text = text.replace(sign, f'\\{sign}')
  return text.replace('\n', ' ')


def _read(path):
  text = path.read_text(encoding='utf-8')
  if path.suffix == '.jsonl':
    return [json.loads(line) for line in text.splitlines() if line]
  values = json.loads(text)
  return values['runs'] if isinstance(values, dict) else values


def _get(record, keys):
  for key in keys:
    record = record[key] if isinstance(key, int) else record.get(key)
  return record


def _shown(value):
  from experiments.panel.grid import number

  if isinstance(value, float):
    return f'{value:g}' if value.is_integer() else number(value)
  return '-' if value is None else str(value)


def _write(folder):
  from experiments.panel import page
  from experiments.panel.cells import CellFile
  from experiments.panel.cells import DEFAULT_OUTPUT
  from experiments.studies.panel.config import DEFAULT as DEFAULT_CONFIG
  from experiments.studies.panel.config import load_panel

  panel = load_panel(DEFAULT_CONFIG)
  records, num_stale = page.select(panel, CellFile(DEFAULT_OUTPUT))
  text = evaluation_page(panel, records, num_stale)
  (folder / 'evaluation_tables.md').write_text(text, encoding='utf-8')
  text = f'# Other measurements\n\n{measurement_tables(folder / "results")}'
  (folder / 'measurements.md').write_text(text, encoding='utf-8')
  whole = folder / 'panel.html'
  whole.unlink(missing_ok=True)
  if records:
    whole.write_text(page.to_page(panel, records, num_stale), encoding='utf-8')


if __name__ == '__main__':
  _write(pathlib.Path(sys.argv[1]))
