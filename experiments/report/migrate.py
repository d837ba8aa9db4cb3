"""Writes records/ once, from the results that were kept in docs/results.

  python -m experiments.report.migrate

What a table of a page shows at so many digits is kept at these digits.
"""

import gzip
import json
import pathlib
import re

from experiments.report import runs

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_RESULTS = _ROOT / 'docs' / 'results'
_RECORDS = _ROOT / 'records'
_LARGE = 300_000
_FIELDS = (
  *('study', 'case', 'seed', 'key', 'status', 'record', 'error'),
  *('wall_seconds', 'cpu_seconds', 'commit', 'versions', 'machine', 'written'),
)
# Study: file, and the names of what makes a case.
_FILES = {
  'bench': ('bench.json', 'num_chains event_size'),
  'bench_hamiltonian': (
    'bench_hamiltonian.json',
    'name num_chains event_size',
  ),
  'bench_latent': ('bench_latent.json', 'group prior dtype num_chains'),
  'brownian_motion': ('brownian_motion.jsonl', 'label'),
  'cluster': ('cluster.json', 'way'),
  'compilation': ('compilation.json', 'label'),
  'draws_on_disk': ('draws_on_disk.json', 'label draws'),
  'faults': ('faults.json', 'kind'),
  'surrogate_trajectories': (
    'figure2_acceptance.json',
    'surrogate event_size size',
  ),
  'surrogate_history': ('figure3_banana.json', 'method size'),
  'skew_normal': ('figure4_skew_normal.json', 'label'),
  'full_path': ('front_door/full_path.jsonl', 'target'),
  'front_door': ('front_door/runs.jsonl', 'target'),
  'ablation': ('geometry/ablation.jsonl', 'target method'),
  'fisher_start': ('geometry/fisher_start.jsonl', 'case num_gradients'),
  'fit_cost': ('geometry/fit_cost.jsonl', 'case'),
  'geometry': ('geometry/cells.jsonl.gz', 'target method'),
  'gpu_programs': ('gpu_programs.jsonl', 'name device'),
  'local_steps': ('local_steps.jsonl', 'name method'),
  'many_chains': ('many_chains.jsonl', 'kind name num_chains event_size'),
  'memory': ('memory.json', 'label'),
  'oracle': ('oracle.jsonl', 'case'),
  'outlook': ('outlook.jsonl', 'target way'),
  'pooled_chains': ('pooled_chains.jsonl', 'num_chains num_adaptation_steps'),
  'posteriordb': ('posteriordb.jsonl', 'name sampler'),
  'restarts': ('restarts.json', 'restart'),
  'right_answers': ('right_answers.jsonl', 'study case'),
  'rivals': ('rivals/runs.jsonl', 'posterior sampler'),
  'rivals_densities': ('rivals/densities.jsonl', 'posterior'),
  'tempering': ('tempering.jsonl', 'name method budget'),
}


def _envelope(study, case, record, seed=0, **others):
  values = dict.fromkeys(_FIELDS)
  values.update(study=study, case=case, seed=seed, status='finished')
  return {**values, **others, 'record': record}


def _text(value):
  if isinstance(value, list):
    return ' | '.join(map(_text, value))
  return f'{value:g}' if isinstance(value, float) else str(value)


def _one(study, row, names, tail=''):
  """Returns an old row as a record; what makes its case is taken out."""
  row = dict(row)
  parts = [_text(row.pop(name)) for name in names.split() if name in row]
  case = ' | '.join(parts) + tail
  seed = row.pop('seed', row.pop('repeat', row.pop('trial', 0)))
  row.pop('key', None)
  version = row.pop('version', row.pop('library', None))
  versions = row.pop('versions', version and {'tfp_adaptive': version})
  others = {n: row.pop(n) for n in ('commit', 'written', 'error') if n in row}
  status = row.pop('status', 'finished')
  return _envelope(
    study, case, row, seed, status=status, versions=versions, **others
  )


def _rows(name):
  path = _RESULTS / name
  content = path.read_bytes()
  if path.suffix == '.gz':
    content = gzip.decompress(content)
  text = content.decode()
  if '.jsonl' in name:
    return [json.loads(line) for line in text.splitlines() if line]
  return json.loads(text)


def _simple():
  for study, (name, names) in _FILES.items():
    rows = _rows(name)
    if study == 'geometry':  # The latest line of a cell counts.
      keys = ('target', 'method', 'seed', 'key')
      rows = list({tuple(r[k] for k in keys): r for r in rows}.values())
    if study == 'brownian_motion':  # In the order of its page.
      lines = _tables((_RESULTS / 'brownian_motion.md').read_text())[0]
      labels = [_cells(line)[0] for line in lines]
      rows.sort(key=lambda row: labels.index(row['label']))
    tails = [''] * len(rows)
    if study == 'outlook':
      tails = [
        f' | {json.dumps(list(r["setting"].values()))}'
        if r['way'] == 'grid'
        else ''
        for r in rows
      ]
    yield study, [_one(study, *pair) for pair in _pairs(rows, names, tails)]


def _pairs(rows, names, tails):
  return ((row, names, tail) for row, tail in zip(rows, tails))


def _panel():
  """Yields the panel's records that fit its config, in the config's order."""
  from experiments.panel import page
  from experiments.panel.cells import CellFile
  from experiments.panel.cli import DEFAULT_CONFIG
  from experiments.panel.cli import DEFAULT_OUTPUT
  from experiments.panel.config import load_panel

  panel = load_panel(DEFAULT_CONFIG)
  rows, num_stale = page.select(panel, CellFile(DEFAULT_OUTPUT))
  print('panel', len(rows), 'records,', num_stale, 'stale')
  yield 'panel', [_one('panel', row, 'target method') for row in rows]


def _nested():
  """Yields what was kept as one JSON object, or in several files."""
  from experiments.calibration import verdicts

  content = _rows('calibration.json')
  rows = []
  for row in content['rows']:
    more = {'sizes': content['sizes']}
    if row['is_control']:
      more['power'] = verdicts.power(row)
    rows.append(_one('calibration', {**row, **more}, 'kernel model'))
  yield 'calibration', rows
  content = _rows('fuzz.json')
  yield (
    'fuzz',
    [_envelope('fuzz', 'all', r['counts'], r['seed']) for r in content['runs']],
  )
  content = _rows('placement.json')
  versions = {'tensorflow': content['tensorflow']}
  rows = [{**row, 'versions': versions} for row in content['rows']]
  yield 'placement', [_one('placement', row, 'name') for row in rows]
  for study, name in (
    ('shards', 'shards.json'),
    ('gpu_tensorflow', 'gpu_tensorflow.json'),
    ('exact_draws', 'geometry/exact_draws.json'),
  ):
    content = _rows(name)
    case = content.pop('target', 'all')
    yield study, [_envelope(study, case, content)]
  rows = _rows('trajectory_length/cost.json').items()
  study = 'trajectory_cost'
  yield study, [_envelope(study, *pair) for pair in rows]
  study = 'trajectory_lengths'
  rows = []
  for row in _rows('trajectory_length/lengths.jsonl'):
    law = row['law'] or 'learned'
    name = law if isinstance(law, str) else '{} to {}'.format(*law)
    rows.append(_one(study, row, 'target', f' | {name}'))
  yield study, rows
  study = 'bench_surrogate'
  rows = []
  for row in _rows('bench_surrogate.jsonl'):
    is_memory = 'num_steps' in row
    names = 'num_chains num_features num_adaptation_steps'
    found = _one(study, row, 'num_steps' if is_memory else names)
    # Measured more than once.
    found['seed'] = sum(r['case'] == found['case'] for r in rows)
    rows.append(found)
  yield study, rows
  study = 'quickstart'
  rows = [
    *_rows('quickstart/runs.jsonl'),
    *_rows('quickstart/other_seeds.jsonl'),
  ]
  yield study, [_one(study, row, 'posterior sampler') for row in rows]


def _pattern(template):
  """Returns a regular expression of a cell, and the fields in it."""
  parts = re.split(r'(\{[^}]*\})', template)
  text = ''.join(
    f'(?P<{re.split("[:}]", part[1:])[0]}>[^ ,()]+)'
    if part.startswith('{') and part.endswith('}')
    else re.escape(part)
    for part in parts
  )
  # One repeat has no deviation.
  return text.replace(
    r'\ \((?P<min_ess_per_second_sd>[^ ,()]+)\)',
    r'(?:\ \((?P<min_ess_per_second_sd>[^ ,()]+)\))?',
  )


def _number(text, is_count=False):
  if text is None or text == '-':
    return None
  if text == '>1000':  # How much more says nothing.
    return 1000.0
  return int(text) if re.fullmatch(r'\d+', text) else float(text)


def _of_table(lines):
  """Returns {label: record} of a table in the papers' layout."""
  head, _, *rows = [_cells(line) for line in lines]
  found = []
  for label, *row in rows:
    record = {
      name: None
      for template in runs.COLUMNS.values()
      for name in re.findall(r'\{(\w+)', template)
    }
    record.update(num_failed=0, num_singular=0)
    for name, cell in zip(head[1:], row, strict=True):
      cell = cell.replace('> 1000', '>1000')
      if name == 'Repeats' and 'failed' in cell:
        cell, failed = re.fullmatch(r'(\d+) \(\+ (\d+) failed\)', cell).groups()
        record['num_failed'] = int(failed)
      singular = re.search(r' ?\(?(\d+) singular\)?', cell)
      if singular:
        record['num_singular'] = int(singular[1])
        cell = cell.replace(singular[0], '')
        cell = f'{cell} -' if cell.endswith(',') else cell
      match = re.fullmatch(_pattern(runs.COLUMNS[name]), cell)
      record.update({k: _number(v) for k, v in match.groupdict().items()})
    shown = runs.cells(record, head[1:])
    assert shown == row, (shown, row)
    found.append((label, record))
  return found


_MOMENTS = ('Method', 'Quantity', 'Mean, known')


def _papers():
  """Yields records of the papers' runs, and rewrites their pages' tables."""
  for path in sorted(_RESULTS.glob('*.md')):
    text = path.read_text()
    tables = _tables(text)
    names, number = {}, 0
    for lines in tables:
      head = _cells(lines[0])
      if head[:2] == ['Method', 'Time(s)']:
        number += 1
        name = path.stem + ('' if number == 1 else '_more')
        found = _of_table(lines)
        call = f"runs('{name}')"
        if name == 'neals_gaussian_more':  # Other methods of the same config.
          name = path.stem
          call = f"runs('{name}', {len(names[name])})"
        names.setdefault(name, []).extend(found)
      elif tuple(head[:3]) == _MOMENTS:
        _add_moments(names[name], [_cells(line) for line in lines[2:]])
        call = f"moments('{name}')"
      else:
        continue
      text = text.replace('\n'.join(lines), f'{{{{ {call} }}}}', 1)
    for name, found in names.items():
      study = f'papers/{name}'
      yield study, [_envelope(study, *pair, seed=None) for pair in found]
    if names:
      path.write_text(text)


def _by_hand():
  """Yields records of tables that were written by hand."""
  tables = _tables((_RESULTS / 'gp_wine.md').read_text())
  rows = []
  for line in tables[0][2:]:
    method, chains, steps, accept, *cells = _cells(line.replace('**', ''))
    ess, per_estimate, *distances, seconds = cells
    adapting, sampling = map(int, steps.split(' + '))
    steps_of_mmd = (500, 1000, 2000, 3000, 4000)
    record = {
      'num_adaptation_steps': adapting,
      'num_results': sampling,
      'accept_rate': float(accept),
      'min_ess': [float(text) for text in ess.split(', ')],
      'min_ess_per_estimate': float(per_estimate),
      'mmd': {str(n): float(d) for n, d in zip(steps_of_mmd, distances) if d},
      'seconds': float(seconds),
    }
    case = f'{method} | {chains}'
    rows.append(_envelope('papers/gp_wine', case, record, seed=None))
  yield 'papers/gp_wine', rows

  rows = []
  for line in _tables((_RESULTS / 'heart_iteration_cost.md').read_text())[0][
    2:
  ]:
    kernel, microseconds, _ = _cells(line)
    record = {'microseconds': float(microseconds)}
    rows.append(_envelope('iteration_cost', kernel, record))
  yield 'iteration_cost', rows

  study = 'hyperparameters'
  rows = []
  for name in ('heart', 'pima'):
    for lines in _tables((_RESULTS / f'{name}_hyperparameters.md').read_text()):
      head, _, *lines = map(_cells, lines)
      if head[1] != 'log sigma':
        continue
      for method, log_sigma, log_l, *others in lines:
        pairs = [[float(t) for t in text.split(', ')] for text in others]
        names = ('blocks', 'accept_rate')
        if name == 'pima':
          names = ('mean', 'deviation')
        record = {'log_sigma': float(log_sigma), 'log_l': float(log_l)}
        record['num_finished'] = 1
        record.update(zip(names, pairs))
        if name == 'heart':
          record['accept_rate'] = record['accept_rate'][0]
        rows.append(_envelope(study, f'{name} | {method}', record, seed=None))
  yield study, rows

  study = 'pixels'
  rows = []
  for line in _tables((_RESULTS / 'mnist.md').read_text())[0][2:]:
    pixels, scales = _cells(line)
    record = {'scale': [float(scale) for scale in scales.split(', ')]}
    rows.append(_envelope(study, pixels, record, seed=None))
  yield study, rows


def _add_moments(found, rows):
  """Adds the comparison with the known posterior to the methods' records."""
  records = dict(found)
  for label, quantity, mean, deviation, mean_z, deviation_z in rows:
    values = {
      'quantity': quantity,
      'worst_mean_z': _number(mean_z),
      'worst_deviation_z': _number(deviation_z),
    }
    if mean.startswith('worst of '):
      values['size'] = int(mean.removeprefix('worst of '))
    else:
      for name, cell in (('mean', mean), ('deviation', deviation)):
        values[name], values[f'known_{name}'] = map(float, cell.split(', '))
    records[label].setdefault('moments', []).append(values)


def _tables(text):
  """Returns the tables of a page, each a list of lines."""
  tables, lines = [], []
  for line in [*text.split('\n'), '']:
    if line.startswith('|'):
      lines.append(line)
    elif lines:
      tables.append(lines)
      lines = []
  return tables


def _cells(line):
  return [cell.strip() for cell in line.strip().strip('|').split('|')]


def _write(study, rows):
  cells = [(row['case'], row['seed'], row['key']) for row in rows]
  assert len(set(cells)) == len(cells), study
  text = ''.join(
    json.dumps(row, allow_nan=False, ensure_ascii=False) + '\n' for row in rows
  )
  path = _RECORDS / f'{study}.jsonl'
  path.parent.mkdir(parents=True, exist_ok=True)
  if len(text.encode()) > _LARGE:
    packed = gzip.compress(text.encode(), 9, mtime=0)
    path.with_suffix('.jsonl.gz').write_bytes(packed)
  else:
    path.write_text(text)
  print(study, len(rows))


def main():
  for source in (_simple, _nested, _panel, _papers, _by_hand):
    for study, rows in source():
      _write(study, rows)


if __name__ == '__main__':
  main()
