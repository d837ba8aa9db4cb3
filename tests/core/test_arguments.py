"""What is refused of arguments that many kernels take, and what is not."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.core import arguments


@pytest.mark.parametrize(
  'value',
  [1e-3, np.float32(0.5), np.ones([3, 1]), tf.constant([0.1, 3.0])],
  ids=str,
)
def test_positive_numbers_of_any_kind_are_taken(value):
  arguments.check_positive(value, 'rate', 0.1, is_array=True)
  if np.ndim(value):
    with pytest.raises(ValueError, match='`rate` must be .*one number'):
      arguments.check_positive(value, 'rate', 0.1)


@pytest.mark.parametrize(
  'value', [0, np.nan, True, None, '1', tf.constant(-1.0), [1.0, 'a'], 1 + 2j]
)
def test_what_is_not_positive_is_refused_with_what_to_write(value):
  with pytest.raises(ValueError, match='`rate` must be.*`rate=0.1`'):
    arguments.check_positive(value, 'rate', 0.1, is_array=True)


@pytest.mark.parametrize('value', [0, True, 2.0, '3', None, np.bool_(True)])
def test_what_is_no_count_is_refused(value):
  with pytest.raises(ValueError, match='`num` must be.*`num=5`'):
    arguments.check_count(value, 'num', 5)
  arguments.check_count(np.int64(3), 'num', 5)


_F = targets.standard_normal
_PRIOR = tfpa.gaussian_priors.spectral(np.eye(2, dtype=np.float32))
_langevin = functools.partial(tfpa.gradient_adaptive_langevin, _F, 1)
_kernel_hamiltonian = functools.partial(tfpa.kernel_hamiltonian, _F, 1)


@pytest.mark.parametrize(
  'name, part',
  [
    ('criterion', tfpa.criteria.generalized_speed_measure),
    ('criterion', 'entropy'),
    ('optimizer', tfpa.optimizers.adam),
    ('optimizer', 'adam'),
  ],
)
def test_parts_without_parentheses_are_refused(name, part):
  with pytest.raises(TypeError, match=f'`{name}` must be.*with parentheses'):
    _langevin(**{name: part})


@pytest.mark.parametrize(
  'build',
  [
    lambda: tfpa.entropy_adaptive_hamiltonian(_F, 3, 500),
    lambda: tfpa.entropy_adaptive_hamiltonian(_F, 3, num_adaptation_steps=500),
    lambda: tfpa.entropy_adaptive_hamiltonian(_F, 500),
    lambda: tfpa.entropy_adaptive_hamiltonian(
      _F, 500, num_adaptation_steps=500, num_leapfrog_steps=3
    ),
    lambda: tfpa.fisher_divergence_hamiltonian(_F, 500, 3),
    lambda: tfpa.replica_exchange(_F, 500, 3),
    # Truth values that other builders would take for an acceptance.
    lambda: tfpa.crank_nicolson(_F, _PRIOR, 500, 0.55),
    lambda: tfpa.latent_gaussian_hyperparameters(
      _F, lambda _: _PRIOR, None, 500, 0.55
    ),
  ],
)
def test_a_number_that_has_another_meaning_in_other_builders_is_named(build):
  with pytest.raises(TypeError, match='Write for example `'):
    build()


def test_the_second_argument_of_every_builder_counts_adapting_steps():
  for build in (
    tfpa.adaptive_metropolis,
    tfpa.fisher_divergence_hamiltonian,
    tfpa.fisher_divergence_langevin,
    tfpa.gradient_adaptive_langevin,
    tfpa.gradient_adaptive_random_walk,
    tfpa.kernel_hamiltonian,
    functools.partial(tfpa.entropy_adaptive_hamiltonian, num_leapfrog_steps=3),
  ):
    # The old order would have made this 500 leapfrog steps.
    assert build(_F, 500).num_adaptation_steps == 500


def test_the_error_shows_a_call_that_works():
  with pytest.raises(TypeError) as raised:
    tfpa.entropy_adaptive_hamiltonian(_F, 3, 500)
  shown = str(raised.value).split('`')[-2]
  kernel = eval(f'tfpa.{shown}', {'tfpa': tfpa, 'target_log_prob_fn': _F})
  assert kernel.num_adaptation_steps == 500
  assert kernel.proposal.num_leapfrog_steps == 3


@pytest.mark.parametrize(
  'name, build',
  [
    ('learning_rate', lambda: tfpa.optimizers.adam(-1e-3)),
    ('decay', lambda: tfpa.optimizers.adam(1e-3, decay=1.0)),
    ('learning_rate', lambda: tfpa.optimizers.rmsprop(0.0)),
    ('gain', lambda: tfpa.optimizers.relative_gradient(gain=0.5)),
    ('target_accept_prob', lambda: tfpa.criteria.l2hmc(0.0)),
    ('weight', lambda: tfpa.criteria.cross_entropy(0.5, weight=np.nan)),
    ('scale', lambda: tfpa.gaussian_priors.autoregression([0.5], -1.0, 4)),
    ('initial_scale', lambda: tfpa.gaussian_priors.random_walk(1.0, 4, 0.0)),
    ('step_size', lambda: _kernel_hamiltonian(step_size=0.0)),
    (
      'target_accept_prob',
      lambda: _kernel_hamiltonian(num_leapfrog_steps=3, target_accept_prob=1.0),
    ),
    (
      'init_scale',
      lambda: _langevin(
        preconditioner=tfpa.preconditioners.cholesky(init_scale=-1.0)
      ).bootstrap_results(tf.zeros([2, 3])),
    ),
  ],
)
def test_numbers_out_of_their_range_are_refused_by_name(name, build):
  with pytest.raises(ValueError, match=f'`{name}` must .*but got'):
    build()


def test_whole_numbers_and_dtypes_of_a_scale_are_kept():
  for scale, dtype in ((1, 'float32'), (np.float64(1.0), 'float64')):
    prior = tfpa.gaussian_priors.random_walk(scale, 4, initial_scale=1.0)
    assert prior.params.bands[0].dtype == dtype


def test_lists_with_what_only_the_run_knows_are_taken():
  @tf.function(autograph=False)
  def build(x):
    arguments.check_positive([x, 2.0], 'rate', 0.1, is_array=True)
    return x

  build(tf.constant(-1.0))
