"""The builders without gradients: runs from start to draws."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from tests.contracts import targets
from tests.surrogate import surrogates
from tfp_adaptive.core import tfp_private
from tfp_adaptive.driver import checkpoint as checkpoint_lib

_SIZE = 5
_FACTOR = targets.correlated_factor(_SIZE, condition=100.0)
_MEAN = np.arange(1.0, _SIZE + 1.0)


def _log_prob(x):
  inverse = tf.constant(np.linalg.inv(_FACTOR), x.dtype)
  return targets.standard_normal(tf.linalg.matvec(inverse, x - _MEAN))


def _far_start(num_chains=10):
  """Returns starts 20 standard deviations away."""
  rng = np.random.default_rng(0)
  direction = rng.normal(size=(num_chains, _SIZE))
  direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
  return tf.constant(_MEAN + 20.0 * direction @ _FACTOR.T)


def _sample(kernel, start, num_results, **options):
  arguments = dict(seed=(1, 2), progress=False, jit_compile=False) | options
  return tfpa.sample(kernel, start, num_results, **arguments)


def _surrogate(name):
  return {
    'gaussian': lambda: surrogates.gaussian(200),
    'finite': lambda: tfpa.surrogates.kernel_exponential_family_finite(200, 50),
  }[name]()


@functools.cache
def _learned(name, **options):
  kernel = tfpa.kernel_hamiltonian(
    _log_prob, 2000, surrogate=_surrogate(name), **options
  )
  return kernel, _sample(kernel, _far_start(), 2000)


each_surrogate = pytest.mark.parametrize(
  'name', ['gaussian', pytest.param('finite', marks=pytest.mark.nightly)]
)


@pytest.mark.full
@each_surrogate
def test_a_gaussian_is_learned_from_a_far_start(name):
  _, result = _learned(name)
  z = np.linalg.solve(_FACTOR, (result.states - _MEAN).reshape(-1, _SIZE).T)
  z = z.T.reshape(result.states.shape)
  size = tfp.mcmc.effective_sample_size(tf.constant(z), cross_chain_dims=1)
  squares = tfp.mcmc.effective_sample_size(
    tf.constant(z**2), cross_chain_dims=1
  )
  assert np.min(size) > 500.0 and np.min(squares) > 500.0
  # Standard errors of means, and of variances: z^2 has variance 2.
  error = np.asarray(size) ** -0.5
  assert np.all(np.abs(z.mean(axis=(0, 1))) < 4.0 * error)
  error = (2.0 / np.asarray(squares)) ** 0.5
  assert np.all(np.abs((z**2).mean(axis=(0, 1)) - 1.0) < 4.0 * error)
  reduction = tfp.mcmc.potential_scale_reduction(
    tf.constant(result.states), independent_chain_ndims=1
  )
  assert np.max(reduction) < 1.05


@pytest.mark.full
def test_the_step_size_settles_at_the_acceptance_asked_for():
  _, result = _learned('gaussian', num_leapfrog_steps=(1, 10))
  # The mean of min(1, exp(r)), which dual averaging steers.
  ratio = result.trace['log_accept_ratio']
  rate = np.mean(np.exp(np.minimum(ratio, 0.0)))
  assert abs(rate - 0.65) < 0.1
  steps = tfp_private.get_innermost(result.final_kernel_results, 'step_size')
  assert float(steps) != 0.3


@pytest.mark.full
@each_surrogate
def test_steps_are_long_and_most_of_them_follow(name):
  _, result = _learned(name)
  z = np.linalg.solve(_FACTOR, (result.states - _MEAN).reshape(-1, _SIZE).T)
  moved = np.diff(z.T.reshape(result.states.shape), axis=0)
  # Independent draws move by 2 per coordinate, walks by a tenth of it.
  assert np.mean(moved**2) > 1.0
  params = tfp_private.get_innermost(result.final_kernel_results, 'walk_params')
  # They earn more than walks.
  assert abs(float(params.share) - 0.1) < 1e-6


@pytest.mark.full
@each_surrogate
def test_the_learned_momentum_scale_is_that_of_the_target(name):
  _, result = _learned(name)
  factor = tfp_private.get_innermost(
    result.final_kernel_results, 'preconditioner_params'
  ).numpy()
  whitened = np.linalg.solve(_FACTOR, factor)
  values = np.linalg.svd(whitened, compute_uv=False)
  # 200 draws of 5 dimensions; without learning the ratio is 10.
  assert values[0] / values[-1] < 2.0, values


@pytest.mark.full
def test_frozen_is_the_learned_kernel():
  kernel, result = _learned('gaussian')
  fixed = tfpa.frozen(kernel, result.final_kernel_results)
  state = result.final_state
  start = fixed.bootstrap_results(state)
  walked = set()
  for seed in targets.seeds(20):
    expected, _ = kernel.one_step(state, result.final_kernel_results, seed=seed)
    moved, results = fixed.one_step(state, start, seed=seed)
    np.testing.assert_allclose(moved, expected, rtol=1e-12)
    walked.add(bool(results.proposed_results.trajectory.has_walked))
  assert walked == {True, False}
  assert tfpa.cost_per_step(kernel, adapting=False)[:3] == (1, 0, 0)


class _KilledError(Exception):
  pass


@pytest.mark.full
def test_a_continued_run_gives_the_same_bits(tmp_path, monkeypatch):
  kernel = tfpa.kernel_hamiltonian(
    _log_prob, 20, surrogate=surrogates.gaussian()
  )
  run = functools.partial(_sample, kernel, _far_start(), 10, block_size=8)
  expected = run()
  save, calls = checkpoint_lib.Checkpoint.save, []

  def dying_save(self, *args):
    save(self, *args)
    calls.append(None)
    if len(calls) == 2:  # After 16 steps: the last fit is in it.
      raise _KilledError

  with monkeypatch.context() as patch:
    patch.setattr(checkpoint_lib.Checkpoint, 'save', dying_save)
    with pytest.raises(_KilledError):
      run(checkpoint_dir=tmp_path)
  continued = run(checkpoint_dir=tmp_path)
  assert int(
    tfp_private.get_innermost(expected.final_kernel_results, 'num_fits')
  )
  for one, other in zip(
    tf.nest.flatten((expected.states, expected.final_kernel_results)),
    tf.nest.flatten((continued.states, continued.final_kernel_results)),
  ):
    np.testing.assert_array_equal(one, other)


@pytest.mark.full
def test_sample_chain_compiles_with_a_surrogate_of_the_library():
  kernel = tfpa.kernel_hamiltonian(
    _log_prob,
    50,
    surrogate=tfpa.surrogates.kernel_exponential_family_finite(
      50, 20, online=True
    ),
  )

  @tf.function(jit_compile=True, autograph=False)
  def run(start):
    return tfp.mcmc.sample_chain(
      110,
      start,
      kernel=kernel,
      seed=tf.constant([1, 2]),
      trace_fn=lambda _, results: tfp_private.get_innermost(
        results, 'num_fits'
      ),
    )

  draws, num_fits = run(_far_start(8))
  assert draws.shape == (110, 8, _SIZE) and np.all(np.isfinite(draws))
  assert num_fits[-1] >= 2
  # Still far out, what was learned in 50 steps goes on moving the chains.
  has_moved = np.any(draws[51:] != draws[50:-1], axis=(1, 2))
  assert np.mean(has_moved) > 0.1


@pytest.mark.full
@pytest.mark.parametrize(
  'build, surrogate',
  [
    (
      tfpa.kernel_hamiltonian,
      tfpa.surrogates.kernel_exponential_family_finite(30, 20),
    ),
    (baselines.kernel_adaptive_metropolis, baselines.kernel_subsample(30)),
  ],
  ids=['kernel_hamiltonian', 'kernel_adaptive_metropolis'],
)
def test_the_number_of_chains_may_be_unknown(build, surrogate):
  kernel = build(_log_prob, 20, surrogate=surrogate)

  @tf.function(
    input_signature=[tf.TensorSpec([None, _SIZE], tf.float64)], autograph=False
  )
  def step(start):
    return kernel.one_step(
      start, kernel.bootstrap_results(start), seed=tf.constant([1, 2])
    )[0]

  start = _far_start(3)
  moved, _ = kernel.one_step(
    start, kernel.bootstrap_results(start), seed=tf.constant([1, 2])
  )
  np.testing.assert_allclose(step(start), moved, rtol=1e-10)


@pytest.mark.full
def test_over_a_transformed_target_the_law_is_that_of_the_target():
  # Gamma(3) of positive states, known by draws of its logarithm.
  rng = np.random.default_rng(0)
  gamma = tfp.distributions.Gamma(tf.constant([3.0, 3.0], tf.float64), 1.0)

  def one_step(log_prob):
    kernel = tfp.mcmc.TransformedTransitionKernel(
      tfpa.kernel_hamiltonian(
        log_prob,
        0,
        surrogate=surrogates.gaussian(),
        num_leapfrog_steps=3,
        history=np.log(rng.gamma(3.0, size=(100, 2))),
      ),
      tfp.bijectors.Exp(),
    )
    start = tf.constant(np.random.default_rng(1).gamma(3.0, size=(20_000, 2)))
    return targets.stepper(kernel, 'graph')(
      start, kernel.bootstrap_results(start), tf.constant([1, 2])
    )

  def p_value(state):
    return stats.kstest(np.ravel(state), stats.gamma(3.0).cdf).pvalue

  state, results = one_step(lambda x: tf.reduce_sum(gamma.log_prob(x), axis=-1))
  accepted = tfp_private.get_innermost(results, 'is_accepted')
  assert 0.3 < np.mean(accepted) < 0.99
  assert p_value(state) > 1e-3
  wrong, _ = one_step(lambda x: 1.2 * tf.reduce_sum(gamma.log_prob(x), axis=-1))
  assert p_value(wrong) < 1e-6


_BEND, _VARIANCE = 0.03, 100.0


def _banana(num_draws, seed):
  """Returns exact draws of the 8-D banana of Strathmann et al."""
  x = np.random.default_rng(seed).normal(size=(num_draws, 8))
  x[:, 0] *= _VARIANCE**0.5
  x[:, 1] += _BEND * (x[:, 0] ** 2 - _VARIANCE)
  return x


def _banana_log_prob(x):
  bent = x[..., 1] - _BEND * (x[..., 0] ** 2 - _VARIANCE)
  rest = tf.reduce_sum(x[..., 2:] ** 2, axis=-1)
  return -0.5 * (x[..., 0] ** 2 / _VARIANCE + bent**2 + rest)


def _banana_acceptance(history_seed, surrogate=None, num_chains=1000):
  """Returns the mean acceptance of a step of 20 leapfrog steps of 0.5."""
  kernel = tfpa.kernel_hamiltonian(
    _banana_log_prob,
    0,
    surrogate=surrogate,
    preconditioner=tfpa.preconditioners.diagonal(init_scale=1.0),
    num_leapfrog_steps=20,
    step_size=0.5,
    history=_banana(1000, history_seed),
    walk_share=0.0,
  ).inner_kernel.copy(learn_momentum_scale=False)
  start = tf.constant(_banana(num_chains, seed=999))
  state, results = targets.stepper(kernel, 'graph')(
    start, kernel.bootstrap_results(start), tf.constant([1, 2])
  )
  ratio = results.inner_results.log_accept_ratio
  return float(np.mean(np.exp(np.minimum(ratio, 0.0))))


@pytest.mark.nightly
def test_draws_known_beforehand_make_a_good_sampler_without_adaptation():
  acceptances = [_banana_acceptance(seed) for seed in range(3)]
  assert np.mean(acceptances) > 0.75, acceptances
  # Power: what knows mean and covariance only.
  assert _banana_acceptance(0, surrogates.gaussian(1000)) < 0.5


def _with_history(shift, surrogate=None, **options):
  draws = np.random.default_rng(2).normal(size=(100, _SIZE))
  kernel = tfpa.kernel_hamiltonian(
    targets.standard_normal,
    0,
    surrogate=surrogate or surrogates.gaussian(),
    history=draws,
    **options,
  )
  start = np.zeros([3, _SIZE])
  start[1] += shift
  return kernel, tf.constant(start)


@pytest.mark.full
def test_chains_that_start_outside_of_the_history_are_named():
  kernel, start = _with_history(100.0)
  with pytest.warns(
    UserWarning, match='the start of chain 1. The sur.*family_lite'
  ):
    _sample(kernel, start, 2)
  with pytest.warns(UserWarning, match='the start of the chain. The'):
    _sample(kernel, start[1], 2)


@pytest.mark.full
def test_chains_that_start_inside_and_far_starts_of_the_lite_one_are_quiet(
  recwarn,
):
  kernel, start = _with_history(0.0)
  _sample(kernel, start, 2)
  lite = surrogates.gaussian()._replace(name='kernel_exponential_family_lite')
  _sample(*_with_history(100.0, lite), 2)
  said = [str(w.message) for w in recwarn if w.category is UserWarning]
  assert not [message for message in said if 'history' in message], said


@pytest.mark.full
def test_a_surrogate_that_was_never_fitted_is_said():
  kernel, start = _with_history(0.0, surrogates.failing(num_good_fits=0))
  with pytest.warns(UserWarning, match='could not be fitted to `history`'):
    _sample(kernel, start, 2)
  short = tfpa.kernel_hamiltonian(
    targets.standard_normal, 3, surrogate=surrogates.gaussian()
  )
  with pytest.warns(UserWarning, match='never fitted'):
    _sample(short, start[0], 2)


@pytest.mark.full
def test_options_are_handed_on():
  kernel = tfpa.kernel_hamiltonian(
    targets.standard_normal,
    10,
    preconditioner=tfpa.preconditioners.diagonal(init_scale=2.0),
    num_leapfrog_steps=5,
    step_size=np.array(0.25),
    target_accept_prob=0.7,
    walk_share=0.0,
  )
  assert kernel.parameters['target_accept_prob'] == 0.7
  parameters = kernel.inner_kernel.proposal.parameters
  assert parameters['num_leapfrog_steps'] == 5
  assert parameters['walk_share'] == 0.0
  results = kernel.bootstrap_results(tf.ones([2, 4], tf.float64))
  np.testing.assert_allclose(
    tfpa.learned_factor(kernel, results), 0.5 * np.eye(4)
  )
  with pytest.raises(
    ValueError, match=r'num_leapfrog_steps=\(1, 10\)` as well'
  ):
    tfpa.kernel_hamiltonian(_log_prob, 10, target_accept_prob=0.7)
  with pytest.raises(ValueError, match='target_is_stochastic=True'):
    tfpa.kernel_hamiltonian(lambda x, seed: x[..., 0], 10)
