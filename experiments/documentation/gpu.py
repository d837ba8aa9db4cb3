"""The tables of docs/results/gpu.md, made from the records.

  python -m experiments.documentation.gpu

writes each between its two comments; a test compares.
"""

import statistics

from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_json
from experiments.framework.json_files import read_lines

__all__ = ['with_tables']

_PAGE = page('gpu')
_LOWERED = _PAGE.with_name('placement.json')
_PROGRAMS = _PAGE.with_name('gpu_programs.jsonl')
_TENSORFLOW = _PAGE.with_name('gpu_tensorflow.json')
_FEW, _LARGE_Z = 'frozen, few chains', 4.0
# Custom calls of HLO -> where they run, as far as known.
_EXPANDED = 'a pass of XLA expands it, on CPUs and GPUs'
_RUNS_ON = dict.fromkeys(
  ('Eigh', 'Qr', 'ProductOfElementaryHouseholderReflectors'), _EXPANDED
)
_PHASES = ('adapting', 'frozen')


def with_tables(text):
  """Returns the page's text with the tables between their comments."""
  rows = read_json(_LOWERED)['rows']
  records = read_lines(_PROGRAMS)
  on_gpu = [r for r in records if not _is_cpu(r)]
  tables = [
    *_of_tensorflow(read_json(_TENSORFLOW)),
    *(_of_programs(on_gpu), _of_large(records)),
    *(_of_all(rows), _of_kernels(rows), _of_each_program(on_gpu)),
  ]
  return fill(text, 'gpu', tables)


def _of_tensorflow(record):
  """Returns tables of the tests and of the posteriors that ran there."""
  tests, runs = record['tests'], record['posteriors']
  failed = [name for names in tests['failed'].values() for name in names]
  lines = [
    ('Device; TensorFlow', f'{record["device"]}; {record["tensorflow"]}'),
    ('Tests that ran', str(tests['passed'] + len(failed))),
    ('of them failed', str(len(failed))),
    *((reason, str(len(names))) for reason, names in tests['failed'].items()),
    ('Not reached in the time there was', str(tests['not_reached'])),
  ]
  head = ('Posterior', 'Device, host cores', 'Verdict', 'Seconds, of CPU')
  head += ('Gradients of a chain', 'Largest difference of a mean')
  rows = []
  for run in runs:
    name = run['posterior']
    distances = [
      f'{_distance(run["means"], other["means"]):.1f}'
      for other in runs
      if other['posterior'] == name and other['device'] != run['device']
    ]
    rows.append(
      [
        name,
        f'{run["device"]}, {run["cores"]}',
        'converged' if run['converged'] else 'NOT CONVERGED',
        f'{run["seconds"]:.0f}, {run["cpu_seconds"]:.0f}',
        f'{run["num_gradients"]:,.0f}',
        *(distances or ['-']),
      ]
    )
  return table(('', ''), lines), table(head, rows)


def _distance(means, others):
  """Returns the largest difference of two runs' means, in standard errors."""
  return max(
    abs(mean - others[name][0]) / (error**2 + others[name][1] ** 2) ** 0.5
    for name, (mean, error) in means.items()
  )


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


def _of_large(records):
  """Returns a line for each larger target and number of chains."""
  head = (
    'Target, kernel',
    'Chains',
    'GPU, steps of a chain per second',
    'CPU',
    'Ratio',
  )
  by_device = {
    (r['name'], _is_cpu(r), program): rate
    for r in records
    for program, rate in r.get('chain_steps', {}).items()
  }
  rows = []
  for name, is_cpu, program in by_device:
    if is_cpu or not program.endswith(' chains') or 'few' in program:
      continue
    on_cpu = by_device[name.removesuffix(', by loops'), True, program]
    rates = [by_device[name, False, program], on_cpu]
    number = program.removeprefix('frozen, ').removesuffix(' chains')
    rows.append(
      [name, number, *map(_rate, rates), f'{rates[0] / rates[1]:.3g}']
    )
  return table(head, rows)


def _of_programs(records):
  """Returns lines on all kernels that ran on the GPU together."""
  judged = [r for r in records if r.get('z')]
  failed = [r for r in records if 'error' in r]
  worst = [max(r['z'][k] for k in _PHASES) for r in judged]
  others = [r['z']['other law'] for r in judged]
  beyond = [r['name'] for r, z in zip(judged, worst) if z > _LARGE_Z]
  seconds = [s for r in judged for s in r['compile_seconds'].values()]
  devices = sorted({r['device'] for r in judged})
  versions = sorted({r['jax'] for r in judged})
  return table(
    ('', ''),
    [
      ('Device; XLA', f'{", ".join(devices)}; of JAX {", ".join(versions)}'),
      ('Kernels that ran, of those tried', _share(judged, failed)),
      (
        'Largest z of any, and its median',
        f'{max(worst):.1f}, {_median(worst)}',
      ),
      (f'Kernels above {_LARGE_Z:.0f}', ', '.join(beyond) or 'none'),
      (
        'Least z of another law, and its median',
        f'{min(others):.1f}, {_median(others)}',
      ),
      (
        'Seconds to compile a program, median and most',
        f'{_median(seconds)}, {max(seconds):.0f}',
      ),
    ],
  )


def _share(judged, failed):
  return f'{len(judged)} of {len(judged) + len(failed)}'


def _of_each_program(records):
  """Returns a line for each kernel that ran, or was refused."""
  head = (
    'Kernel',
    'Worst z: adapting, frozen',
    'of another law',
    'Steps of a chain per second: adapting',
    'frozen, 10 000 chains',
    'frozen, 100 chains',
  )
  rows = []
  for r in records:
    if 'error' in r:
      rows.append([r['name'], r['error'].partition(':')[0], *'----'])
    elif r['z']:
      z, rates = r['z'], r['chain_steps']
      rows.append(
        [
          r['name'],
          f'{z["adapting"]:.1f}, {z["frozen"]:.1f}',
          f'{z["other law"]:.0f}',
          *(_rate(rates[k]) for k in ('adapting', 'frozen', _FEW)),
        ]
      )
  return table(head, rows)


def _is_cpu(record):
  return record['device'] == 'cpu'


def _rate(value):
  return f'{float(f"{value:.2g}"):,.0f}'


def _median(values):
  return f'{statistics.median(values):.1f}'


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
