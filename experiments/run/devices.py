"""Which device a run uses: CPU or GPU."""

import contextlib
import sys

from experiments.run.errors import DeviceError


def on_device(kind: str | None = None) -> contextlib.AbstractContextManager:
  """Returns a context that places all work of TensorFlow on a device.

  Args:
    kind: 'cpu', 'gpu', or None for what TensorFlow finds first.

  Raises:
    DeviceError: If there is no such device. The message lists the others.
  """
  if kind not in (None, 'cpu', 'gpu'):
    raise DeviceError(f'--device {kind!r}: allowed are cpu, gpu.')
  if kind is None and 'tensorflow' not in sys.modules:
    return contextlib.nullcontext()  # The study does not use TensorFlow.
  import tensorflow as tf

  if kind == 'gpu' and not tf.config.list_physical_devices('GPU'):
    found = [device.name for device in tf.config.list_physical_devices()]
    raise DeviceError(
      f'--device gpu: TensorFlow sees no GPU, only {", ".join(found)}. Install '
      'tensorflow[and-cuda] and check the driver, or write --device cpu.'
    )
  if kind != 'cpu':
    # The 10 bits of TF32's mantissa ruin covariances.
    tf.config.experimental.enable_tensor_float_32_execution(False)
  return contextlib.nullcontext() if kind is None else tf.device(f'/{kind}:0')
