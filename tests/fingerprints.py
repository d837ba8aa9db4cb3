"""Digests of the draws of every builder: what a change must leave as it was.

  python -m tests.fingerprints --check            compares with the stored ones
  python -m tests.fingerprints --write            stores them anew
  ... --file /tmp/before.json --only langevin     elsewhere, and some only

A digest is the SHA-256 of the bytes of the states of a short run with a fixed
seed, in which the kernel adapts and then stays as it is; in a graph, and for
the defaults of every builder compiled too. The last bits of a float depend on
the processor and on the versions, which stand beside the digests: where they
differ `--check` says so and stops, with exit code 3. Then `--write --file` with
the code before the change, and `--check --file` with that after it, on one
machine. Exit code 1: draws differ. All take some five minutes and 4 GB of
memory, `--only graph` half of that.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
import time

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tfp_adaptive.core import block_fits

FILE = pathlib.Path(__file__).with_suffix('.json')
_NUM_RESULTS = 200
NUM_ADAPTATION_STEPS = 100
_MIN_DISTINCT = 4  # Values of the first coordinate, after adapting.
_DRIVEN = 'langevin'  # The case that the driver samples.
_PACKAGES = ('numpy', 'tensorflow', 'tensorflow-probability')


def built(case):
  """Returns the kernel of a case and its first state."""
  kernel = case.build(num_adaptation_steps=NUM_ADAPTATION_STEPS)
  return kernel, case.problem.start()


def run(kernel, start, jit_compile, seed=(20, 26)):
  """Returns the states after every step, parts of [steps, chains, ...].

  Kernels that are fitted between blocks of steps are driven.
  """
  if block_fits.steps(kernel):
    return driven(kernel, start, jit_compile, seed)

  @tf.function(autograph=False, jit_compile=jit_compile)
  def chain(start, seed):
    return tfp.mcmc.sample_chain(
      _NUM_RESULTS, start, kernel=kernel, trace_fn=None, seed=seed
    )

  states = chain(start, tf.constant(seed, tf.int32))
  return [part.numpy() for part in tf.nest.flatten(states)]


def driven(kernel, start, jit_compile, seed=(20, 26)):
  """Returns what the driver of this library draws, in two blocks."""
  result = tfpa.sample(
    kernel=kernel,
    init_state=start,
    num_results=_NUM_RESULTS - NUM_ADAPTATION_STEPS,
    seed=seed,
    block_size=_NUM_RESULTS // 2,
    jit_compile=jit_compile,
    progress=False,
  )
  return [np.asarray(part) for part in tf.nest.flatten(result.states)]


def digest(states):
  """Returns the SHA-256 of arrays, [steps, chains...] each.

  Raises:
    ValueError: If the states say too little: not finite, or hardly moving.
  """
  content = hashlib.sha256()
  for part in states:
    last = part[-_NUM_RESULTS // 2 :]  # A driven run has no other.
    if not np.all(np.isfinite(part)):
      raise ValueError('states are not finite')
    if len(np.unique(last[..., :1])) < _MIN_DISTINCT:
      raise ValueError('the chains hardly move')
    content.update(f'{part.dtype} {part.shape}'.encode())
    content.update(np.ascontiguousarray(part).tobytes())
  return content.hexdigest()


def selected(only=''):
  """Yields (name, case, draw, mode): all in graphs, defaults compiled too."""
  drawn = [(case.builder.__name__, case, run) for case in cases.CASES]
  for builder, case, draw in [*drawn, ('sample', cases.named(_DRIVEN), driven)]:
    for mode in ('graph', 'xla') if case.label == 'default' else ('graph',):
      name = f'{builder}: {case.label}: {mode}'
      if only in name:
        yield name, case, draw, mode


def digests(only='', log=print):
  """Returns name -> digest, or what was raised in its place.

  Args:
    only: Part of the names that are run; all contain `''`.
    log: Called with a line per case.

  Returns:
    A dict of strings.
  """
  found = {}
  for name, case, draw, mode in selected(only):
    began = time.monotonic()
    try:
      found[name] = digest(draw(*built(case), mode == 'xla'))
    except Exception as error:  # A case that is gone is a difference.
      found[name] = f'{type(error).__name__}: {str(error)[:200]}'
    seconds = time.monotonic() - began
    log(f'{found[name][:60]:60}  {seconds:5.1f} s  {name}', flush=True)
  return found


def environment():
  """Returns what last bits depend on: versions, processor, threads."""
  found = {name: importlib.metadata.version(name) for name in _PACKAGES}
  found['python'] = platform.python_version()
  found['machine'] = f'{platform.system()} {platform.machine()}'
  found['threads'] = os.cpu_count()
  fields = {}
  if os.path.exists('/proc/cpuinfo'):
    for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines():
      key, _, value = line.partition(':')
      fields.setdefault(key.strip(), value.strip())
  for key in ('model name', 'cpu family', 'model', 'flags'):
    found[key] = fields.get(key, 'unknown')
  return found


def environment_differences(stored, here):
  """Returns a line for each version or property that is not the stored one."""
  lines = []
  for key in sorted({*stored, *here}):
    one, two = stored.get(key, 'nothing'), here.get(key, 'nothing')
    if key == 'flags' and one != two:
      changed = ' '.join(sorted({*one.split()} ^ {*two.split()}))
      lines.append(f'flags: only on one side: {changed}')
    elif one != two:
      lines.append(f'{key}: stored {one}, here {two}')
  return lines


def differences(stored, found):
  """Returns one line for each case that differs, is new or is missing."""
  return [
    f'{name}: stored {stored.get(name, "nothing")}, '
    f'now {found.get(name, "nothing")}'
    for name in sorted({*stored, *found})
    if stored.get(name) != found.get(name)
  ]


def write(file, only):
  """Stores the digests, beside the others where only some are run.

  Returns:
    The exit code.
  """
  kept = {}
  if only and file.exists():
    stored = json.loads(file.read_text())
    if not _is_comparable(stored):
      return 3
    kept = {n: one for n, one in stored['digests'].items() if only not in n}
  found = digests(only)
  failed = [name for name, one in found.items() if len(one) != 64]
  if failed:
    print('Nothing is written: no draws to compare from', *failed, sep='\n')
    return 1
  content = {'environment': environment(), 'digests': {**kept, **found}}
  file.write_text(json.dumps(content, indent=1, sort_keys=True) + '\n')
  return 0


def check(file, only):
  """Compares with the stored digests; returns the exit code."""
  stored = json.loads(file.read_text())
  if not _is_comparable(stored):
    return 3
  wanted = {n: one for n, one in stored['digests'].items() if only in n}
  lines = differences(wanted, digests(only))
  print(*lines, sep='\n')
  print(f'{len(wanted)} cases stored, {len(lines)} differ.')
  return 1 if lines else 0


def _is_comparable(stored):
  changed = environment_differences(stored['environment'], environment())
  if changed:
    print(
      'NOT COMPARABLE: the digests were stored elsewhere. Write them here with '
      'the code before the change (--write --file) and check against that file.'
    )
    print(*changed, sep='\n')
  return not changed


def main():
  parser = argparse.ArgumentParser(prog='python -m tests.fingerprints')
  what = parser.add_mutually_exclusive_group(required=True)
  what.add_argument('--check', action='store_true')
  what.add_argument('--write', action='store_true')
  parser.add_argument('--file', type=pathlib.Path, default=FILE)
  parser.add_argument('--only', default='')
  options = parser.parse_args()
  do = write if options.write else check
  return do(options.file, options.only)


if __name__ == '__main__':
  sys.exit(main())
