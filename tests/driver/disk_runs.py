"""Short runs whose draws are on disk, and what Zarr reads of them."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets

zarr = pytest.importorskip('zarr', reason='draws_dir is an extra')

START = np.random.default_rng(4).normal(size=(3, 2))


# One for all runs, so that its steps are traced once.
_KERNEL = tfpa.gradient_adaptive_langevin(targets.standard_normal, 4)


def sample(folder=None, kernel=None, start=START, **options):
  """Returns a short run, whose draws are in `folder` where it is given."""
  # Uncompiled: a block of these steps is traced faster than compiled.
  arguments = dict(
    num_results=11,
    block_size=4,
    seed=(1, 2),
    progress=False,
    jit_compile=False,
    draws_dir=folder,
  )
  arguments.update(options)
  start = tf.nest.map_structure(tf.constant, start)
  return tfpa.sample(kernel or _KERNEL, start, **arguments)


def two_axes(x):
  """Returns the log-density of states of two axes."""
  return -0.5 * tf.reduce_sum(x**2, axis=(-2, -1))


def reads(monkeypatch):
  """Returns a list that fills with (file, range) of what Zarr reads."""
  found, get = [], zarr.storage.LocalStore.get

  async def noted_get(self, key, prototype, byte_range=None):
    value = await get(self, key, prototype, byte_range)
    if value is not None and not key.endswith('.json'):
      found.append((f'{self.root}/{key}', str(byte_range)))
    return value

  monkeypatch.setattr(zarr.storage.LocalStore, 'get', noted_get)
  return found
