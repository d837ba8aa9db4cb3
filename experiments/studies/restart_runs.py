"""Small runs of every builder, and what can be changed about each.

A run is named by its sampler and a dict of changes to the base case, both JSON,
so that a process of its own can build it.
"""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import baselines

__all__ = ['CHANGES', 'LATENT', 'WITH_DENSITY', 'run']

_NUM_ADAPTING = 12
_NUM_COORDINATES = 3
_NUM_POINTS = 8
_NUM_CHAINS = 3
# Of `tfpa.sample`; the other changes are of models and of builders.
_OF_SAMPLE = (
  'num_results',
  'num_burnin_steps',
  'num_steps_between_results',
  'seed',
  'jit_compile',
)


def _hamiltonian(target, num_steps, num_leapfrog_steps=3, **options):
  return tfpa.entropy_adaptive_hamiltonian(
    target, num_steps, num_leapfrog_steps=num_leapfrog_steps, **options
  )


def _transport(target, num_steps, **options):
  return tfpa.transport_adaptive_hamiltonian(
    target, num_steps, num_leapfrog_steps=3, **options
  )


WITH_DENSITY = {
  'random_walk': tfpa.gradient_adaptive_random_walk,
  'langevin': tfpa.gradient_adaptive_langevin,
  'langevin_exact': lambda *args, **options: tfpa.gradient_adaptive_langevin(
    *args, exact_gradient=True, **options
  ),
  'hamiltonian': _hamiltonian,
  'adaptive_metropolis': tfpa.adaptive_metropolis,
  'fisher': baselines.fisher_adaptive_langevin,
  'fisher_divergence': tfpa.fisher_divergence_langevin,
  'fisher_divergence_hamiltonian': tfpa.fisher_divergence_hamiltonian,
  'variance_ratio': baselines.variance_ratio_langevin,
  'transport': _transport,
  'kernel_hamiltonian': tfpa.kernel_hamiltonian,
  'kernel_adaptive_metropolis': baselines.kernel_adaptive_metropolis,
  'auxiliary_langevin': tfpa.auxiliary_langevin,
}
LATENT = {
  'marginal_gradient': tfpa.marginal_gradient,
  'auxiliary_gradient': tfpa.auxiliary_gradient,
  'crank_nicolson': tfpa.crank_nicolson,
  'prior_langevin': baselines.prior_preconditioned_langevin,
  'second_order_gradient': tfpa.second_order_gradient,
  'elliptical_slice': lambda f, prior, _, **options: tfpa.elliptical_slice(
    f, prior, **options
  ),
  'hyperparameters': None,
}

_PARTS = {
  'adam': lambda rate: tfpa.optimizers.adam(rate),
  'relative_gradient': lambda gain: tfpa.optimizers.relative_gradient(gain),
  'generalized_speed_measure': (
    lambda weight: tfpa.criteria.generalized_speed_measure(
      0.55, init_entropy_weight=weight
    )
  ),
  'cholesky': lambda scale: tfpa.preconditioners.cholesky(scale),
  'diagonal': lambda scale: tfpa.preconditioners.diagonal(scale),
  'lite': lambda n: tfpa.surrogates.kernel_exponential_family_lite(n),
  'finite': lambda n: tfpa.surrogates.kernel_exponential_family_finite(n, n),
  'real_nvp': lambda n: tfpa.transports.real_nvp(hidden_sizes=(n,)),
}

_DENSITY_CHANGES = (
  {'prior_scale': 10.0},
  {'flipped': 17},
  {'num_rows': 999},
  {'zeros': True, 'density_scale': 100.0},
)
_PRIOR_CHANGES = (
  {'amplitude': 2.0},
  {'length_scale': 0.31},
  {'flipped': 3},
)

CHANGES = [
  *((name, change) for name in WITH_DENSITY for change in _DENSITY_CHANGES),
  *((name, change) for name in LATENT for change in _PRIOR_CHANGES),
  ('langevin', {'seed': [0, 2]}),
  ('langevin', {'num_results': 21}),
  ('langevin', {'num_burnin_steps': 13}),
  ('langevin', {'num_steps_between_results': 1}),
  ('langevin', {'jit_compile': True}),
  ('langevin', {'dtype': 'float32'}),
  ('langevin', {'shift': 1e-9}),
  ('langevin', {'num_chains': 4}),
  ('langevin', {'traced': 1}),
  ('langevin', {'traced_power': 3.0}),
  ('langevin', {'optimizer': ['adam', 0.02]}),
  ('langevin', {'optimizer': ['relative_gradient', 3.9]}),
  ('langevin', {'criterion': ['generalized_speed_measure', 0.9]}),
  ('langevin', {'preconditioner': ['diagonal', None]}),
  ('langevin', {'preconditioner': ['cholesky', 0.5]}),
  ('langevin', {'target_accept_prob': 0.56}),
  ('langevin', {'step_size': 0.99}),
  ('langevin', {'short_step_share': 0.3}),
  ('langevin', {'data_in': 'tensor', 'flipped': 17}),
  ('langevin', {'data_in': 'variable', 'flipped': 17}),
  ('adaptive_metropolis', {'data_in': 'python', 'flipped': 17}),
  ('hamiltonian', {'num_leapfrog_steps': 4}),
  ('hamiltonian', {'hessian_product': 'finite_difference'}),
  ('transport', {'transport': ['real_nvp', 7]}),
  ('kernel_hamiltonian', {'surrogate': ['lite', 20]}),
  ('kernel_hamiltonian', {'surrogate': ['finite', 20]}),
  ('kernel_hamiltonian', {'history': 1.5}),
  ('auxiliary_gradient', {'auxiliary': 'u'}),
  ('crank_nicolson', {'langevin': True}),
  ('hyperparameters', {'hyperprior_scale': 1.1}),
  ('hyperparameters', {'num_latent_updates': 2}),
]


def run(sampler, changes, **options):
  """Runs a sampler on its small model by `tfpa.sample`.

  Args:
    sampler: Name in `WITH_DENSITY` or `LATENT`.
    changes: dict of what differs from the base case.
    options: Of `tfpa.sample`.
  """
  changes = dict(changes)
  arguments = dict(num_results=20, seed=(0, 1), jit_compile=False)
  arguments.update(
    {key: changes.pop(key) for key in _OF_SAMPLE if key in changes}
  )
  dtype = np.dtype(changes.pop('dtype', 'float64'))
  is_latent = sampler in LATENT
  width = _NUM_POINTS if is_latent else _NUM_COORDINATES
  start = np.random.default_rng(1).normal(size=[4, width])
  start = start[: changes.pop('num_chains', _NUM_CHAINS)].astype(dtype)
  start *= 0.0 if changes.get('zeros') else 1.0
  start += dtype.type(changes.pop('shift', 0.0))
  trace_fn = _trace_fn(changes.pop('traced', 0), changes.pop('traced_power', 2))
  build = _latent_kernel if is_latent else _kernel
  kernel = build(sampler, dtype, changes)
  state = tf.constant(start)
  if sampler == 'hyperparameters':
    state = (state, tf.ones([len(start)], dtype))
  return tfpa.sample(
    kernel, state, trace_fn=trace_fn, progress=False, **{**arguments, **options}
  )


def _trace_fn(coordinate, power):
  def trace(state, _):
    return tf.nest.flatten(state)[0][:, coordinate] ** power

  return trace


def _kernel(sampler, dtype, changes):
  """Builds a kernel of `WITH_DENSITY`; what is left of `changes` is its own."""
  if changes.pop('zeros', False):
    scale = changes.pop('density_scale', 1.0)
    target = lambda x: -0.5 * tf.reduce_sum((x / scale) ** 2, axis=-1)
  else:
    target = _regression(dtype, changes)
  history = changes.pop('history', None)
  if history is not None:
    draws = np.random.default_rng(5).normal(size=[40, _NUM_COORDINATES])
    changes['history'] = (history * draws).astype(dtype)
  return WITH_DENSITY[sampler](target, _NUM_ADAPTING, **_with_parts(changes))


def _regression(dtype, changes):
  """Returns the posterior of a logistic regression of 1000 rows."""
  rng = np.random.default_rng(2)
  features = rng.normal(size=[1000, _NUM_COORDINATES]).astype(dtype)
  labels = (rng.uniform(size=1000) < 0.5).astype(dtype)
  flipped = changes.pop('flipped', None)
  if flipped is not None:
    labels[flipped] = 1.0 - labels[flipped]
  num_rows = changes.pop('num_rows', 1000)
  features, labels = features[:num_rows], labels[:num_rows]
  prior_scale = changes.pop('prior_scale', 1.0)
  data_in = changes.pop('data_in', 'numpy')
  if data_in == 'tensor':
    features, labels = tf.constant(features), tf.constant(labels)
  elif data_in == 'variable':
    features, labels = tf.Variable(features), tf.Variable(labels)

  def log_prob(x):
    logits = tf.matmul(x, features, transpose_b=True)
    fit = tf.reduce_sum(labels * logits - tf.nn.softplus(logits), axis=-1)
    return fit - 0.5 * tf.reduce_sum((x / prior_scale) ** 2, axis=-1)

  if data_in != 'python':
    return log_prob
  return lambda x: tf.py_function(log_prob, [x], x.dtype)


def _latent_kernel(sampler, dtype, changes):
  """Builds a kernel of `LATENT` on a classification by a Gaussian process."""
  labels = np.arange(_NUM_POINTS) % 3 == 0
  flipped = changes.pop('flipped', None)
  if flipped is not None:
    labels[flipped] = not labels[flipped]
  signs = np.where(labels, 1.0, -1.0).astype(dtype)
  log_likelihood = lambda x: tf.reduce_sum(
    tf.math.log_sigmoid(signs * x), axis=-1
  )
  amplitude = changes.pop('amplitude', 1.0)
  length_scale = changes.pop('length_scale', 0.3)
  points = np.linspace(0.0, 1.0, _NUM_POINTS)
  gaps = (points[:, None] - points) / length_scale
  covariance = np.exp(-0.5 * gaps**2) + 1e-4 * np.eye(_NUM_POINTS)
  covariance = (amplitude**2 * covariance).astype(dtype)
  if sampler != 'hyperparameters':
    if sampler == 'second_order_gradient':  # It asks for a banded precision.
      persistence = np.exp(-0.1 / length_scale)
      prior = tfpa.gaussian_priors.autoregression(
        dtype.type(persistence),
        amplitude * np.sqrt(1.0 - persistence**2),
        _NUM_POINTS,
      )
    else:
      prior = tfpa.gaussian_priors.spectral(covariance)
    return LATENT[sampler](log_likelihood, prior, _NUM_ADAPTING, **changes)
  scale = changes.pop('hyperprior_scale', 1.0)
  return tfpa.latent_gaussian_hyperparameters(
    log_likelihood,
    lambda variance: tfpa.gaussian_priors.spectral(
      variance[..., tf.newaxis, tf.newaxis] * covariance
    ),
    tfp.distributions.LogNormal(dtype.type(0.0), dtype.type(scale)),
    _NUM_ADAPTING,
    **changes,
  )


def _with_parts(changes):
  """Builds the parts that are named by [factory, argument]."""
  return {
    key: _PARTS[value[0]](value[1]) if isinstance(value, list) else value
    for key, value in changes.items()
  }
