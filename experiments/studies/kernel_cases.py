"""Every builder of the library, with each of its parts, on laws known exactly.

What is made once for each kernel goes over these: the lowering for a GPU
(`placement`) and the check on one (`bench_devices`). Sizes are small, float32.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.targets.gaussians import gaussian_target
from experiments.targets.gaussians import rotated_covariance

__all__ = ['SIZE', 'Case', 'Law', 'cases']

SIZE = 6
_VARIANCES = np.geomspace(0.1, 2.0, SIZE)
_NOISE = 0.5
_DATA = np.linspace(2.0, -1.0, SIZE)
_SPREAD = 0.6  # Of the log amplitude of a field.
_parts, _priors = tfpa.preconditioners, tfpa.gaussian_priors
# What a structure cannot be made without.
_ARGUMENTS = {
  'arrow': dict(num_globals=2),
  'banded': dict(num_superdiagonals=2),
  'low_rank': dict(rank=2),
  'per_part': dict(
    preconditioners=(_parts.diagonal(), _parts.tridiagonal()),
  ),
}
_LENGTHS = dict(num_leapfrog_steps=3)
_LINEAR = {
  'gradient_adaptive_random_walk': {},
  'gradient_adaptive_langevin': {},
  'entropy_adaptive_hamiltonian': _LENGTHS,
  'adaptive_metropolis': {},
  'fisher_divergence_langevin': {},
  'fisher_divergence_hamiltonian': {},
}


class Law(NamedTuple):
  """What the kernel must leave invariant, of flat states [d]."""

  mean: np.ndarray  # [d]
  variances: np.ndarray  # [d]
  draw: Callable  # (num_draws, seed) -> [num_draws, d], float64.


class Case(NamedTuple):
  """A builder with its parts."""

  name: str
  # (num_adaptation_steps, temper=1.0) -> kernel. At another temper the log
  # density, or likelihood, is multiplied: the kernel of another law.
  build: Callable
  law: Law
  # [chains, d] float32 -> the state that the kernel takes.
  pack: Callable


def cases():
  """Yields every `Case`, names differ."""
  yield from _linear()
  yield from _transported()
  yield from _tempered()
  yield from _surrogates()
  yield from _latent()
  yield from _hyperparameters()


@functools.cache
def _target():
  covariance = rotated_covariance(_VARIANCES, 0)
  return gaussian_target('rotated', covariance, 'float32')


def _on_target(name, builder, pack=tf.identity, **options):
  """Returns the case of a builder that takes a log density."""
  target = _target()
  law = Law(target.mean, np.diag(target.covariance), target.exact_draws_fn)

  def build(num_adaptation_steps, temper=1.0):
    def target_log_prob_fn(*parts):
      return temper * target.target_log_prob_fn(tf.concat(parts, axis=-1))

    return getattr(tfpa, builder)(
      target_log_prob_fn,
      num_adaptation_steps=num_adaptation_steps,
      **options,
    )

  return Case(name, build, law, pack)


def _linear():
  for builder, options in _LINEAR.items():
    yield _on_target(builder, builder, **options)
    for structure in _parts.__all__:
      part = getattr(_parts, structure)(**_ARGUMENTS.get(structure, {}))
      yield _on_target(
        f'{builder}, {structure}',
        builder,
        _halves if structure == 'per_part' else tf.identity,
        preconditioner=part,
        **options,
      )
  langevin = 'gradient_adaptive_langevin'
  yield _on_target(f'{langevin}, exact_gradient', langevin, exact_gradient=True)
  for criterion in tfpa.criteria.__all__:
    part = getattr(tfpa.criteria, criterion)(target_accept_prob=0.55)
    others = (
      {} if part.holds_scale else dict(optimizer=tfpa.optimizers.adam(0.01))
    )
    yield _on_target(
      f'{langevin}, {criterion}', langevin, criterion=part, **others
    )
  for optimizer in ('adam', 'rmsprop'):
    part = getattr(tfpa.optimizers, optimizer)(0.01)
    yield _on_target(f'{langevin}, {optimizer}', langevin, optimizer=part)
  hamiltonian = 'entropy_adaptive_hamiltonian'
  # Names as in the records.
  for name, options in {
    'hessian_product': dict(hessian_product='finite_difference', **_LENGTHS),
    'randomize_num_steps': dict(num_leapfrog_steps=(1, 3)),
  }.items():
    yield _on_target(f'{hamiltonian}, {name}', hamiltonian, **options)
  yield _on_target('auxiliary_langevin', 'auxiliary_langevin')


def _transported():
  builder, maps = 'transport_adaptive_hamiltonian', tfpa.transports
  yield _on_target(builder, builder, **_LENGTHS)
  found = {
    'conditional_gaussian': maps.conditional_gaussian(),
    'conditional_gaussian, tridiagonal': maps.conditional_gaussian(
      structure='tridiagonal'
    ),
    'conditional_gaussian, bent': maps.conditional_gaussian(bent=True),
  }
  for name, transport in found.items():
    yield _on_target(f'{builder}, {name}', builder, transport=transport)
  yield _on_target(
    f'{builder}, scaled', builder, transport=_sinh_arcsinh(), **_LENGTHS
  )


def _tempered():
  yield _on_target('replica_exchange', 'replica_exchange', num_replicas=3)


def _sinh_arcsinh():
  def network(params):
    return tfp.bijectors.SinhArcsinh(tailweight=tf.exp(params))

  return tfpa.transports.scaled(
    lambda event_size, dtype: tf.zeros([event_size], dtype), network
  )


def _surrogates():
  lite = functools.partial(tfpa.surrogates.kernel_exponential_family_lite, 40)
  finite = functools.partial(
    tfpa.surrogates.kernel_exponential_family_finite, 40, 20
  )
  found = {
    'finite': finite(),
    'finite, online': finite(online=True),
    'lite': lite(),
    'in_turn': tfpa.surrogates.in_turn(lite(), finite()),
  }
  yield _on_target('kernel_hamiltonian', 'kernel_hamiltonian')
  for name, surrogate in found.items():
    yield _on_target(
      f'kernel_hamiltonian, {name}', 'kernel_hamiltonian', surrogate=surrogate
    )


def _gaussian_fields():
  """Returns {name: prior} of fields of `SIZE` numbers, float32."""
  covariance = rotated_covariance(_VARIANCES, 1).astype('float32')
  path = _priors.random_walk(np.float32(0.5), SIZE, np.float32(1.0))
  half = covariance[:3, :3]
  return {
    'spectral': _priors.spectral(covariance),
    'stationary': _priors.stationary(
      (SIZE,), lambda gaps: tf.exp(-gaps / 2.0), dtype='float32'
    ),
    'kronecker': _priors.kronecker([covariance[:2, :2], half]),
    'markov': _priors.markov(
      (np.full(SIZE, 2.0, 'float32'), np.full(SIZE - 1, -0.7, 'float32'))
    ),
    'autoregression': _priors.autoregression(
      np.array([0.6, 0.2], 'float32'), np.float32(0.8), SIZE
    ),
    'random_walk': path,
    'state_space': _priors.state_space(
      np.float32(0.5 * np.eye(2)),
      np.eye(2, dtype='float32'),
      covariance[:2, :2],
      3,
    ),
    'block': _priors.block(_priors.spectral(half), 2),
  }


def _latent():
  fields = _gaussian_fields()
  for name in fields:
    yield _on_field('marginal_gradient', name, fields[name])
  for builder in ('auxiliary_gradient', 'crank_nicolson', 'elliptical_slice'):
    for name in ('spectral', 'markov'):
      yield _on_field(builder, name, fields[name])
  spectral = fields['spectral']
  yield _on_field('auxiliary_gradient', 'u', spectral, auxiliary='u')
  yield _on_field('crank_nicolson', 'langevin', spectral, langevin=True)
  yield _on_field(
    *('crank_nicolson', 'not preconditioned', spectral),
    langevin=True,
    preconditioned=False,
  )
  yield _on_field('second_order_gradient', 'markov', fields['markov'])


def _on_field(builder, name, prior, **options):
  """Returns the case of a builder that takes a prior."""
  # A stationary field is sampled on a torus around the grid.
  size = int(np.prod(prior.event_shape))
  # Products are in the coordinates of the prior.
  rows = prior.to_coordinates(prior.params, tf.eye(size))
  rows = prior.covariance(prior.params).multiply(rows)
  rows = prior.from_coordinates(prior.params, rows)
  mean, covariance = _posterior(np.float64(rows))
  factor = np.linalg.cholesky(covariance)

  def draw(num_draws, seed):
    rng = np.random.default_rng(seed)
    return mean + rng.normal(size=(num_draws, size)) @ factor.T

  def build(num_adaptation_steps, temper=1.0):
    steps = dict(num_adaptation_steps=num_adaptation_steps)
    if builder == 'elliptical_slice':
      steps = {}
    return getattr(tfpa, builder)(
      lambda x: temper * _log_likelihood(x), prior=prior, **steps, **options
    )

  return Case(
    f'{builder}, {name}',
    build,
    Law(mean, np.diag(covariance), draw),
    lambda flat: tf.reshape(flat, [flat.shape[0], *prior.event_shape]),
  )


def _log_likelihood(x):
  observed = tf.reshape(x, [x.shape[0], -1])[:, :SIZE]
  miss = tf.constant(_DATA, tf.float32) - observed
  return -0.5 * tf.reduce_sum(miss**2, axis=-1) / _NOISE


def _posterior(covariance):
  """Returns mean [..., d] and covariance [..., d, d] given the data."""
  seen = covariance[..., :SIZE, :]
  noisy = seen[..., :SIZE] + _NOISE * np.eye(SIZE)
  gain = np.swapaxes(np.linalg.solve(noisy, seen), -1, -2)
  return gain @ _DATA, covariance - gain @ seen


def _hyperparameters():
  """Yields cases whose field has an amplitude that is sampled too."""
  covariance = rotated_covariance(_VARIANCES, 1)
  law = _amplitude_law(covariance)

  def prior_fn(theta):
    amplitude = tf.exp(2.0 * theta)[..., tf.newaxis, tf.newaxis]
    return _priors.spectral(amplitude * tf.constant(covariance, tf.float32))

  for latent in ('auxiliary_gradient', 'marginal_gradient'):
    joint = latent == 'auxiliary_gradient'

    def build(num_adaptation_steps, temper=1.0, latent=latent, joint=joint):
      return tfpa.latent_gaussian_hyperparameters(
        lambda x: temper * _log_likelihood(x),
        num_adaptation_steps,
        prior_fn=prior_fn,
        hyperprior=tfp.distributions.Normal(0.0, _SPREAD),
        joint=joint,
        latent=latent,
      )

    yield Case(
      f'latent_gaussian_hyperparameters, {latent}',
      build,
      law,
      lambda flat: (flat[:, :SIZE], flat[:, SIZE]),
    )


def _amplitude_law(covariance):
  """Returns the `Law` of (x, theta): theta on a grid, x given it."""
  grid = np.linspace(-3.0, 3.0, 2001)
  of_grid = np.exp(2.0 * grid)[:, np.newaxis, np.newaxis] * covariance
  noisy = of_grid + _NOISE * np.eye(SIZE)
  square = np.linalg.solve(noisy, np.tile(_DATA[:, np.newaxis], (2001, 1, 1)))
  log_prob = -0.5 * (
    (square[..., 0] @ _DATA)
    + np.linalg.slogdet(noisy)[1]
    + (grid / _SPREAD) ** 2
  )
  share = np.exp(log_prob - log_prob.max())
  share /= share.sum()
  means, covariances = _posterior(of_grid)
  values = np.column_stack([means, grid])
  mean = share @ values
  spread = np.diagonal(covariances, axis1=1, axis2=2)
  variances = share @ (values - mean) ** 2
  variances[:SIZE] += share @ spread
  factors = np.linalg.cholesky(covariances)

  def draw(num_draws, seed):
    rng = np.random.default_rng(seed)
    place = rng.choice(len(grid), num_draws, p=share)
    noise = rng.normal(size=(num_draws, SIZE, 1))
    x = means[place] + (factors[place] @ noise)[..., 0]
    return np.column_stack([x, grid[place]])

  return Law(mean, variances, draw)


def _halves(flat):
  return [flat[:, : SIZE // 2], flat[:, SIZE // 2 :]]
