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
  if kind not in _CHOICES:
    raise DeviceError(
      f'--device {kind!r}: allowed are {", ".join(filter(None, _CHOICES))}.'
    )
  if kind is None and 'tensorflow' not in sys.modules:
    return contextlib.nullcontext()  # The study does not use TensorFlow.
  import tensorflow

  return _CHOICES[kind](tensorflow)


def _default(tf):
  _full_precision(tf)
  return contextlib.nullcontext()


def _cpu(tf):
  return tf.device('/CPU:0')


def _gpu(tf):
  if not tf.config.list_physical_devices('GPU'):
    found = [device.name for device in tf.config.list_physical_devices()]
    raise DeviceError(
      f'--device gpu: TensorFlow sees no GPU, only {", ".join(found)}. Install '
      'tensorflow[and-cuda] and check the driver, or write --device cpu.'
    )
  _full_precision(tf)
  return tf.device('/GPU:0')


def _full_precision(tf):
  """Turns TF32 off, because its 10 bits of mantissa ruin covariances."""
  tf.config.experimental.enable_tensor_float_32_execution(False)


_CHOICES = {None: _default, 'cpu': _cpu, 'gpu': _gpu}
