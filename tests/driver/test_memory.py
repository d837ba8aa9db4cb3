"""The memory of a process that runs long, in processes of their own."""

import subprocess
import sys

import pytest

_OF_KERNELS = """
import gc
import pathlib
import warnings
import tensorflow as tf
import tfp_adaptive as tfpa
from experiments.samplers import laws
from tensorflow.python.framework.func_graph import FuncGraph

warnings.simplefilter('ignore')
cases = {}
for case in laws.cases():
  cases.setdefault(case.name.partition(',')[0], case)
megabytes, graphs = [], []
for number in range(3):
  for case in cases.values():
    start = case.pack(tf.constant(case.law.draw(4, 0), tf.float32))
    # Without XLA, which keeps what it has compiled for good.
    tfpa.sample(
      case.build(20), start, 20, seed=number, jit_compile=False, progress=False
    )
    gc.collect()
  pages = int(pathlib.Path('/proc/self/statm').read_text().split()[1])
  megabytes.append(pages * 4096 / 2**20)
  graphs.append(sum(isinstance(o, FuncGraph) for o in gc.get_objects()))
print(megabytes, graphs)
# The first round loads what TensorFlow needs. Kernels are new in every round.
assert graphs[-1] <= graphs[1] + 5, graphs
assert megabytes[-1] - megabytes[1] < 3.0 * len(cases), megabytes
"""

_LIMITED = """
import pathlib
import resource
import sys
import warnings
import numpy as np
import tensorflow as tf
import tfp_adaptive as tfpa

folder, = sys.argv[1:] or [None]
tf.zeros([1]).numpy()
text = pathlib.Path('/proc/self/status').read_text()
(line,) = (x for x in text.splitlines() if x.startswith('VmData:'))
# The system refuses more than 700 MiB beyond what importing TensorFlow took.
limit = 1024 * int(line.split()[1]) + 700 * 2**20
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
warnings.simplefilter('ignore')
scales = np.geomspace(0.1, 10.0, 1000).astype(np.float32)
kernel = tfpa.gradient_adaptive_langevin(
  lambda x: -0.5 * tf.reduce_sum((x / scales) ** 2, axis=-1),
  2000,
  preconditioner=tfpa.preconditioners.diagonal(),
)
start = scales * tf.random.stateless_normal([4, 1000], seed=(0, 1))
result = tfpa.sample(
  kernel, start, 25_000, seed=1, progress=False, draws_dir=folder
)
print(result.states.shape, result.run['worst_of_every'])
"""


def _ended(code, *arguments):
  return subprocess.run(
    [sys.executable, '-c', code, *map(str, arguments)],
    capture_output=True,
    text=True,
  )


@pytest.mark.nightly
def test_kernels_made_one_after_the_other_free_their_graphs():
  done = _ended(_OF_KERNELS)
  assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.nightly
def test_draws_on_disk_need_no_memory_that_grows_with_them(tmp_path):
  pytest.importorskip('zarr', reason='draws_dir is an extra')
  done = _ended(_LIMITED, tmp_path)
  assert done.returncode == 0, done.stderr[-2000:]
  # The summary is of all draws, not of one in several.
  assert done.stdout.split() == ['(25000,', '4,', '1000)', '1']
  # The negative control: draws of 400 MB and their summary do not fit.
  assert _ended(_LIMITED).returncode != 0
