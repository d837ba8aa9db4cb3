"""Broken folders of runs: edited, cut, swapped, repeated, gone."""

import functools
import json
import pathlib
import shutil
import tempfile

import numpy as np

from experiments.framework import config as configs
from experiments.framework import moments
from experiments.framework import outputs
from experiments.framework import sessions
from experiments.framework import storage
from experiments.framework import tables
from experiments.framework.storage import RunFolder
from experiments.fuzz.case import ACCEPT
from experiments.fuzz.case import Case
from experiments.fuzz.case import EITHER
from experiments.fuzz.case import pick
from experiments.fuzz.case import REFUSE
from experiments.fuzz.cells import write_cells
from experiments.fuzz.config_texts import flipped
from experiments.fuzz.config_texts import truncated
from experiments.fuzz.config_values import RUN
from experiments.fuzz.values import at
from experiments.fuzz.values import changed
from experiments.fuzz.values import leaves
from experiments.fuzz.values import renamed
from experiments.fuzz.values import shuffled

__all__ = ['make']


def make(rng, folder):
  """Returns a `Case`: two runs below an empty folder, one of them broken."""
  original = _runs()
  for name in ('a', 'b'):
    shutil.copytree(original / name, folder / name)
  paths = [folder / 'a', folder / 'b']
  name = pick(rng, list(_MUTATIONS))
  expected = _MUTATIONS[name](rng, folder, paths)
  return Case(
    name, expected, f'{name} in a run', lambda: _load(paths, expected)
  )


@functools.cache
def _runs():
  """Returns a folder with two runs, `a` and `b`, that differ in their seed."""
  folder = pathlib.Path(tempfile.mkdtemp(prefix='fuzz-runs-'))
  rng = np.random.default_rng(0)
  for name, seed in (('a', 3), ('b', 4)):
    config = configs.parse_config({**RUN, 'seed': seed})
    run = RunFolder.create(folder / name, config)
    session = {'command': ['run'], 'versions': {}}
    outputs.write_json(run.path / 'run.json', [session])
    write_cells(rng, run, config)
  return folder


def _read(paths):
  """Returns all that `report` and the figures take from runs."""
  joined = storage.join_runs(paths)
  arrays = []
  for path in paths:
    run = RunFolder.open(path)
    sessions.read(run.path)
    config = run.config()
    for index, label in enumerate(config.labels()):
      for repeat in range(config.num_repeats):
        arrays.append(run.read_arrays(index, label, repeat))
  for name, records in joined.items():
    rows = tables.join(records)
    tables.to_markdown(name, rows)
    tables.to_html([(name, rows)])
    tables.to_rich(name, rows)
    moments.to_markdown(records)
  return joined, arrays


@functools.cache
def _as_written():
  return _read([_runs() / 'a', _runs() / 'b'])


def _load(paths, expected):
  joined, arrays = _read(paths)
  if expected == REFUSE:
    return None
  original, original_arrays = _as_written()
  if json.dumps(joined, sort_keys=True) != json.dumps(original, sort_keys=True):
    return 'other numbers than were written'
  for found, wanted in zip(arrays, original_arrays, strict=True):
    if set(found) != set(wanted) or any(
      not np.array_equal(found[k], wanted[k]) for k in wanted
    ):
      return 'other arrays than were written'
  return None


def _cells(path):
  return sorted(path.glob('cells/*/repeat_*'))


def _two_cells(rng, folder):
  cells = _cells(folder / 'a')
  one, other = (cells[i] for i in rng.permutation(len(cells))[:2])
  return one, other


def _swap(one, other):
  aside = one.with_name('aside')
  one.rename(aside)
  other.rename(one)
  aside.rename(other)


def _swap_cells(rng, folder, paths):
  _swap(*_two_cells(rng, folder))
  return REFUSE


def _swap_runs(rng, folder, paths):
  number = int(rng.integers(4))
  _swap(_cells(folder / 'a')[number], _cells(folder / 'b')[number])
  return REFUSE


def _swap_files(rng, folder, paths):
  one, other = _two_cells(rng, folder)
  if rng.random() < 0.5:
    other = _cells(folder / 'b')[_cells(folder / 'a').index(one)]
  name = pick(rng, ['cell.json', 'arrays.npz'])
  _swap(one / name, other / name)
  return REFUSE


def _repeat_cell(rng, folder, paths):
  one, other = _two_cells(rng, folder)
  shutil.rmtree(other)
  shutil.copytree(one, other)
  return REFUSE


def _repeat_under_name(rng, folder, paths):
  """A cell copied, its own word of which it is changed to fit."""
  one, other = _two_cells(rng, folder)
  kept = json.loads((other / 'cell.json').read_text())
  shutil.rmtree(other)
  shutil.copytree(one, other)
  record = json.loads((other / 'cell.json').read_text())
  record.update(label=kept['label'], repeat=kept['repeat'])
  (other / 'cell.json').write_text(json.dumps(record))
  return REFUSE


def _move_cell(rng, folder, paths):
  one = pick(rng, _cells(folder / 'a'))
  if rng.random() < 0.5:
    one.rename(one.with_name(pick(rng, ['repeat_07', 'repeat_x', 'repeat_0'])))
  else:
    one.parent.rename(one.parent.with_name('07_other'))
  return REFUSE


def _remove_file(rng, folder, paths):
  names = ['cells/*/*/cell.json', 'cells/*/*/arrays.npz', 'config.yaml']
  pick(rng, sorted((folder / 'a').glob(pick(rng, names)))).unlink()
  return REFUSE


def _edit_number(rng, folder, paths):
  return _edited(rng, folder, lambda record: _with_other_number(rng, record))


def _with_other_number(rng, record):
  path = pick(rng, leaves(record, (int, float)))
  value = at(record, path)
  other = pick(
    rng, [value + 1, value * 1.5 + 1, -value - 1, float('nan'), 1e300]
  )
  return changed(record, path, other)


def _edit_key(rng, folder, paths):
  def edit(record):
    path = pick(rng, leaves(record))[:1]
    if 'seal' in record and rng.random() < 0.3:
      path = ('seal', *pick(rng, leaves(record['seal'])))
    if rng.random() < 0.5:
      return changed(record, path)
    return renamed(record, path, 'x')

  return _edited(rng, folder, edit)


def _edit_type(rng, folder, paths):
  wrong = [None, [], {}, 'x', True, [1], {'a': {'b': 1}}, 'x' * 5000]

  def edit(record):
    path = pick(rng, leaves(record))
    path = path[: 1 + int(rng.integers(len(path)))]
    values = [w for w in wrong if w != at(record, path)]
    return changed(record, path, pick(rng, values))

  return _edited(rng, folder, edit)


def _edited(rng, folder, edit):
  file = pick(rng, _cells(folder / 'a')) / 'cell.json'
  file.write_text(json.dumps(edit(json.loads(file.read_text()))))
  return REFUSE


def _reformat(rng, folder, paths):
  """Other white space, another order of the keys: the same numbers."""
  file = pick(rng, _cells(folder / 'a')) / 'cell.json'
  values = shuffled(rng, json.loads(file.read_text()))
  file.write_text(json.dumps(values, indent=int(rng.integers(5))) + '\n\n')
  return ACCEPT


def _not_json(rng, folder, paths):
  file = pick(
    rng,
    [pick(rng, _cells(folder / 'a')) / 'cell.json', folder / 'a' / 'run.json'],
  )
  depth = int(10 ** rng.uniform(3, 5.5))
  text = pick(
    rng,
    ['', 'null', '3', '"x"', '{', '{}', '[' * depth, '[' * depth + ']' * depth,
     '{"a":' * depth, '9' * 5000, f'[{"9" * 5000}]', 'NaN', '\0', '{"a": 1,}',
     '{"status": "finished"}', '{"label": []}', "{'a': 1}", '\u00ff' * 9000],
  )  # fmt: skip
  data = pick(
    rng, [text.encode(), text.encode('utf-16'), b'\xff' + text.encode()]
  )
  file.write_bytes(data)
  return REFUSE


def _file_data(rng, folder):
  names = [
    'cells/*/*/cell.json',
    'cells/*/*/arrays.npz',
    'config.yaml',
    'run.json',
  ]
  file = pick(rng, sorted((folder / 'a').glob(pick(rng, names))))
  return file, file.read_bytes()


def _flip(rng, folder, paths):
  file, data = _file_data(rng, folder)
  file.write_bytes(flipped(rng, data))
  return EITHER


def _truncate(rng, folder, paths):
  file, data = _file_data(rng, folder)
  file.write_bytes(truncated(rng, data))
  return EITHER


def _replace_arrays(rng, folder, paths):
  file = pick(rng, _cells(folder / 'a')) / 'arrays.npz'
  with np.load(file) as arrays:
    arrays = dict(arrays)
  name = pick(rng, list(arrays))
  arrays[name] = pick(
    rng,
    [arrays[name] + 1, np.asarray(['x']), np.asarray([{}], object),
     arrays[name] * 1j, np.zeros(0), np.zeros([3, 3, 3])],
  )  # fmt: skip
  np.savez_compressed(file, **arrays)
  return REFUSE


def _other_config(rng, folder, paths):
  file = folder / 'a' / 'config.yaml'
  text = file.read_text()
  edits = [
    ('num_results: 20', 'num_results: 30'), ('seed: 3', 'seed: 9'),
    ('label: first', 'label: other'), ('rho: 0.5', 'rho: 0.25'),
    ('num_repeats: 2', 'num_repeats: 1'), ('name: small', 'name: [small]'),
    ('num_repeats: 2', 'num_repeats: 3'), ('name: mala', 'name: rwm'),
    ('num_chains: 2', 'num_chains: 2\nnum_chains: 5'), ('seed: 3', 'seed: ['),
  ]  # fmt: skip
  old, new = pick(rng, edits)
  assert old in text
  file.write_text(text.replace(old, new))
  return REFUSE


def _comment(rng, folder, paths):
  file = folder / 'a' / 'config.yaml'
  file.write_text('# Why not.\n' + file.read_text().replace('\n', '  # x\n', 1))
  return ACCEPT


def _same_run_twice(rng, folder, paths):
  other = folder / 'a'
  if rng.random() < 0.7:
    other = folder / 'copy'
    shutil.copytree(folder / 'a', other)
  if rng.random() < 0.5:
    other = folder / 'b' / '..' / other.name
  paths[1] = other
  return REFUSE


def _no_run(rng, folder, paths):
  (folder / 'empty').mkdir()
  names = ['empty', 'none', 'x' * 400, 'a\0b', 'a/config.yaml', 'a/cells', '~x']
  paths[1] = folder / pick(rng, names)
  return REFUSE


def _folder_for_file(rng, folder, paths):
  file, _ = _file_data(rng, folder)
  file.unlink()
  file.mkdir()
  return REFUSE


def _leftover(rng, folder, paths):
  """What a killed process leaves behind, and what a run writes at its end."""
  cell = pick(rng, _cells(folder / 'a'))
  shutil.copytree(cell, cell.with_name(f'.{cell.name}.123'))
  (folder / 'a' / 'checkpoints').mkdir()
  (folder / 'a' / 'results.json').write_text('[')
  return ACCEPT


_MUTATIONS = {
  'cells swapped': _swap_cells,
  'cells of runs swapped': _swap_runs,
  'files swapped': _swap_files,
  'cell repeated': _repeat_cell,
  'cell repeated under a name': _repeat_under_name,
  'cell moved': _move_cell,
  'file removed': _remove_file,
  'number edited': _edit_number,
  'key edited': _edit_key,
  'type edited': _edit_type,
  'json reformatted': _reformat,
  'not json': _not_json,
  'bytes flipped': _flip,
  'truncated': _truncate,
  'arrays replaced': _replace_arrays,
  'config edited': _other_config,
  'comment in config': _comment,
  'run twice': _same_run_twice,
  'no run': _no_run,
  'folder for a file': _folder_for_file,
  'leftovers': _leftover,
}
