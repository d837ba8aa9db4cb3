"""Runs what `exported_programs` wrote, where JAX and a GPU are.

  python exported_run.py DIRECTORY OUTPUT.jsonl [--platform cpu] [--limit S]

Needs jax and numpy alone, neither TensorFlow nor this library. Programs compile
in threads; then each runs by itself. Exact draws are moved: z-scores of means
and variances, beside those of a kernel of another law, which have to be large;
and steps of all chains per second. One line of JSON for each case.
"""

import argparse
import concurrent.futures
import json
import lzma
import os
import pathlib
import threading
import time

import jax
import numpy as np
from jax.extend import backend as backends
from jaxlib import _jax

NUM_STEPS = {'adapting': 520, 'frozen': 20, 'other law': 20}  # Judged.
_ONE_AT_A_TIME = threading.Lock()
SECONDS = 0.15  # A run that is timed is at least so long.


class Program:
  """A program on a device: (state, steps, seed) -> state."""

  def __init__(self, path, device):
    self._device = device
    self._constants = load(path.with_suffix('.npz'))
    client = device.client
    options = _jax.CompileOptions()
    options.parameter_is_tupled_arguments = False
    hlo = lzma.decompress(path.with_suffix('.hlo.xz').read_bytes())
    with _ONE_AT_A_TIME:  # It may crash in several threads.
      module = _jax.mlir.hlo_to_stablehlo(hlo)
    devices = _jax.DeviceList((device,))
    begin = time.monotonic()
    self._run = client.compile_and_load(module, devices, options)
    self.seconds = time.monotonic() - begin

  def put(self, state):
    """Returns the state on the device."""
    return [jax.device_put(part, self._device) for part in state]

  def __call__(self, state, num_steps, seed=9):
    arguments = (np.int32(num_steps), np.int32([seed, 8]), *self._constants)
    outputs = self._run.execute_sharded([*state, *self.put(arguments)])
    parts = outputs.disassemble_into_single_device_arrays()
    return jax.block_until_ready([part[0] for part in parts])


def worst_z(state, mean, variances):
  """Returns the largest |z| of means and variances of independent rows."""
  rows = np.concatenate(
    [np.reshape(np.float64(part), [len(part), -1]) for part in state], axis=1
  )
  distances, worst = rows - mean, 0.0
  for values in (distances, distances**2 - variances):
    error = values.std(axis=0) / len(values) ** 0.5
    worst = max(worst, float(np.max(np.abs(values.mean(axis=0)) / error)))
  return worst


def steps_per_second(program, state):
  """Returns steps of all chains in a second, of a state that is there."""
  program(state, 2)
  num_steps, elapsed = 4, 0.0
  while elapsed < SECONDS:
    num_steps *= 4
    begin = time.monotonic()
    program(state, num_steps)
    elapsed = time.monotonic() - begin
  return len(state[0]) * num_steps / elapsed


def load(path):
  """Returns the list of a file's arrays."""
  with np.load(path) as arrays:
    return [arrays[name] for name in arrays.files]


def compiled(rows, directory, device, limit):
  """Returns {name: future of a `Program`} for each row, by the limit."""
  pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
  jobs = [
    {
      name: pool.submit(Program, directory / file, device)
      for name, file in row['files'].items()
    }
    for row in rows
  ]
  futures = [future for job in jobs for future in job.values()]
  concurrent.futures.wait(futures, limit)
  pool.shutdown(wait=True, cancel_futures=True)
  return jobs


def measure(row, directory, programs):
  """Returns a case's record."""
  record = dict(name=row['name'], z={}, chain_steps={}, compile_seconds={})
  for name, program in programs.items():
    num_chains = row['num_chains'][name]
    start = program.put(
      [  # Repeated, or cut.
        np.resize(part, (num_chains, *part.shape[1:]))
        for part in load(directory / f'{row["stem"]}.npz')
      ]
    )
    record['compile_seconds'][name] = program.seconds
    if row['mean'] and name in NUM_STEPS:
      num_steps = NUM_STEPS[name]
      program(start, 2)
      begin = time.monotonic()
      moved = program(start, num_steps)
      seconds = time.monotonic() - begin
      record['z'][name] = worst_z(moved, row['mean'], row['variances'])
    if name == 'adapting':
      record['chain_steps'][name] = num_chains * num_steps / seconds
    elif name != 'other law':
      record['chain_steps'][name] = steps_per_second(program, start)
  return record


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('directory', type=pathlib.Path)
  parser.add_argument('output', type=pathlib.Path)
  parser.add_argument('--platform', default='cuda')
  parser.add_argument('--only', default='')
  parser.add_argument('--limit', type=float, default=500.0, help='seconds')
  arguments = parser.parse_args()
  begin = time.monotonic()
  device = backends.get_backend(arguments.platform).devices()[0]
  about = dict(
    device=device.device_kind,
    jax=jax.__version__,
    threads=os.cpu_count(),
    tensor_float_32=os.environ.get('NVIDIA_TF32_OVERRIDE') != '0',
  )
  print(about, flush=True)
  rows = [
    json.loads(path.read_text())
    for path in sorted(arguments.directory.glob('*.json'))
  ]
  rows = [row for row in rows if arguments.only in row['name']]
  jobs = compiled(rows, arguments.directory, device, 0.7 * arguments.limit)
  print(f'compiled: {time.monotonic() - begin:.0f} s', flush=True)
  with arguments.output.open('w') as output:
    for row, job in zip(rows, jobs):
      if time.monotonic() - begin > arguments.limit:
        print('out of time', flush=True)
        break
      try:
        programs = {name: found.result() for name, found in job.items()}
        record = measure(row, arguments.directory, programs)
      except concurrent.futures.CancelledError:
        record = dict(name=row['name'], error='not compiled in time')
      except Exception as error:  # A refusal of one program is a result.
        record = dict(name=row['name'], error=f'{type(error)}: {error}'[:500])
      output.write(json.dumps(dict(record, **about)) + '\n')
      output.flush()
      seconds = time.monotonic() - begin
      print(f'{seconds:.0f} s', json.dumps(record)[:300], flush=True)


if __name__ == '__main__':
  main()
