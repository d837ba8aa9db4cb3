"""The tables of docs/results/gpu.md, made from the records.

  python -m experiments.documentation.gpu

writes each between its two comments; a test compares.
"""

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_json

__all__ = ['with_tables']

_PAGE = page('gpu')
_LOWERED = _PAGE.with_name('placement.json')
_MEASURED = _PAGE.with_suffix('.json')  # There once someone had a GPU.
# Custom calls of HLO -> where they run, as far as known.
_EXPANDED = 'a pass of XLA expands it, on CPUs and GPUs'
_RUNS_ON = dict.fromkeys(
  ('Eigh', 'Qr', 'ProductOfElementaryHouseholderReflectors'), _EXPANDED
)
_PHASES = ('adapting', 'frozen')


def with_tables(text):
  """Returns the page's text with the tables between their comments."""
  rows = read_json(_LOWERED)['rows']
  measured = read_json(_MEASURED) if _MEASURED.exists() else []
  tables = [_of_all(rows), _of_kernels(rows), _of_devices(measured)]
  return fill(text, 'gpu', tables)


def _of_all(rows):
  """Returns lines on all kernels together."""
  lowered = [r[p] for r in rows for p in _PHASES if r[p]['lowers']]
  calls = sorted({call for part in lowered for call in part['custom_calls']})
  doubles = [
    sum(bool(r[phase].get('num_float64')) for r in rows) for phase in _PHASES
  ]
  cells = [
    ('Kernels, a builder with its parts', str(len(rows))),
    ('Steps that lower for a GPU', f'{len(lowered)} of {2 * len(rows)}'),
    (
      'Kernels whose adapting step is for a GPU what it is for a CPU, by the '
      'number of instructions of each shape',
      str(sum(r['same_as_on_cpu'] for r in rows)),
    ),
    (
      'Custom calls',
      '; '.join(f'`{c}`: {_RUNS_ON.get(c, "unknown")}' for c in calls) or '-',
    ),
    (
      'Kernels of float32 that compute in float64 while they adapt, and after',
      '{}, {}'.format(*doubles),
    ),
  ]
  return table(('', ''), cells)


def _of_kernels(rows):
  """Returns a line for each kernel."""
  head = (
    'Kernel',
    'Lowers: adapting, frozen',
    'HLO, kB',
    'Custom calls',
    'Instructions in float64',
    'Loops',
    'Dense products',
  )
  return table(head, [_cells(row) for row in rows])


def _cells(row):
  parts = [row[phase] for phase in _PHASES]
  calls = sorted({c for part in parts for c in part.get('custom_calls', ())})

  def both(values):
    return ', '.join(str(value) for value in values)

  return [
    row['name'],
    both('yes' if p['lowers'] else f'no: {p["op"]}' for p in parts),
    both(p.get('kilobytes', '-') for p in parts),
    ', '.join(calls) or '-',
    both(p.get('num_float64', '-') for p in parts),
    both(p.get('opcodes', {}).get('while', 0) for p in parts),
    both(p.get('opcodes', {}).get('dot', 0) for p in parts),
  ]


def _of_devices(measured):
  """Returns a line for each kernel on a device, or that there is none."""
  head = (
    'Kernel',
    'Device',
    'TF32',
    'Worst z',
    'of another law',
    'Compile, s',
    'Chain steps per second, by chains',
    'Chains that fill it',
  )
  rows = [
    [
      row['name'],
      row['device'].rpartition('device:')[2],
      'on' if row['tensor_float_32'] else 'off',
      f'{row["worst_z"]:.1f}',
      f'{row["other_law_z"]:.1f}',
      f'{row["compile_seconds"]:.1f}',
      ', '.join(f'{b}: {v:.3g}' for b, v in row['chain_steps'].items()),
      str(row['saturation']),
    ]
    for row in measured
  ]
  return table(head, rows or [['**not run on a GPU**'] + ['-'] * 7])


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
