"""Hides messages of TensorFlow that users cannot act on.

TensorFlow logs through two channels. Python messages pass a logger, which
accepts a filter. Native messages go to the file descriptor of stderr. No
setting stops all native messages, because some come before TensorFlow reads its
settings.

Native messages describe the machine, and each comes once: when TensorFlow is
imported, with its first operation, or with the first program of XLA. So this
file triggers all three while `grep` filters stderr. If the import aborts,
`grep` still prints what was written before. TensorFlow writes two more lines
whenever a graph is frozen, if it was imported before this library or is older
than 2.21, see `while_freezing`.
"""

import contextlib
import functools
import logging
import os
import shutil
import subprocess
import sys
import warnings

_LEVEL = 'TF_CPP_MIN_LOG_LEVEL'
_STDERR = 2
_PACKAGE = __name__.split('.')[0]
# I0000 00:00:1795882803.355912   12425 service.cc:153] XLA service ...
_NATIVE = (
  r'^[IWE][0-9]{4} [0-9:.]+ +[0-9]+ (port|cudart_stub|cpu_feature_guard'
  r'|cuda_platform|service|dump_mlir_util|device_compiler'
  # TensorFlow 2.18 to 2.20.
  r'|cuda_blas|cuda_dnn|cuda_fft|devices|single_machine)\.(cc|h):[0-9]+\] '
  r'|^WARNING: All log messages before absl::InitializeLog\(\)'
  r'|^To enable the following instructions: '
)
# Device files of NVIDIA, of Windows' subsystem for Linux, and of AMD.
_GPU_FILES = ('/dev/nvidiactl', '/dev/dxg', '/dev/kfd')
_HAS_GPU = any(map(os.path.exists, _GPU_FILES))
# TensorFlow reads its level once, so that it is too late to set it.
_CAME_LATE = 'tensorflow' in sys.modules


@contextlib.contextmanager
def filtered():
  """Removes TensorFlow's lines about the machine from stderr.

  All lines are shown if the environment sets the level 0, or if there is no
  stderr or no `grep`. They are also shown with a GPU, because some lines are
  about its driver.
  """
  grep = shutil.which('grep')
  try:
    if os.environ.get(_LEVEL) == '0' or _HAS_GPU or not grep:
      raise OSError
    if sys.stderr is not None:
      sys.stderr.flush()
    terminal = os.dup(_STDERR)
  except (OSError, ValueError):
    yield
    return
  try:
    reader = subprocess.Popen(
      [grep, '-a', '-v', '-E', _NATIVE],
      stdin=subprocess.PIPE,
      stdout=terminal,
      start_new_session=True,  # Ctrl-C does not reach `grep`.
    )
  except OSError:
    os.close(terminal)
    yield
    return
  os.dup2(reader.stdin.fileno(), _STDERR)
  reader.stdin.close()
  try:
    yield
  finally:
    os.dup2(terminal, _STDERR)
    os.close(terminal)
    # A child process of another thread may keep the pipe open.
    with contextlib.suppress(subprocess.TimeoutExpired):
      reader.wait(timeout=1.0)


def _import():
  """Imports TensorFlow and TFP, and returns TensorFlow."""
  if not _CAME_LATE:
    # Level 3 shows only fatal errors. Level 2 also shows errors of GPU drivers.
    os.environ.setdefault(_LEVEL, '2' if _HAS_GPU else '3')
  with filtered():
    import tensorflow as tf
    import tensorflow_probability as tfp

    with warnings.catch_warnings():
      if not _HAS_GPU:
        warnings.filterwarnings('ignore', 'TensorFloat-32')
      # `tfp.mcmc` is imported at first use, which warns.
      dir(tfp.mcmc)
  return tf


tf = _import()


@functools.cache
def start() -> None:
  """Starts TensorFlow and XLA on a machine without GPU, without messages."""
  if _HAS_GPU:
    return
  with filtered():
    # XLA writes one line when it first fuses operations.
    program = tf.function(
      lambda x: tf.exp(x) * x + 1.0, jit_compile=True, autograph=False
    )
    program(tf.zeros([3]))


def while_freezing() -> contextlib.AbstractContextManager:
  """Returns a context in which a graph is frozen without messages."""
  is_old = tuple(map(int, tf.__version__.split('.')[:2])) < (2, 21)
  return filtered() if is_old or _CAME_LATE else contextlib.nullcontext()


def _is_for_users(record: logging.LogRecord) -> bool:
  """Returns whether to show a message; hides that this library retraces."""
  if 'triggered tf.function retracing' not in record.getMessage():
    return True
  frame = sys._getframe()
  while frame := frame.f_back:
    if str(frame.f_globals.get('__name__')).split('.')[0] == _PACKAGE:
      return False
  return True


tf.get_logger().addFilter(_is_for_users)
