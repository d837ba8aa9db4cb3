"""What the fingerprints run: every builder with its parts, small and quick.

Public names only, and every argument by its name, so that the same cases build
whatever is moved inside of the library.
"""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments import presets
from experiments.samplers import baselines

__all__ = ['CASES', 'NUM_ADAPTATION_STEPS']

NUM_ADAPTATION_STEPS = 100
_NUM_CHAINS = 3
_SIZE = 4


def _banana(x):
  first, second, rest = tf.split(x, [1, 1, x.shape[-1] - 2], axis=-1)
  second += 0.4 * (first**2 - 1.0) - 0.3 * first
  scales = tf.constant([1.0, 0.5, 2.0, 0.3], x.dtype)
  z = tf.concat([first, second, rest], axis=-1) / scales
  return -0.5 * tf.reduce_sum(z**2, axis=-1)


def _banana_of_parts(x, y):
  return _banana(tf.concat([x, y], axis=-1))


def _estimate(x, seed):
  noise = tf.random.stateless_normal(tf.shape(x)[:-1], seed, dtype=x.dtype)
  return _banana(x) + 0.1 * noise


def _counts(x):
  y = tf.constant([0.0, 2.0, 1.0, 4.0], x.dtype)
  return tf.reduce_sum(y * x - tf.exp(x), axis=-1)


def _start(dtype=np.float64):
  normals = np.random.default_rng(0).normal(size=(_NUM_CHAINS, _SIZE))
  return tf.constant(normals.astype(dtype))


def _covariance(size=_SIZE):
  distance = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
  return np.exp(-0.5 * distance) + 0.1 * np.eye(size)


def _spectral():
  return tfpa.gaussian_priors.spectral(covariance=_covariance(), mean=0.3)


def _markov():
  diagonals = [np.full(_SIZE, 2.0), np.full(_SIZE - 1, -0.9)]
  return tfpa.gaussian_priors.markov(precision_bands=diagonals, mean=0.3)


def _torus():
  kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(
    np.float64(1.0), np.float64(1.5)
  )
  return tfpa.gaussian_priors.stationary(
    grid_shape=[_SIZE], kernel=kernel, jitter=0.1
  )


def _hyperprior():
  return tfp.distributions.JointDistributionNamed(
    {
      'scale': tfp.distributions.LogNormal(np.float64(0.0), np.float64(0.5)),
      'length': tfp.distributions.LogNormal(np.float64(0.5), np.float64(0.3)),
    }
  )


def _prior_of(scale, length):
  distance = np.abs(np.subtract.outer(np.arange(_SIZE), np.arange(_SIZE)))
  shape = tf.exp(-distance / length[..., tf.newaxis, tf.newaxis])
  matrix = scale[..., tf.newaxis, tf.newaxis] ** 2 * shape
  return tfpa.gaussian_priors.spectral(matrix + 0.1 * np.eye(_SIZE), mean=0.3)


def _builder(name):
  """Returns the builder of that name, of the library or of its baselines."""
  return getattr(baselines if name in baselines.__all__ else tfpa, name)


def _plain(name, **options):
  """Returns (kernel, first state) of a builder that takes a target."""
  arguments = dict(
    target_log_prob_fn=_banana, num_adaptation_steps=NUM_ADAPTATION_STEPS
  )
  arguments.update(options)
  return _builder(name)(**arguments), _start()


def _hamiltonian(name, **options):
  return _plain(name, num_leapfrog_steps=3, **options)


def _latent(name, prior=_spectral, start=_start, **options):
  """Returns (kernel, first state) of a builder that takes a prior."""
  arguments = dict(log_likelihood_fn=_counts, prior=prior())
  if name != 'elliptical_slice':
    arguments['num_adaptation_steps'] = NUM_ADAPTATION_STEPS
  arguments.update(options)
  return _builder(name)(**arguments), start()


def _wide_start():
  # The field on its torus is longer than the grid that is asked for.
  shape = _torus().event_shape
  normals = np.random.default_rng(0).normal(size=(_NUM_CHAINS, *shape))
  return tf.constant(normals)


def _counts_on_grid(x):
  return _counts(x[..., :_SIZE])


def _hyper(name, **options):
  kernel = _builder(name)(
    log_likelihood_fn=_counts,
    prior_fn=_prior_of,
    hyperprior=_hyperprior(),
    num_adaptation_steps=NUM_ADAPTATION_STEPS,
    **options,
  )
  ones = tf.ones([_NUM_CHAINS], tf.float64)
  return kernel, (_start(), {'scale': ones, 'length': 1.5 * ones})


def _single(name):
  kernel, start = _plain(name)
  return kernel, tf.cast(start, tf.float32)


def _of_parts(name):
  parts = [
    tfpa.preconditioners.diagonal(),
    tfpa.preconditioners.tridiagonal(),
  ]
  kernel, start = _plain(
    name, target_log_prob_fn=_banana_of_parts, preconditioner=parts
  )
  return kernel, [start[:, :1], start[:, 1:]]


def _structure(structure, **options):
  def case(name):
    part = getattr(tfpa.preconditioners, structure)(**options)
    return _plain(name, preconditioner=part)

  return case


def _criterion(criterion, optimizer=None, **options):
  def case(name):
    part = getattr(tfpa.criteria, criterion)(**options)
    return _plain(name, criterion=part, optimizer=optimizer)

  return case


def _optimizer(optimizer, **options):
  def case(name):
    part = getattr(tfpa.optimizers, optimizer)(**options)
    return _plain(name, optimizer=part)

  return case


def _surrogate(surrogate, **options):
  def case(name):
    return _plain(
      name, surrogate=getattr(tfpa.surrogates, surrogate)(**options)
    )

  return case


def _kernel_adaptive(name):
  return _plain(name, surrogate=baselines.kernel_subsample(num_points=20))


def _fisher_of_paper(name):
  part = tfpa.preconditioners.cholesky(init_scale=0.1 / _SIZE**0.5)
  return _plain(
    name,
    preconditioner=part,
    short_step_share=0.0,
    has_paper_constants=True,
  )


def _with(make=_plain, **options):
  return lambda name: make(name, **options)


def _transport(name, **options):
  transport = tfpa.transports.real_nvp(hidden_sizes=(5,))
  return _hamiltonian(name, transport=transport, **options)


def _paper_kernel_hamiltonian(name):
  del name
  return presets.kernel_hamiltonian(_banana, NUM_ADAPTATION_STEPS), _start()


_ADAM = tfpa.optimizers.adam(0.01)
_LANGEVIN = {
  'default': _plain,
  'single precision': _single,
  'exact gradient': _with(exact_gradient=True),
  'no short steps': _with(short_step_share=0.0),
  'paper': _with(**presets.langevin()),
  'parts': _of_parts,
  'diagonal': _structure('diagonal'),
  'tridiagonal': _structure('tridiagonal'),
  'banded': _structure('banded', num_superdiagonals=2),
  'arrow': _structure('arrow', num_globals=1),
  'low rank': _structure('low_rank', rank=1),
  'jump distance': _criterion('expected_squared_jump_distance', _ADAM),
  'l2hmc': _criterion('l2hmc', _ADAM),
  'cross entropy': _criterion('cross_entropy', target_accept_prob=0.5),
  'rmsprop': _optimizer('rmsprop', learning_rate=0.01),
}

# builder -> name of the case -> (builder) -> (kernel, first state).
CASES = {
  'adaptive_metropolis': {
    'default': _plain,
    'paper': _with(**presets.adaptive_metropolis()),
    'estimates': _with(target_log_prob_fn=_estimate, target_is_stochastic=True),
  },
  'auxiliary_gradient': {
    'default': _with(_latent),
    'u': _with(_latent, auxiliary='u'),
    'stationary': _with(
      _latent,
      prior=_torus,
      start=_wide_start,
      log_likelihood_fn=_counts_on_grid,
    ),
  },
  'auxiliary_langevin': {'default': _plain, 'z': _with(auxiliary='z')},
  'crank_nicolson': {
    'default': _with(_latent),
    'langevin': _with(_latent, langevin=True),
    'plain noise': _with(_latent, langevin=True, preconditioned=False),
  },
  'elliptical_slice': {'default': _with(_latent)},
  'entropy_adaptive_hamiltonian': {
    'default': _hamiltonian,
    'paper': _with(_hamiltonian, **presets.hamiltonian()),
    'random number of steps': _with(_hamiltonian, randomize_num_steps=True),
    'finite difference': _with(
      _hamiltonian, hessian_product='finite_difference'
    ),
  },
  'fisher_adaptive_langevin': {'default': _plain, 'paper': _fisher_of_paper},
  'fisher_divergence_hamiltonian': {
    'default': _plain,
    'diagonal': _with(preconditioner=tfpa.preconditioners.diagonal()),
    'five leapfrog steps at most': _with(num_leapfrog_steps=5),
    'local steps': _with(local_steps=True),
    'kept momenta': _with(keep_momentum=True),
  },
  'fisher_divergence_langevin': {'default': _plain},
  'gradient_adaptive_langevin': _LANGEVIN,
  'gradient_adaptive_random_walk': {
    'default': _plain,
    'paper': _with(**presets.random_walk()),
  },
  'kernel_adaptive_metropolis': {'default': _kernel_adaptive},
  'kernel_hamiltonian': {
    'default': _plain,
    'paper': _paper_kernel_hamiltonian,
    'estimates': _with(
      target_log_prob_fn=_estimate,
      target_is_stochastic=True,
      num_leapfrog_steps=(1, 4),
    ),
    'lite': _surrogate('kernel_exponential_family_lite', num_points=30),
  },
  'latent_gaussian_hyperparameters': {
    'default': _hyper,
    'marginal': _with(_hyper, joint=False, latent='marginal_gradient'),
    'slice': _with(_hyper, joint=False, latent='elliptical_slice'),
  },
  'marginal_gradient': {
    'default': _with(_latent),
    'markov': _with(_latent, prior=_markov),
  },
  'prior_preconditioned_langevin': {'default': _with(_latent)},
  'replica_exchange': {'default': _with(_plain, num_replicas=3)},
  'sample': {'default': _plain},
  'second_order_gradient': {'default': _with(_latent, prior=_markov)},
  'transport_adaptive_hamiltonian': {
    'default': _transport,
    'conditional Gaussian': _with(
      _hamiltonian,
      transport=tfpa.transports.conditional_gaussian(structure='tridiagonal'),
    ),
    'kept momenta': _with(
      _hamiltonian,
      transport=tfpa.transports.conditional_gaussian(),
      keep_momentum=True,
    ),
  },
  'variance_ratio_langevin': {'default': _plain},
}
