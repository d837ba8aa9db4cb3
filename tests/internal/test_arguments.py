"""What is refused of arguments that many kernels take, and what is not."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.internal import arguments


@pytest.mark.parametrize(
  'value', [1e-3, 2, np.float32(0.5), np.ones([3, 1]), tf.constant([0.1, 3.0])]
)
def test_positive_numbers_of_any_kind_are_taken(value):
  arguments.check_positive('rate', value, 0.1)


@pytest.mark.parametrize(
  'value',
  [0, -1.0, np.nan, np.inf, True, None, '1', np.array([1.0, 0.0]), [1.0, 'a']],
  ids=str,
)
def test_what_is_not_positive_is_refused_with_what_to_write(value):
  with pytest.raises(ValueError, match='`rate` must be.*`rate=0.1`'):
    arguments.check_positive('rate', value, 0.1)


def test_tensors_are_looked_into_where_they_are_known():
  with pytest.raises(ValueError, match='rate'):
    arguments.check_positive('rate', tf.constant(-1.0), 0.1)


@pytest.mark.parametrize(
  'build',
  [
    lambda **options: tfpa.gradient_adaptive_random_walk(
      targets.standard_normal, 1, **options
    ),
    lambda **options: tfpa.gradient_adaptive_langevin(
      targets.standard_normal, 1, **options
    ),
    lambda **options: tfpa.entropy_adaptive_hamiltonian(
      targets.standard_normal, 2, 1, **options
    ),
    lambda **options: tfpa.transport_adaptive_hamiltonian(
      targets.standard_normal, 2, 1, **options
    ),
  ],
)
@pytest.mark.parametrize(
  'name, part',
  [
    ('criterion', tfpa.criteria.generalized_speed_measure),
    ('criterion', 'entropy'),
    ('optimizer', tfpa.optimizers.adam),
    ('optimizer', 'adam'),
  ],
)
def test_parts_without_parentheses_are_refused(build, name, part):
  message = rf'`{name}` must be.*`{name}=tfpa\.[a-z_.]*\(.*with parentheses'
  with pytest.raises(TypeError, match=message):
    build(**{name: part})


@pytest.mark.parametrize(
  'build',
  [
    lambda: tfpa.optimizers.adam(-1e-3),
    lambda: tfpa.optimizers.rmsprop(0.0),
    lambda: tfpa.optimizers.relative_gradient(gain=0.5),
    lambda: tfpa.optimizers.clip_by_global_norm(tfpa.optimizers.adam(1.0), 0.0),
    lambda: tfpa.criteria.l2hmc(0.0),
    lambda: tfpa.criteria.expected_squared_jump_distance(1.0),
    lambda: tfpa.gaussian_priors.autoregression([0.5], -1.0, 4),
    lambda: tfpa.gaussian_priors.random_walk(1.0, 4, initial_scale=0.0),
    lambda: tfpa.kernel_adaptive_metropolis(
      targets.standard_normal, 1, step_size=0.0
    ),
    lambda: tfpa.kernel_adaptive_metropolis(
      targets.standard_normal, 1, target_accept_prob=1.0
    ),
    lambda: tfpa.kernel_hamiltonian(targets.standard_normal, 1, step_size=0.0),
    lambda: tfpa.kernel_hamiltonian(
      targets.standard_normal,
      1,
      num_leapfrog_steps=3,
      target_accept_prob=1.0,
    ),
  ],
)
def test_numbers_that_make_no_part_are_refused(build):
  with pytest.raises(ValueError, match='must .*but got'):
    build()
