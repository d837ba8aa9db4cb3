"""What `tfpa.sample` refuses before it computes anything."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets

_START = np.zeros([3, 2])


def _sample(**options):
  kernel = tfpa.gradient_adaptive_langevin(targets.standard_normal, 4)
  arguments = dict(
    num_results=5, seed=(1, 2), progress=False, jit_compile=False
  )
  return tfpa.sample(kernel, tf.constant(_START), **(arguments | options))


@pytest.mark.parametrize(
  'options',
  [
    dict(num_results=0),
    dict(num_results=-1),
    dict(num_results=2.5),
    dict(num_results=True),
    dict(num_results=None),
    dict(num_burnin_steps=-1),
    dict(num_burnin_steps=1.0),
    dict(num_steps_between_results=-1),
    dict(block_size=0),
    dict(block_size='10'),
  ],
  ids=str,
)
def test_counts_that_are_no_counts_are_refused_by_name(options):
  with pytest.raises(ValueError, match=f'`{next(iter(options))}` must be'):
    _sample(**options)


@pytest.mark.parametrize('seed', [None, True, 'a', (1, 2, 3), (0.5, 1.0)])
def test_what_is_no_seed_is_refused(seed):
  with pytest.raises(ValueError, match='`seed` must be an int, a pair'):
    _sample(seed=seed)


@pytest.mark.parametrize(
  'kernel', [targets.standard_normal, tfp.mcmc.HamiltonianMonteCarlo]
)
def test_what_is_no_kernel_is_refused_with_what_to_write(kernel):
  with pytest.raises(TypeError, match='`kernel` must be.*Write for example'):
    tfpa.sample(kernel, _START, num_results=1)


def test_a_trace_of_nothing_is_refused():
  with pytest.raises(ValueError, match='`trace_fn` returned None'):
    _sample(trace_fn=lambda state, results: None)


def test_a_call_inside_a_function_is_refused_with_the_way_out():
  with pytest.raises(ValueError, match='sample_chain'):
    tf.function(lambda: _sample().states, autograph=False)()
