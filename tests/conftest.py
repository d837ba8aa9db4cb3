"""Set-up of all tests: two logical CPUs, quiet logs, no TF32, a global seed."""

import gc
import os

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402

# Sharding is tested on two logical CPUs; they must exist before TF starts.
tf.config.set_logical_device_configuration(
  tf.config.list_physical_devices('CPU')[0],
  [tf.config.LogicalDeviceConfiguration() for _ in range(2)],
)

# On a GPU: what is compared with dense algebra has more than ten bits.
tf.config.experimental.enable_tensor_float_32_execution(False)

# Traced graphs are millions of small objects: fewer passes of the collector.
gc.set_threshold(100_000, 20, 50)


def pytest_collection_finish():
  """Leaves what was imported to no pass of the collector."""
  gc.freeze()


@pytest.fixture(autouse=True)
def global_seed():
  """Fixes TF's global generator, which only unseeded calls read."""
  tf.random.set_seed(20191101)


@pytest.fixture(autouse=True, scope='module')
def collected():
  """Frees the programs of a module: they are cycles, and gigabytes in all."""
  yield
  gc.collect()
  gc.freeze()  # What is left stays: no pass looks at it again.
