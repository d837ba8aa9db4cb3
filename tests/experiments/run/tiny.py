"""A study of random numbers, without TensorFlow, that can be made to fail.

The variable TINY_FAULTS holds {'case seed': kind}, because settings would
change the keys. TINY_LOG names a file with a line for each half of a cell.
"""

import json
import os
import time
import zlib

import numpy as np

from experiments.run.errors import Refused
from experiments.run.study import Result
from experiments.run.study import Settings
from experiments.run.study import Study


class Tiny(Settings):
  """How many cases, how long one takes, and a number."""

  num_cases: int = 3
  seconds: float = 0.0
  scale: float = 1.0

  def smoke(self):
    return self.model_copy(update={'num_cases': 1})


def cases(settings):
  """Returns cases whose names are no file names."""
  return {f'case {i} | a/b': i for i in range(settings.num_cases)}


def run(case, seed, work):
  """Returns a number in two halves, the first one kept in a checkpoint."""
  fault = json.loads(os.environ.get('TINY_FAULTS', '{}')).get(f'{case} {seed}')
  if fault == 'refuses':
    raise Refused('it takes no such case.')
  if fault == 'fails':
    raise ValueError('it is broken.')
  rng = np.random.default_rng([case, seed])
  kept = work.checkpoints / 'half'
  if kept.exists():
    half = float(kept.read_text())
  else:
    half = rng.normal()
    _log(f'{case} {seed} first')
    kept.write_text(repr(half))
  time.sleep(work.settings.seconds)
  if fault == 'sleeps':
    time.sleep(60)
  if fault == 'dies':
    os._exit(7)
  _log(f'{case} {seed} second')
  rng = np.random.default_rng([case, seed, zlib.crc32(repr(half).encode())])
  record = {
    'value': work.settings.scale * rng.normal(),
    'nested': {'infinite': np.inf, 'many': rng.integers(9, size=3)},
  }
  return Result(record, {'draws': half + rng.normal(size=5)})


def _log(line):
  if 'TINY_LOG' in os.environ:
    with open(os.environ['TINY_LOG'], 'a') as file:
      file.write(f'{line}\n')


STUDY = Study(cases, run, settings=Tiny, seeds=(0, 1))
