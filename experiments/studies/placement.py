"""Every kernel's step lowered for a GPU, on a machine that has none.

  python -m experiments.studies.placement [--only TEXT] [--output FILE]

XLA's bridge turns a step into HLO for a platform by name, which shows whether
each of its ops has a kernel for that platform. Nothing is compiled for a GPU,
nothing runs on one: speed, memory and rounding there are not seen. One step is
lowered while it adapts, which holds both branches, and one of the learned
sampler. Finished rows are kept.
"""

import argparse
import collections
import contextlib
import pathlib
import re
from unittest import mock

import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.framework.json_files import read_json
from experiments.framework.outputs import write_json
from experiments.studies import kernel_cases

__all__ = ['as_if_there', 'lower', 'measure', 'summary']

_RESULTS_FILE = pathlib.Path('docs/results/placement.json')
_NUM_CHAINS = 10
# What XLA's backends hand to libraries, or run as loops; of HLO's opcodes.
_OPCODES = (
  *('while', 'conditional', 'dot', 'cholesky', 'triangular-solve'),
  *('fft', 'sort', 'rng-bit-generator', 'custom-call'),
)
_UNSUPPORTED = re.compile(
  r'unsupported operations .*?on (XLA_\w+): (\w+)'
  r"|No registered '(\w+)' OpKernel for (XLA_\w+)",
  re.S,
)


@contextlib.contextmanager
def as_if_there(platform):
  """Lets the library take the forms that it takes where such a device is."""
  found = tf.config.list_logical_devices

  def listed(device_type=None):
    return found(device_type) or ([platform] if device_type == platform else [])

  with mock.patch.object(tf.config, 'list_logical_devices', listed):
    yield


def lower(kernel, state, results, platforms=('GPU',)):
  """Returns [(HLO text, None) or (None, the op without a kernel), ...].

  Args:
    kernel: A `tfp.mcmc.TransitionKernel`, whose step is lowered.
    state: Of its chains.
    results: Of the kernel.
    platforms: Of 'CPU', 'GPU' and 'TPU'; none needs to be there.

  Raises:
    Exception: What TensorFlow raises for another reason than a missing kernel.
  """

  # The seed is an argument: XLA may fold the draws of a constant one.
  def step(state, results, seed):
    return kernel.one_step(state, results, seed=seed)

  arguments = state, results, tf.constant([1, 2])
  return [_lowered(step, arguments, platform) for platform in platforms]


def _lowered(step, arguments, platform):
  function = tf.function(step, jit_compile=True, autograph=False)
  try:
    with as_if_there(platform):
      ir = function.experimental_get_compiler_ir(*arguments)
      return ir(stage='hlo', platform_name=platform), None
  except (tf.errors.OpError, ValueError) as error:
    found = _UNSUPPORTED.search(str(error))
    if not found:
      raise
    return None, found[2] or found[3]


def summary(text, op=None):
  """Returns a row's part: what stands in HLO text, or which op it lacks."""
  if text is None:
    return dict(lowers=False, op=op)
  counts = collections.Counter(re.findall(rf' ({"|".join(_OPCODES)})\(', text))
  return dict(
    lowers=True,
    kilobytes=round(len(text) / 1000),
    custom_calls=sorted(set(re.findall(r'custom_call_target="([^"]+)"', text))),
    # In a kernel of float32: slow on most GPUs.
    num_float64=len(re.findall(r'= f64\[', text)),
    opcodes=dict(sorted(counts.items())),
  )


def measure(case):
  """Returns the row of a `kernel_cases.Case`."""
  state = case.pack(tf.constant(case.law.draw(_NUM_CHAINS, 0), tf.float32))
  kernel = case.build(1000)
  results = kernel.bootstrap_results(state)
  (text, op), (on_cpu, _) = lower(kernel, state, results, ('GPU', 'CPU'))
  row = dict(
    name=case.name,
    adapting=summary(text, op),
    # By the number of instructions of each shape and opcode.
    same_as_on_cpu=text is not None
    and _instructions(text) == _instructions(on_cpu),
  )
  learned = tfpa.frozen(kernel, results)
  ((text, op),) = lower(learned, state, learned.bootstrap_results(state))
  return dict(row, frozen=summary(text, op))


def _instructions(text):
  return collections.Counter(re.findall(r'= (.+?) ([a-z][\w-]*)\(', text))


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--only', default='', help='kernels whose name holds it')
  parser.add_argument('--output', type=pathlib.Path, default=_RESULTS_FILE)
  arguments = parser.parse_args()
  record = dict(tensorflow=tf.__version__, rows=[])
  if arguments.output.exists():
    kept = read_json(arguments.output)
    if kept['tensorflow'] == tf.__version__:
      record = kept
  done = {row['name'] for row in record['rows']}
  for case in kernel_cases.cases():
    if case.name in done or arguments.only not in case.name:
      continue
    row = measure(case)
    print(row['name'], row['adapting'], flush=True)
    record['rows'].append(row)
    write_json(arguments.output, record)


if __name__ == '__main__':
  main()
