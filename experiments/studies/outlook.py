"""Kept momenta, and mixtures of lengths with a factor each, against HMC.

  python -m experiments.studies.outlook --data-dir data

Two ideas that the papers leave for later, beside the HMC by Fisher divergence
whose range of lengths is learned. Eight chains. Every way takes its factor and
its first states from one run of it, or its factors from runs by the speed
measure; step sizes are set by a wanted acceptance, then 12500 gradients of a
chain are frozen. Settings are chosen on seeds 100 and 101 from grids, for all
targets at once and for each alone; records of the ways are of seeds 0 to 2.
"""

import argparse
import json
import pathlib

import numpy as np

from experiments.framework.json_files import append_lines
from experiments.framework.json_files import read_lines
from experiments.studies.length_targets import TARGETS as MODELS
from experiments.studies.outlook_runs import Problem
from experiments.studies.outlook_runs import Runs
from experiments.studies.outlook_runs import Setting
from experiments.targets.gaussians import gaussian_target
from experiments.targets.gaussians import rotated_covariance

__all__ = ['TARGETS', 'least', 'measure', 'ways']

_OUTPUT = pathlib.Path('docs/results/outlook.jsonl')
_GRID_SEEDS, _SEEDS = (100, 101), (0, 1, 2)
# The settings for all targets are chosen on these.
_GRID_TARGETS = ('heart', 'varying slopes', 'Student-t', 'Gaussian')


def _gaussian(data_dir):
  """A rotated Gaussian, d = 100, condition 1e4."""
  del data_dir
  covariance = rotated_covariance(np.geomspace(1.0, 1e4, 100), seed=7)
  target = gaussian_target('Gaussian', covariance, 'float64')
  return target.target_log_prob_fn, target.event_size


TARGETS = {
  **{k: v for k, v in MODELS.items() if k != 'regression, simulated'},
  'Gaussian': _gaussian,
}
HMC_GRID = [
  Setting((pair,), accept)
  for pair in ((2, 2), (2, 3), (3, 4), (3, 5), (4, 4), (4, 6))
  for accept in (0.65, 0.8, 0.9)
]
KEPT_GRID = [
  *(
    Setting(((1, 1),), accept, damping, True)
    for accept in (0.6, 0.7, 0.8)
    for damping in (0.5, 0.7, 1.0, 1.4)
  ),
  *(
    Setting(((2, 2),), accept, damping, True)
    for accept in (0.7, 0.8)
    for damping in (0.7, 1.0, 1.4)
  ),
]
_ONE, _MOST, _TWICE = (1, 1), ('most', 'most'), ('twice', 'twice')
FIXED_WAYS = {
  'default': Setting((('fewest', 'most'),)),
  'most': Setting((_MOST,)),
  '1 and most': Setting((_ONE, _MOST)),
  'most and twice': Setting((_MOST, _TWICE)),
  'speed, most': Setting((_MOST,), factor='speed'),
  'speed, 1 and most, one factor': Setting((_ONE, _MOST), factor='speed'),
  'speed, 1 and most, a factor each': Setting(
    (_ONE, _MOST), factor='speed', is_shared=False
  ),
}


def least(record):
  """Returns effective draws per 1000 gradients: bulk, tail or squares."""
  return min(record['bulk'], record['tail'], record['squares'])


def ways(rows, target):
  """Returns the settings of a target's records, by name.

  Args:
    rows: Records of the grids.
    target: Name.
  """
  found = dict(FIXED_WAYS)
  for length in (1, 2):
    of_length = [r for r in rows if r['setting']['lengths'] == [[length] * 2]]
    found[f'kept, L = {length}'] = _best(of_length, lambda s: s.damping)
  fresh = found['kept, L = 1']._replace(is_moved=False)
  found['kept, L = 1, uniform drawn anew'] = fresh
  own = [row for row in rows if row['target'] == target]
  if own:
    found['HMC, best of its grid'] = _best(own, lambda s: s.damping is None)
    found['kept, best of its grid'] = _best(own, lambda s: s.damping)
  return found


def _best(rows, belongs):
  """Returns the `Setting` with the greatest geometric mean."""
  values = {}
  for row in rows:
    setting = _setting(row)
    if belongs(setting):
      values.setdefault(setting, []).append(np.log(least(row)))
  return max(values, key=lambda setting: np.mean(values[setting]))


def _setting(row):
  fields = row['setting']
  lengths = tuple(map(tuple, fields['lengths']))
  return Setting(**{**fields, 'lengths': lengths})


def measure(name, jobs, seeds, options, done):
  """Appends the records that the file lacks.

  Args:
    name: Of `TARGETS`.
    jobs: Pairs of a name, 'grid' for a quick look, and a `Setting`.
    seeds: Ints.
    options: Has `data_dir` and `output`.
    done: Of the file: target, name and setting, seed.
  """
  problem = None
  for seed in seeds:
    runs = None
    for way, setting in jobs:
      fields = setting._asdict()
      if (name, way, json.dumps(fields), seed) in done:
        continue
      problem = problem or Problem(*TARGETS[name](options.data_dir))
      runs = runs or Runs(problem, seed)
      numbers = runs.measure(setting, is_quick=way == 'grid')
      record = dict(target=name, way=way, seed=seed, setting=fields, **numbers)
      append_lines(options.output, record)
      print(
        f'{name}, seed {seed}, {way}, {record["components"]}, accepted '
        f'{record["accepted"]:.2f}, kept {record["persistence"]:.2f}: '
        f'{least(record):.1f}',
        flush=True,
      )


def main():
  """Measures the grids, then the ways that they leave."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--output', type=pathlib.Path, default=_OUTPUT)
  parser.add_argument('--data-dir', type=pathlib.Path, default=None)
  parser.add_argument('--targets', nargs='*', default=[*TARGETS])
  options = parser.parse_args()
  rows = read_lines(options.output)
  done = {
    (r['target'], r['way'], json.dumps(r['setting']), r['seed']) for r in rows
  }
  grid = [('grid', setting) for setting in [*HMC_GRID, *KEPT_GRID]]
  for name in _GRID_TARGETS:
    measure(name, grid, _GRID_SEEDS, options, done)
  rows = [r for r in read_lines(options.output) if r['way'] == 'grid']
  for name in options.targets:
    jobs = [*ways(rows, name).items()]
    measure(name, jobs, _SEEDS, options, done)


if __name__ == '__main__':
  main()
