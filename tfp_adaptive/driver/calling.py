"""Refuses calls of an entry point from a forked child or inside of a graph.

TensorFlow's threads do not survive a fork. If a process has used TensorFlow,
its forked children wait for these threads for ever.
"""

import os
import sys

import tensorflow as tf

from tfp_adaptive.core import tfp_private
from tfp_adaptive.driver import quiet

_HANGING = set()  # Process ids of children forked after TensorFlow had run.


def check(name: str) -> None:
  """Refuses a call that would hang in a forked child, or fail in a graph.

  A call that is allowed starts TensorFlow without its messages, see `quiet`.
  """
  if os.getpid() in _HANGING:
    raise RuntimeError(
      f'`{name}` was called in a process that was forked after TensorFlow had '
      'run, where TensorFlow would wait for ever. Start processes by '
      "`multiprocessing.get_context('spawn')`, for example `multiprocessing."
      "get_context('spawn').Pool(4)` or `ProcessPoolExecutor(mp_context="
      "multiprocessing.get_context('spawn'))`."
    )
  if not tf.executing_eagerly():
    raise ValueError(
      f'`{name}` compiles and drives a run itself and cannot be called inside '
      '`tf.function` or another graph. Call it outside of them. Inside, run a '
      'kernel by `tfp.mcmc.sample_chain`.'
    )
  quiet.start()


def _after_fork():
  """Notes in a forked child whether its parent has used TensorFlow."""
  if tfp_private.has_started():
    _HANGING.add(os.getpid())


if sys.platform != 'win32':  # Windows does not fork.
  os.register_at_fork(after_in_child=_after_fork)
