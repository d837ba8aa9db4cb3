"""Entry points say where they cannot run: in forked children and in graphs."""

import sys

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tests.driver import child
from tfp_adaptive.driver import calling

_KERNEL = tfpa.gradient_adaptive_langevin(targets.standard_normal, 2)


def _posterior():
  """Returns a `Posterior` of nothing: no entry point may come to need it."""
  return tfpa.Posterior.__new__(tfpa.Posterior)


ENTRIES = {
  'tfpa.sample': lambda: tfpa.sample(_KERNEL, np.zeros([2, 3]), 5),
  'tfpa.sample_posterior': lambda: tfpa.sample_posterior(
    targets.standard_normal, init=tf.TensorSpec([3])
  ),
  'tfpa.load_posterior': lambda: tfpa.load_posterior(
    'none.npz', targets.standard_normal, init=tf.TensorSpec([3])
  ),
  'Posterior.more': lambda: _posterior().more(5),
  'Posterior.posterior_predictive': lambda: _posterior().posterior_predictive(),
  'Posterior.log_likelihood': lambda: _posterior().log_likelihood(),
}


def _in_function(call):
  tf.function(call)()


def _in_graph(call):
  with tf.Graph().as_default():
    call()


def _in_map_of_a_data_set(call):
  tf.data.Dataset.range(2).map(lambda _: call())


@pytest.mark.parametrize(
  'name, enter',
  [
    *((name, _in_function) for name in ENTRIES),
    ('tfpa.sample', _in_graph),
    ('tfpa.sample', _in_map_of_a_data_set),
  ],
)
def test_a_call_inside_a_graph_says_what_to_do(name, enter):
  # TensorFlow must not put words of its own in place of this sentence.
  message = (
    f'`{name}` compiles .* inside `tf.function` .* `tfp.mcmc.sample_chain`'
  )
  with pytest.raises(ValueError, match=message):
    enter(ENTRIES[name])


def test_a_call_outside_of_graphs_is_let_through():
  calling.check('tfpa.sample')

  def inside():
    calling.check('tfpa.sample')

  tf.config.run_functions_eagerly(True)
  try:
    tf.function(inside)()
  finally:
    tf.config.run_functions_eagerly(False)


_IN_FORKS = """
import multiprocessing
import os
import signal

import tensorflow as tf

from tests.driver import test_calling


def said(name):
  signal.alarm(60)  # Ends a child that would hang.
  try:
    test_calling.ENTRIES[name]()
  except RuntimeError as error:
    text = str(error)
    return text.startswith(f'`{name}` was') and "get_context('spawn')" in text
  return False


def status_of_child(function):
  child = os.fork()
  if not child:
    try:
      os._exit(function())
    finally:
      os._exit(99)
  return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def one_operation():
  signal.alarm(3)
  return int(tf.function(tf.add)(tf.ones([]), 2.0))


# A fork of a process that has not used TensorFlow yet can run all.
assert not test_calling.calling.tfp_private.has_started()
assert status_of_child(one_operation) == 3
assert status_of_child(lambda: test_calling.calling.check('a') is None) == 1
assert one_operation() == 3
signal.alarm(0)
# The negative control: without the check a child hangs until the alarm.
assert status_of_child(one_operation) == -signal.SIGALRM
names = list(test_calling.ENTRIES)
assert [status_of_child(lambda: said(name)) for name in names] == [1] * 6
with multiprocessing.get_context('fork').Pool(1) as pool:
  assert pool.map(said, names) == [True] * 6
# A child of a child knows it too.
assert status_of_child(lambda: status_of_child(lambda: said(names[0]))) == 1
"""


@pytest.mark.full
@pytest.mark.skipif(sys.platform == 'win32', reason='Windows does not fork')
def test_a_forked_child_says_spawn_where_it_would_hang():
  child.run('-W', 'ignore', '-c', _IN_FORKS)
