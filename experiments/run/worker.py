"""A process that runs some cells; `engine.supervise` starts it."""

import contextlib
import json
import os
import signal
import sys
import threading
import time

from experiments.run import engine
from experiments.run import errors
from experiments.run.tasks import Cell


def main() -> int:
  """Runs the cells that standard input names; returns the exit code."""
  given = json.load(sys.stdin)
  _end_with(given['parent'])
  job = engine.Job(*given['job'])
  cells = [Cell(*cell) for cell in given['cells']]
  try:
    found = job.load()
    with on_device(job.device):
      engine.run_cells(job, found, cells)
  except errors.USER_ERRORS as error:
    print(error, file=sys.stderr)
    return engine.REFUSED
  return 0


def on_device(kind: str | None = None) -> contextlib.AbstractContextManager:
  """Returns a context that places all work of TensorFlow on a device.

  Args:
    kind: 'cpu', 'gpu', or None for what TensorFlow finds first.

  Raises:
    DeviceError: If there is no such device. The message lists the others.
  """
  if kind not in (None, 'cpu', 'gpu'):
    raise errors.DeviceError(f'--device {kind!r}: allowed are cpu, gpu.')
  if kind is None and 'tensorflow' not in sys.modules:
    return contextlib.nullcontext()  # The study does not use TensorFlow.
  import tensorflow as tf

  if kind == 'gpu' and not tf.config.list_physical_devices('GPU'):
    found = [device.name for device in tf.config.list_physical_devices()]
    raise errors.DeviceError(
      f'--device gpu: TensorFlow sees no GPU, only {", ".join(found)}. Install '
      'tensorflow[and-cuda] and check the driver, or write --device cpu.'
    )
  if kind != 'cpu':
    # The 10 bits of TF32's mantissa ruin covariances.
    tf.config.experimental.enable_tensor_float_32_execution(False)
  return contextlib.nullcontext() if kind is None else tf.device(f'/{kind}:0')


def _end_with(parent: int) -> None:
  """Ends this process and its children soon after the one that started it.

  A killed process cannot end the processes that it started.
  """

  def watch():
    while os.getppid() == parent:
      time.sleep(0.5)
    os.killpg(os.getpgrp(), signal.SIGKILL)

  threading.Thread(target=watch, daemon=True).start()


if __name__ == '__main__':
  sys.exit(main())
