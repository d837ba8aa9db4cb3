"""What a builder or a part cannot take is refused with what to write instead.

One row for each rule. The ranges of numbers are tested in `test_arguments.py`;
here a few rows show that builders and parts check theirs.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import cases
from tests.contracts import latent_model
from tests.contracts import targets
from tests.surrogate import learning
from tests.surrogate import surrogates
from tests.transport.funnels import fixed
from tfp_adaptive import gaussian_priors
from tfp_adaptive.linear.criteria import penalty

_normal = targets.standard_normal
_NVP = tfpa.transports.real_nvp
_CONDITIONAL = tfpa.transports.conditional_gaussian
_proposals = tfpa.proposals
_adaptations = tfpa.adaptation


def _preconditioned(**options):
  """Returns a Hamiltonian proposal behind a matrix."""
  return _proposals.UncalibratedPreconditionedHamiltonian(
    _normal, tfpa.preconditioners.cholesky(), **options
  )


def _mapped(num_leapfrog_steps=3, transport=None, **options):
  """Returns a Hamiltonian proposal behind a map."""
  return _proposals.UncalibratedTransportedHamiltonian(
    _normal, transport or _NVP(), num_leapfrog_steps, **options
  )


def _around(wrapper, proposal, *arguments):
  return wrapper(tfpa.MetropolisHastings(proposal), *arguments)


def _by_gradient(transport):
  """Returns an adaptation by gradient of a map that may have a fit."""
  return _adaptations.GradientBasedAdaptation(
    tfpa.MetropolisHastings(_mapped(transport=transport)),
    tfpa.criteria.expected_squared_jump_distance(0.6),
    tfpa.optimizers.adam(1e-3),
    10,
  )


def _estimate(x, seed):
  del seed
  return x[..., 0]


def _learned_of_a_map():
  kernel = _transport(num_leapfrog_steps=1)
  results = kernel.bootstrap_results(tf.zeros([2, 2]))
  tfpa.learned_covariance(kernel, results)


_fisher = functools.partial(tfpa.fisher_divergence_hamiltonian, _normal, 10)
_metropolis = functools.partial(tfpa.adaptive_metropolis, _normal, 10)
_transport = functools.partial(tfpa.transport_adaptive_hamiltonian, _normal, 10)
_kernel = functools.partial(tfpa.kernel_hamiltonian, _normal, 10)
_measure = functools.partial(tfpa.criteria.generalized_speed_measure, 0.5)
_cross_entropy = functools.partial(tfpa.criteria.cross_entropy, 0.6)
_penalty = functools.partial(
  penalty.eigenvalue_penalty, weights=(1.0, 2.0), rate=0.1, slack=0.0
)
_per_part = tfpa.preconditioners.per_part
_low_rank = dict(preconditioner=tfpa.preconditioners.low_rank(1))
_autoregression = gaussian_priors.autoregression
_langevin = functools.partial(
  tfpa.gradient_adaptive_langevin, _normal, num_adaptation_steps=10
)
_LINEAR = [
  (_langevin, dict(num_adaptation_steps=-1), 'a non-negative int'),
  (_langevin, dict(preconditioner='diagonal'), r'\(with parentheses\)'),
  (_preconditioned, dict(num_leapfrog_steps=0), 'positive int'),
  (
    _preconditioned,
    dict(num_leapfrog_steps=2, hessian_product='f'),
    "'autodiff'",
  ),
  (_fisher, dict(num_leapfrog_steps=(4, 2)), 'fewest, most'),
  (_fisher, dict(num_leapfrog_steps=5, max_num_leapfrog_steps=9), 'Leave'),
  (_metropolis, dict(shape_rate=np.inf), '`shape_rate` must'),
  (_langevin, _low_rank, 'Build the kernel with `tfpa.fisher_divergence_h'),
  (
    _langevin,
    dict(_low_rank, optimizer=tfpa.optimizers.adam(1e-3)),
    'only fitted to pairs',
  ),
  (_metropolis, _low_rank, 'only fitted to pairs'),
  (_per_part, dict(preconditioners=_low_rank.values()), 'only fitted to pairs'),
  (_measure, dict(entropy_weight_rule='x'), 'one of'),
  (_measure, dict(min_entropy_weight=0.0), 'min_'),
  (_measure, dict(max_entropy_weight=-1.0), '`max_entropy_weight` must'),
  (
    _measure,
    dict(min_entropy_weight=2.0, max_entropy_weight=1.0),
    'at least the lower bound, 2.0',
  ),
  (_measure, dict(init_entropy_weight=0.0), '`init_entropy_weight` must'),
  (_measure, dict(entropy_weight_rate=-0.1), '`entropy_weight_rate` must'),
  (
    _measure,
    dict(penalty_threshold=0.75, penalty_rate=-0.1),
    '`penalty_rate` must',
  ),
  (
    _measure,
    dict(penalty_threshold=0.75, penalty_weights=(10.0, 1.0)),
    'least and the greatest weight',
  ),
  (
    _measure,
    dict(penalty_threshold=0.75, penalty_weights=(-1.0, 1.0)),
    '`penalty_weights` must',
  ),
  (_cross_entropy, dict(weight=-0.1), 'not be negative'),
  (_penalty, dict(threshold=1.0), 'between 0 and 1'),
  (tfpa.optimizers.adam, dict(learning_rate=-1e-3), '`learning_rate` must'),
  (
    tfpa.optimizers.adam,
    dict(learning_rate=1e-3, square_decay=1.5),
    '`square_decay` must',
  ),
  (tfpa.optimizers.relative_gradient, dict(gain=0.5), '`gain` must'),
  (tfpa.criteria.l2hmc, dict(target_accept_prob=0.0), '`target_accept_prob`'),
  (
    lambda **options: tfpa.adaptive_metropolis(
      _normal, 1, preconditioner=tfpa.preconditioners.cholesky(**options)
    ).bootstrap_results(tf.zeros([2, 3])),
    dict(init_scale=-1.0),
    '`init_scale` must',
  ),
]
_TRANSPORTS = [
  (_mapped, dict(num_leapfrog_steps=0), 'num_leapfrog_steps'),
  (_mapped, dict(transport=_NVP), '`transport` must be'),
  (_mapped, dict(experimental_shard_axis_names='i'), 'cannot be sharded'),
  (_mapped, dict(num_leapfrog_steps=(1, 3)), '`real_nvp` learns by gradient'),
  (_learned_of_a_map, {}, 'is no matrix'),
  (_transport, {}, '`real_nvp` learns by gradient.*`num_leapfrog_steps=5` al'),
  (_transport, dict(num_leapfrog_steps=(1, 3)), 'trajectories of one length'),
  (
    _transport,
    dict(num_leapfrog_steps=5, max_num_leapfrog_steps=9),
    'of one length.*`max_num_leapfrog_steps=9`.*`num_leapfrog_steps=5` alone',
  ),
  (
    _transport,
    dict(num_leapfrog_steps=5, max_num_leapfrog_steps=9, transport=fixed()),
    'Leave one of them',
  ),
  (
    _transport,
    dict(num_leapfrog_steps=3, keep_momentum=True),
    '`keep_momentum` out',
  ),
  (
    _transport,
    dict(
      num_leapfrog_steps=3, optimizer=tfpa.optimizers.relative_gradient(2.0)
    ),
    'works on tangents',
  ),
  (
    _transport,
    dict(transport=_CONDITIONAL(), optimizer=tfpa.optimizers.adam(1e-3)),
    'Leave them out',
  ),
  (_by_gradient, dict(transport=_CONDITIONAL()), 'FisherTransportAdaptation'),
  (
    lambda: _around(_adaptations.FisherTransportAdaptation, _mapped(), 10),
    {},
    "fitted to pairs, but got 'real_nvp'",
  ),
  (
    lambda: _around(_adaptations.FisherDivergenceAdaptation, _mapped(), 10),
    {},
    'works on tangents',
  ),
  (
    lambda: _around(_adaptations.MomentBasedAdaptation, _mapped(), 10),
    {},
    'works on tangents',
  ),
  (_NVP, dict(num_pairs=0), 'num_pairs'),
  (_NVP, dict(hidden_sizes=(5, 0)), 'hidden_sizes'),
  (lambda: _NVP().init(1, tf.float64, 1.0), {}, 'two coordinates'),
  (
    lambda: tfpa.transports.scaled([], lambda _: tfp.bijectors.Identity()),
    {},
    '`init_network` must be a function',
  ),
  (_CONDITIONAL, dict(structure='banded'), "one of .*'tridiagonal'"),
  (_CONDITIONAL, dict(drivers=[0.5]), 'must be indices'),
  (_CONDITIONAL, dict(drivers=[1, 1]), 'must be different coordinates'),
  (
    _CONDITIONAL,
    dict(exponents=[-2.0]),
    'a number for each of `drivers`, None',
  ),
  (
    _CONDITIONAL,
    dict(preconditioner=tfpa.preconditioners.diagonal),
    'with parentheses',
  ),
]
_surrogate_proposal = functools.partial(
  _proposals.UncalibratedSurrogateHamiltonian,
  target_log_prob_fn=_normal,
  surrogate=surrogates.gaussian(),
  preconditioner=tfpa.preconditioners.cholesky(),
)
_history = functools.partial(learning.kernel, 0)
_lite = functools.partial(tfpa.surrogates.kernel_exponential_family_lite, 10)
_finite = tfpa.surrogates.kernel_exponential_family_finite
_SURROGATES = [
  (_surrogate_proposal, dict(num_leapfrog_steps=(3, 2)), r'=\(1, 5\)'),
  (_surrogate_proposal, dict(trajectory_length=0.0), '=4.0'),
  (_surrogate_proposal, dict(step_size_jitter=(0.0, 1.0)), r'=\(0.5, 1.0'),
  (_surrogate_proposal, dict(walk_share=1.1), '=0.2'),
  (_surrogate_proposal, dict(surrogate=_finite), 'with parentheses'),
  (_surrogate_proposal, dict(target_log_prob_fn=_estimate), 'stochastic=True'),
  (_kernel, dict(target_accept_prob=0.7), r'num_leapfrog_steps=\(1, 10\)'),
  (_kernel, dict(walk_share=1.0), 'tfpa.adaptive_metropolis'),
  (_kernel, _low_rank, 'only fitted to pairs'),
  (_history, dict(history=np.zeros(4)), 'result.states'),
  (_history, dict(history=[[1.0, np.nan]] * 2), 'result.states'),
  (_lite, dict(num_centers=11), '`num_points=10`'),
  (_finite, dict(num_points=0), 'num_points='),
  (_finite, dict(kernel='laplace'), "'rational_quadratic'"),
  (
    lambda: tfpa.surrogates.in_turn(
      surrogates.known(lambda x: x, num_points=8), surrogates.gaussian()
    ),
    {},
    'the same number of draws',
  ),
]


def _mala(target, num_adaptation_steps):
  del num_adaptation_steps
  return tfp.mcmc.MetropolisAdjustedLangevinAlgorithm(target, 0.1)


def _with_a_prior(target, num_adaptation_steps):
  prior = gaussian_priors.spectral(covariance=np.eye(2))
  return tfpa.crank_nicolson(target, num_adaptation_steps, prior=prior)


def _exchange(target=_normal, **options):
  return tfpa.replica_exchange(target, 10, **options)


def _unit_interval(x):
  inside = tf.reduce_all((x > 0.0) & (x < 1.0), axis=-1)
  return tf.where(inside, 0.0 * x[..., 0], -np.inf)


def _started_outside():
  kernel = _exchange(
    num_replicas=3,
    kernel_fn=tfpa.fisher_divergence_langevin,
    reference=_unit_interval,
  )
  kernel.bootstrap_results(tf.constant(np.full((2, 2), 3.0)))


_TEMPERED = [
  (_exchange, dict(num_replicas=1), 'at least 2'),
  (_exchange, dict(min_inverse_temperature=0.0), 'reference'),
  (_exchange, dict(target=_estimate), 'requires a `seed`'),
  (_exchange, dict(reference=3), 'reference'),
  (
    _exchange,
    dict(reference=tfp.distributions.Normal([0.0, 0.0], 1.0)),
    'tfd.Independent',
  ),
  (_exchange, dict(kernel_fn=_mala), 'builder of `tfpa`'),
  (_exchange, dict(kernel_fn=_with_a_prior), 'cannot be tempered'),
  (_started_outside, {}, 'reference'),
]
_marginal = functools.partial(latent_model.build, case=cases.named('marginal'))
_hyper = functools.partial(
  tfpa.latent_gaussian_hyperparameters,
  latent_model.log_likelihood,
  1,
  prior_fn=latent_model.gaussian_prior,
  hyperprior=tfp.distributions.Normal(0.0, 1.0),
)


def _started(state, **options):
  return _marginal(**options).bootstrap_results(tf.constant(state))


_LATENT = [
  (_marginal, dict(prior=latent_model.C), 'gaussian_priors.spectral'),
  (_marginal, dict(delta=0.0), '`delta` must'),
  (_hyper, dict(hyper_target_accept_prob=1.0), 'hyper_target_accept_prob'),
  (_hyper, dict(hyper_step_size=0.0), 'hyper_step_size'),
  (
    latent_model.build,
    dict(case=cases.named('auxiliary_z'), auxiliary='w'),
    "'u'",
  ),
  (
    latent_model.build,
    dict(
      case=cases.named('cnl'),
      prior=gaussian_priors.spectral(np.ones([latent_model.D] * 2)),
    ),
    'jitter',
  ),
  (
    lambda: tfp.mcmc.TransformedTransitionKernel(
      _marginal(), tfp.bijectors.Exp()
    ),
    {},
    'built on that prior',
  ),
  (
    _started,
    dict(
      state=np.zeros([2, 4]), function=lambda x: -tf.reduce_sum(x**2, axis=-1)
    ),
    'event shape',
  ),
  (
    _started,
    dict(state=np.zeros([2, latent_model.D], np.float32)),
    'Cast one of them',
  ),
  (
    _started,
    dict(state=np.zeros([3, latent_model.D]), delta=np.ones([3, 1])),
    'one variance',
  ),
]
_REFUSED = [*_LINEAR, *_TRANSPORTS, *_SURROGATES, *_TEMPERED, *_LATENT]


@pytest.mark.parametrize('build, options, message', _REFUSED)
def test_what_makes_no_sense_is_refused_with_what_to_write(
  build, options, message
):
  with pytest.raises((TypeError, ValueError), match=message):
    build(**options)


_TWO = np.array([[2.0, 0.5], [0.5, 1.0]])
_MATERN = tfp.math.psd_kernels.MaternOneHalf(length_scale=np.float64(2.0))
_DENSE = gaussian_priors.spectral(_TWO)
_SINGLE = gaussian_priors.spectral(_TWO.astype(np.float32))
_line = functools.partial(gaussian_priors.stationary, 4)
_cholesky, _kronecker = gaussian_priors.cholesky, gaussian_priors.kronecker
_block, _markov = gaussian_priors.block, gaussian_priors.markov


@pytest.mark.parametrize(
  'build, arguments, message',
  [
    (_cholesky, [np.diag([1.0, -0.1])], 'Add `jitter`'),
    (_cholesky, [np.diag([1.0, np.inf])], 'not finite'),
    (_cholesky, [np.triu(_TWO)], 'symmetric'),
    (_cholesky, [np.ones([2, 3])], 'square'),
    (_kronecker, [], 'one matrix for every axis'),
    (_kronecker, [[_TWO, _TWO.astype(np.float32)]], 'one dtype'),
    (_kronecker, [[_TWO, _TWO - 2.0 * np.eye(2)]], 'That is factor 1'),
    (_block, [_DENSE], 'num_blocks=3'),
    (_block, [[_DENSE, _DENSE], 2], 'Leave it out'),
    (_block, [[_DENSE, _TWO]], 'list of at least one'),
    (_block, [[_DENSE, _SINGLE]], 'one dtype'),
    (_markov, [(np.ones(4), np.ones(3))], 'not positive definite'),
    (_markov, [(np.ones(4), np.ones(4))], 'one fewer each'),
    (_markov, [np.eye(3)], 'tuple of diagonals'),
    (_autoregression, [[1.01], 1.0, 8], 'unit circle'),
    (_autoregression, [[0.5], -1.0, 4], '`scale` must'),
    (gaussian_priors.random_walk, [1.0, 8, 1.0, 3], '1 or 2'),
    (
      gaussian_priors.state_space,
      [np.eye(2), np.eye(3), np.eye(2), 4],
      'of one size',
    ),
    (_line, [tfp.math.psd_kernels.Linear(np.float64(1.0))], 'not stationary'),
    (_line, [3.0], 'function of distance'),
    (_line, [lambda r: r], 'largest there'),
    (_line, [lambda r: 1.0 / r], 'not finite'),
    (_line, [tf.reduce_sum], 'one number for every distance'),
    (_line, [_MATERN, -1.0], 'spacing'),
    (gaussian_priors.stationary, [(3, 3, 3), _MATERN], 'one or two positive'),
    (functools.partial(_line, torus_shape=5), [_MATERN], 'on the torus'),
    (functools.partial(_line, torus_shape=3), [_MATERN], 'at least the grid'),
    (gaussian_priors.log_prob, [_DENSE, np.zeros([4, 3])], 'event shape'),
  ],
)
def test_what_makes_no_prior_is_refused(build, arguments, message):
  with pytest.raises((TypeError, ValueError), match=message):
    build(*arguments)
