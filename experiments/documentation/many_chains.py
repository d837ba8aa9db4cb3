"""The tables and the figure of docs/results/many_chains.md, from the records.

  python -m experiments.documentation.many_chains

writes each table between its two comments, which a test compares, and the PNG.
"""

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_lines

__all__ = ['draw', 'with_tables']

_PAGE = page('many_chains')
_RECORDS = _PAGE.with_suffix('.jsonl')


def with_tables(text):
  """Returns the page's text with the tables between their comments."""
  records = _in_order(read_lines(_RECORDS))
  chains = [r for r in records if r['kind'] == 'chains']
  coordinates = [r for r in records if r['kind'] == 'coordinates']
  tables = [_of_speed(chains), _of_efficiency(chains), _of_size(coordinates)]
  return fill(text, 'many_chains', tables)


def _in_order(records):
  names = list(dict.fromkeys(r['name'] for r in records))
  return sorted(
    records, key=lambda r: (names.index(r['name']), r['num_chains'])
  )


def _of_speed(records):
  fewest = {
    r['name']: r
    for r in sorted(records, key=lambda r: r['num_chains'], reverse=True)
  }
  rows = []
  for r in records:
    first = fewest[r['name']]
    cells = [r['name'], f'{r["num_chains"]:,}']
    for phase in ('frozen', 'adapting'):
      cost = r[phase] / r['num_chains']
      ratio = cost / (first[phase] / first['num_chains'])
      cells += [f'{cost:.2f}', f'{ratio:.2f}']
    rows.append([*cells, f'{r["megabytes"]:.0f}'])
  few = 'of what it is for 10'
  head = ('Sampler', 'Chains', 'Step of a chain, frozen, us', few)
  return table((*head, 'adapting, us', few, 'Memory, MiB'), rows)


def _of_efficiency(records):
  head = (
    *('Sampler', 'Chains that taught', 'Adapting steps', 'Condition left'),
    *('Worst direction', 'Median direction', 'ESS per step, worst'),
    'Acceptance',
  )
  rows = [
    [
      *(r['name'], f'{r["num_chains"]:,}', str(r['num_adaptation_steps'])),
      *(f'{r[key]:.3f}' for key in ('condition_left', 'min_ratio')),
      *(f'{r[key]:.3f}' for key in ('median_ratio', 'ess_per_step')),
      f'{r["frozen_accept"]:.3f}',
    ]
    for r in records
    if 'min_ratio' in r
  ]
  return table(head, rows)


def _of_size(records):
  head = (
    *('Sampler', 'd', 'Adapting steps', 'Step, frozen, ms', 'adapting, ms'),
    *('Memory, MiB', 'Error of a scale, median', 'largest'),
    'Rounding of a difference of log densities',
  )
  rows = [
    [
      *(r['name'], f'{r["event_size"]:,}', str(r['num_adaptation_steps'])),
      *(f'{r[key] / 1000:.1f}' for key in ('frozen', 'adapting')),
      f'{r["megabytes"]:.0f}',
      *(
        f'{r[key]:.2g}'
        for key in (
          *('median_scale_error', 'largest_scale_error', 'log_prob_error'),
        )
      ),
    ]
    for r in records
  ]
  return table(head, rows)


def draw(records):
  """Returns a figure of the cost of a chain's step over the chains."""
  from matplotlib import figure

  shown = figure.Figure(figsize=(5.0, 3.4), layout='constrained')
  axes = shown.subplots()
  names = dict.fromkeys(r['name'] for r in records if r['kind'] == 'chains')
  for color, name in enumerate(names):
    found = [r for r in records if r['name'] == name]
    for phase, style in (('frozen', '-'), ('adapting', '--')):
      axes.loglog(
        [r['num_chains'] for r in found],
        [r[phase] / r['num_chains'] for r in found],
        f'C{color}o{style}',
        label=name if phase == 'frozen' else None,
        markersize=3,
      )
  axes.set_xlabel('chains')
  axes.set_ylabel('microseconds per step of a chain')
  axes.legend(title='dashed: while it adapts', fontsize='small')
  return shown


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
  draw(_in_order(read_lines(_RECORDS))).savefig(
    _PAGE.with_suffix('.png'), dpi=90
  )
