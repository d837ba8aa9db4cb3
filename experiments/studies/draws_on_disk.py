"""A run of more draws than its memory is allowed to hold, written to disk.

  python -m experiments.studies.draws_on_disk [--only LABEL]

MALA with a learned diagonal on a Gaussian whose scales go from 0.1 to 10, 4
chains, float32: once with `draws_dir`, once in memory, each in a process of its
own. The process with `draws_dir` may take 1 GiB of data beyond what importing
TensorFlow and the library took (RLIMIT_DATA: the kernel refuses more); the peak
of what is resident is getrusage's, less what was resident after the import.
Said of both runs are their draws (SHA-256), the summary of all their
coordinates and draws (`exact`), the one that the result has (`worst`, which in
memory is of one draw in `worst_of_every`, and of the 256 coordinates whose
variances look worst), and where the seconds went. Rows that are not measured
again stay in the file.
"""

import argparse
import concurrent.futures
import hashlib
import json
import multiprocessing
import pathlib
import resource
import tempfile
import time
import warnings

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.driver import convergence
from tfp_adaptive.driver import diagnosis
from tfp_adaptive.driver import draws_on_disk
from tfp_adaptive.driver import recording

__all__ = ['CASES', 'measure']

_NUM_CHAINS = 4
_NUM_BURNIN = 2000
_BLOCK = 1000  # As by default.
_ALLOWED = 2**30  # Bytes beyond the import.
_RESULTS_FILE = pathlib.Path('docs/results/draws_on_disk.json')
# label -> (draws of a chain, coordinates).
CASES = {'1.6e7 numbers': (20_000, 200), '1e8 numbers': (25_000, 1000)}


def measure(label, is_on_disk):
  """Returns the row of a case.

  Args:
    label: Of `CASES`.
    is_on_disk: Whether draws go to disk; if so, memory is limited.
  """
  resident = _status('VmRSS')
  if is_on_disk:
    most = _status('VmData') + _ALLOWED
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
  seconds = _timed()
  with tempfile.TemporaryDirectory() as folder:
    begin = time.monotonic()
    result = _run(*CASES[label], folder if is_on_disk else None)
    total = time.monotonic() - begin
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return dict(
      label=label,
      draws='on disk' if is_on_disk else 'in memory',
      numbers=int(result.states.size),
      megabytes_of_block=_BLOCK * result.states[:1].nbytes / 1e6,
      mebibytes_of_import=round(resident / 2**20, 1),
      peak_mebibytes_beyond=round((peak - resident) / 2**20, 1),
      mebibytes_allowed=_ALLOWED / 2**20 if is_on_disk else None,
      mebibytes_on_disk=round(_size(folder) / 2**20, 1),
      num_blocks=seconds['num_blocks'],
      seconds=dict(
        total=round(total, 1),
        compile=round(result.seconds['compile'], 2),
        steps_and_keeping=round(
          result.seconds['adaptation'] + result.seconds['sampling'], 2
        ),
        keeping=round(seconds['keeping'], 2),
        summary=round(seconds['summary'], 1),
      ),
      worst=result.run['worst'],
      worst_of_every=result.run['worst_of_every'],
      exact=result.run['worst'] if is_on_disk else _exact(result.states),
      sha256=_digest(result.states),
    )


def _run(num_draws, size, folder):
  scales = np.geomspace(0.1, 10.0, size).astype(np.float32)
  kernel = tfpa.gradient_adaptive_langevin(
    lambda x: -0.5 * tf.reduce_sum((x / scales) ** 2, axis=-1),
    _NUM_BURNIN,
    preconditioner=tfpa.preconditioners.diagonal(),
  )
  start = scales * tf.random.stateless_normal([_NUM_CHAINS, size], seed=(0, 1))
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', UserWarning)
    return tfpa.sample(
      kernel,
      start,
      num_draws,
      seed=1,
      block_size=_BLOCK,
      progress=False,
      draws_dir=folder,
    )


def _timed():
  """Returns a dict that fills with the seconds of a run's parts."""
  seconds = dict(keeping=0.0, summary=0.0, num_blocks=0)

  def timed(owner, name, part):
    inner = getattr(owner, name)

    def call(*args, **kwargs):
      start = time.monotonic()
      found = inner(*args, **kwargs)
      seconds[part] += time.monotonic() - start
      seconds['num_blocks'] += name == 'append'
      return found

    setattr(owner, name, call)

  for keeper in (recording.InMemory, draws_on_disk.DrawsOnDisk):
    timed(keeper, 'append', 'keeping')
    timed(keeper, 'save', 'keeping')
  timed(diagnosis, 'worst_coordinates', 'summary')
  return seconds


def _exact(states):
  """Returns the worst values over all draws and coordinates in memory."""
  found = {}
  for start in range(0, states.shape[2], 8):
    group = convergence.diagnose(states[:, :, start : start + 8])
    for field, is_larger in (
      ('rhat', True),
      ('ess_bulk', False),
      ('ess_tail', False),
      ('ess_moments', False),
    ):
      value, place = convergence.worst_of(group, field)
      before = found.get(field, (-np.inf if is_larger else np.inf,))[0]
      if value > before if is_larger else value < before:
        found[field] = value, f'coordinate {start + place}'
  return found


def _digest(states):
  digest = hashlib.sha256()
  for start in range(0, len(states), 1000):
    digest.update(np.ascontiguousarray(states[start : start + 1000]).tobytes())
  return digest.hexdigest()


def _size(folder):
  files = [p for p in pathlib.Path(folder).rglob('*') if p.is_file()]
  return sum(path.stat().st_size for path in files)


def _status(field):
  """Returns bytes of a field of this process, as Linux tells them."""
  text = pathlib.Path('/proc/self/status').read_text()
  line = next(x for x in text.splitlines() if x.startswith(f'{field}:'))
  return 1024 * int(line.split()[1])


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--only', choices=CASES, help='measure one size')
  parser.add_argument('--output', type=pathlib.Path, default=_RESULTS_FILE)
  arguments = parser.parse_args()
  rows = {}
  if arguments.output.exists():
    rows = {
      (row['label'], row['draws']): row
      for row in json.loads(arguments.output.read_text())
    }
  for label in [arguments.only] if arguments.only else CASES:
    for is_on_disk in (True, False):
      with concurrent.futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context('spawn')
      ) as pool:
        row = pool.submit(measure, label, is_on_disk).result()
      rows[label, row['draws']] = row
      print(json.dumps(row), flush=True)
      arguments.output.write_text(
        json.dumps(list(rows.values()), indent=1) + '\n'
      )


if __name__ == '__main__':
  main()
