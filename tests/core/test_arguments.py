"""What is refused of arguments that many kernels take, and what is not."""

import inspect

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import targets
from tfp_adaptive.core import arguments
from tfp_adaptive.core import stack


@pytest.mark.parametrize(
  'value', [1e-3, 2, np.float32(0.5), np.ones([3, 1]), tf.constant([0.1, 3.0])]
)
def test_positive_numbers_of_any_kind_are_taken(value):
  arguments.check_positive(value, 'rate', 0.1, is_array=True)


@pytest.mark.parametrize(
  'value', [np.ones([2]), [1.0, 2.0], tf.constant([0.5])], ids=str
)
def test_an_array_is_no_number(value):
  with pytest.raises(ValueError, match='`rate` must be .*one number'):
    arguments.check_positive(value, 'rate', 0.1)
  with pytest.raises(ValueError, match='`share` must lie'):
    arguments.check_inner_share([0.5], 'share', '')


@pytest.mark.parametrize(
  'value',
  [
    *(0, -1.0, np.nan, np.inf, True, None, '1', np.array([1.0, 0.0])),
    *([1.0, 'a'], tf.constant(-1.0)),
  ],
  ids=str,
)
def test_what_is_not_positive_is_refused_with_what_to_write(value):
  with pytest.raises(ValueError, match='`rate` must be.*`rate=0.1`'):
    arguments.check_positive(value, 'rate', 0.1, is_array=True)


@pytest.mark.parametrize('value', [0, -1, True, 2.0, '3', None, np.bool_(True)])
def test_what_is_no_count_is_refused(value):
  arguments.check_count(np.int64(3), 'num', 5)
  with pytest.raises(ValueError, match='`num` must be.*`num=5`'):
    arguments.check_count(value, 'num', 5)


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
  message = rf'`{name}` must be.*`{name}=tfpa\.[a-z_.]*\(.*with parentheses'
  with pytest.raises(TypeError, match=message):
    tfpa.gradient_adaptive_langevin(_F, 1, **{name: part})


_PRIOR = tfpa.gaussian_priors.spectral(np.eye(2, dtype=np.float32))
_F = targets.standard_normal
# What the examples in the errors name.
_NAMES = dict(
  tfpa=tfpa,
  target_log_prob_fn=_F,
  log_likelihood_fn=_F,
  prior=tfpa.gaussian_priors.random_walk(1.0, 2, 1.0),
  prior_fn=lambda theta: _PRIOR,
  hyperprior=tfp.distributions.Normal(0.0, 1.0),
)
_BUILDERS = [
  value
  for value in vars(tfpa).values()
  if inspect.isfunction(value)
  and next(iter(inspect.signature(value).parameters), '') in _NAMES
]
_each_builder = pytest.mark.parametrize(
  'build', _BUILDERS, ids=lambda build: build.__name__
)


@_each_builder
def test_the_error_of_a_wrong_call_shows_one_that_works(build):
  with pytest.raises(TypeError, match='`colour` is not an argument') as raised:
    build(_F, colour='red')
  shown = str(raised.value).split('`')[-2]
  kernel = eval(f'tfpa.{shown}', _NAMES)
  assert isinstance(kernel, tfp.mcmc.TransitionKernel)


@_each_builder
def test_names_and_shard_axes_go_to_the_proposal(build):
  with pytest.raises(TypeError) as raised:
    build()
  shown = str(raised.value).split('`')[-2].removesuffix(')')
  kernel = eval(f"tfpa.{shown}, name='mine')", _NAMES)
  assert stack.kernels(kernel)[-1].name == 'mine'
  if 'experimental_shard_axis_names' in inspect.signature(build).parameters:
    shown += ", experimental_shard_axis_names=['axis'])"
    kernel = eval(f'tfpa.{shown}', _NAMES)
    assert kernel.experimental_shard_axis_names == ['axis']


@pytest.mark.parametrize(
  'build, message',
  [
    (
      lambda: tfpa.entropy_adaptive_hamiltonian(_F, 500),
      '`num_leapfrog_steps` is not given',
    ),
    (
      lambda: tfpa.marginal_gradient(_F, _PRIOR, num_adaptation_steps=500),
      '`num_adaptation_steps` is given twice, `prior` is not given',
    ),
  ],
)
def test_what_is_wrong_with_a_call_is_named(build, message):
  with pytest.raises(TypeError, match=message):
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


@pytest.mark.parametrize(
  'name', ['transported', 'kernel_hamiltonian', 'marginal', 'elliptical_slice']
)
def test_kernels_of_all_kinds_refuse_a_start_of_whole_numbers(name):
  kernel = cases.named(name).build()
  with pytest.raises(TypeError, match='floating numbers'):
    kernel.bootstrap_results(np.zeros([4, 2], np.int64))
  with pytest.raises(TypeError, match="float32 or float64.*'float16'"):
    kernel.bootstrap_results(np.zeros([4, 2], np.float16))
