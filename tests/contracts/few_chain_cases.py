"""The samplers that run as few chains, each frozen at a non-trivial state."""

import functools

import numpy as np
import tensorflow as tf
from scipy import stats

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from experiments.samplers.baselines.kernel_adaptive_metropolis import (
  UncalibratedKernelAdaptive,
)
from experiments.samplers.baselines.kernel_subsample import (
  KernelSubsampleParams,
)
from experiments.samplers.baselines.prior_langevin import (
  UncalibratedPriorLangevin,
)
from tests.contracts import latent_model
from tests.contracts import registry
from tests.contracts import targets
from tests.contracts.few_chains import Case
from tests.surrogate import surrogates
from tests.transport import transported
from tests.transport.maps import networks
from tfp_adaptive.core import short_steps
from tfp_adaptive.core import tfp_private
from tfp_adaptive.latent import latent_proposal

__all__ = ['BANANA', 'CASES', 'SHARE', 'mala', 'multiplier']

SHARE = 0.5  # Of the steps that are short.
BANANA = targets.Banana(2, bend=0.5)
# A factor that is neither the target's nor isotropic.
_FACTOR = BANANA.factor @ np.array([[1.1, 0.0], [-0.5, 0.8]])


def _specified(name, **options):
  """Returns the builder of the registry; it learns for a step."""
  spec = next(spec for spec in registry.KERNELS if spec.name == name)

  def build(temper):
    return spec.build(
      lambda x: temper * BANANA.log_prob(x),
      1,
      preconditioner=registry.fixed(spec.scale * _FACTOR),
      **options,
    )

  return build


def mala(temper, steps=short_steps.ShortSteps):
  """Returns MALA some of whose steps are short."""
  return steps(
    tfpa.MetropolisHastings(
      tfpa.proposals.UncalibratedPreconditionedLangevin(
        lambda x: temper * BANANA.log_prob(x), registry.fixed(_FACTOR)
      )
    ),
    0,
    SHARE,
  )


def multiplier(results):
  """Returns m of a step of MALA, []."""
  proposed = tfp_private.get_innermost(results, 'proposed_results')
  return proposed.step_size


def _trajectory(field):
  def varying(results):
    proposed = tfp_private.get_innermost(results, 'proposed_results')
    return getattr(proposed.trajectory, field)

  return varying


def _hamiltonian(temper):
  return tfpa.entropy_adaptive_hamiltonian(
    lambda x: temper * BANANA.log_prob(x),
    0,
    num_leapfrog_steps=3,
    preconditioner=registry.fixed(0.6 * _FACTOR),
    randomize_num_steps=True,
  )


def _few_draws():
  return tf.constant(BANANA.draw(30, seed=11))


def _kernel_hamiltonian(temper):
  surrogate = surrogates.gaussian(30)
  params = surrogate.fit(
    surrogate.init(2, tf.float64, (1, 2)),
    _few_draws(),
    tf.fill([30], tf.constant(1.0 / 30, tf.float64)),
    tf.constant([1, 2]),
  )
  return tfpa.MetropolisHastings(
    tfpa.proposals.UncalibratedSurrogateHamiltonian(
      lambda x: temper * BANANA.log_prob(x),
      surrogates.starting_with(surrogate, params),
      registry.fixed(_FACTOR),
      step_size=0.6,
      step_size_jitter=(0.5, 1.5),
      num_leapfrog_steps=(1, 6),
      walk_share=0.3,
    )
  )


def _kernel_adaptive(temper):
  surrogate = baselines.kernel_subsample(30)
  params = KernelSubsampleParams(
    _few_draws(),
    tf.fill([30], tf.constant(1.0 / 30, tf.float64)),
    tf.constant(3.0, tf.float64),
  )
  return tfpa.MetropolisHastings(
    UncalibratedKernelAdaptive(
      lambda x: temper * BANANA.log_prob(x),
      surrogates.starting_with(surrogate, params),
      step_size=1.5,
      noise_scale=0.5,
    )
  )


def _transported(temper):
  with tf.init_scope():
    params = networks.random_params(transported.NETWORK, 2, 1.5, seed=4)
  return tfpa.MetropolisHastings(
    transported.Proposal(
      lambda x: temper * BANANA.log_prob(x),
      transported.fixed(transported.NETWORK, params),
      2,
      step_size=0.6,
    )
  )


class _LatentLaw:
  """The posterior of a Gaussian field seen through noise."""

  def __init__(self, covariance):
    noise = latent_model.NOISE * np.eye(latent_model.D)
    gain = covariance @ np.linalg.inv(covariance + noise)
    miss = latent_model.DATA - latent_model.MEAN
    self._mean = latent_model.MEAN + gain @ miss
    self._factor = np.linalg.cholesky(covariance - gain @ covariance)

  def draw(self, num_draws, seed):
    noise = np.random.default_rng(seed).normal(size=(num_draws, latent_model.D))
    return self._mean + noise @ self._factor.T

  def whiten(self, x):
    return np.linalg.solve(self._factor, (x - self._mean).T).T


_LATENT = _LatentLaw(latent_model.C)


def _field_prior():
  with tf.init_scope():  # Decomposed once, not inside of the program.
    return latent_model.gaussian_prior()


def _likelihood(temper):
  return functools.partial(latent_model.log_likelihood, temper=temper)


def _latent(proposal, step_size, **options):
  """Returns a latent sampler some of whose steps are short, never tuned."""

  def build(temper):
    return latent_proposal.with_short_steps(
      tfpa.MetropolisHastings(
        proposal(
          _likelihood(temper),
          _field_prior(),
          step_size=step_size,
          **options,
        )
      ),
      10**6,
      SHARE,
    )

  return build


def _is_short(results):
  return tfp_private.get_innermost(results, 'is_short')


def _path():
  return tfpa.gaussian_priors.autoregression(
    np.array([0.6, 0.2]), 0.8, latent_model.D, mean=latent_model.MEAN
  )


def _path_covariance():
  prior = _path()
  multiply = prior.covariance(prior.params).multiply
  return multiply(tf.eye(latent_model.D, dtype=tf.float64)).numpy()


class _WrongCurvature(tfpa.proposals.UncalibratedSecondOrderGradient):
  """Expands the likelihood wrongly: the right way accepts all proposals."""

  def _evaluate(self, state, shape=None):
    value, expansion = super()._evaluate(state, shape)
    wrong = -0.3 / latent_model.NOISE * (1.0 + tf.sin(state))
    return value, expansion._replace(curvature=wrong)


def _second_order(temper):
  return tfpa.MetropolisHastings(
    _WrongCurvature(_likelihood(temper), _path(), step_size=2.0)
  )


def _auxiliary_langevin(temper):
  return latent_proposal.with_short_steps(
    tfpa.MetropolisHastings(
      tfpa.proposals.UncalibratedAuxiliaryLangevin(
        lambda x: temper * BANANA.log_prob(x), step_size=1.5
      )
    ),
    10**6,
    SHARE,
  )


class _HyperLaw:
  """Log amplitude theta ~ N(0, 0.6^2), field x given it, seen through noise."""

  def __init__(self):
    self._grid = np.linspace(-3.5, 3.0, 4001)
    log_prob = [self._log_prob(theta) for theta in self._grid]
    density = np.exp(np.array(log_prob) - max(log_prob))
    self._cumulative = np.cumsum(density) - 0.5 * density
    self._cumulative /= density.sum()

  @staticmethod
  def covariance(theta):
    amplitude = np.exp(2.0 * theta)[..., np.newaxis, np.newaxis]
    return amplitude * latent_model.C

  def _log_prob(self, theta):
    noisy = self.covariance(theta) + latent_model.NOISE * np.eye(latent_model.D)
    miss = latent_model.DATA - latent_model.MEAN
    square = miss @ np.linalg.solve(noisy, miss)
    prior = (theta / 0.6) ** 2
    return -0.5 * (square + np.linalg.slogdet(noisy)[1] + prior)

  def _field(self, theta):
    """Returns means [n, d] and factors [n, d, d] of x given theta."""
    noise = latent_model.NOISE * np.eye(latent_model.D)
    covariance = self.covariance(theta)
    gain = covariance @ np.linalg.inv(covariance + noise)
    mean = latent_model.MEAN + gain @ (latent_model.DATA - latent_model.MEAN)
    return mean, np.linalg.cholesky(covariance - gain @ covariance)

  def draw(self, num_draws, seed):
    rng = np.random.default_rng(seed)
    theta = np.interp(rng.random(num_draws), self._cumulative, self._grid)
    mean, factor = self._field(theta)
    noise = rng.normal(size=(num_draws, latent_model.D, 1))
    return mean + (factor @ noise)[..., 0], theta

  def whiten(self, state):
    x, theta = (np.asarray(part) for part in state)
    mean, factor = self._field(theta)
    z = np.linalg.solve(factor, (x - mean)[..., np.newaxis])[..., 0]
    share = np.interp(theta, self._grid, self._cumulative)
    return np.concatenate([z, stats.norm.ppf(share)[:, np.newaxis]], axis=1)


def _amplified(theta):
  """Returns the prior of `_HyperLaw`; its basis does not depend on theta."""
  prior, ones = _field_prior(), tf.ones_like(theta)[..., tf.newaxis]
  amplitude = tf.exp(2.0 * theta)[..., tf.newaxis]
  return prior._replace(
    params=prior.params._replace(
      mean=ones * prior.params.mean,
      eigenvalues=amplitude * prior.params.eigenvalues,
      basis=tf.nest.map_structure(
        lambda u: ones[..., tf.newaxis] * u, prior.params.basis
      ),
    )
  )


def _hyperparameters(temper, joint=True):
  latent = tfpa.proposals.UncalibratedAuxiliaryGradient
  if not joint:
    latent = tfpa.proposals.UncalibratedMarginalGradient
  return latent_proposal.with_short_steps(
    tfpa.proposals.LatentGaussianHyperparameters(
      _likelihood(temper),
      _amplified,
      lambda theta: -0.5 * (theta / 0.6) ** 2,
      lambda *args: tfpa.MetropolisHastings(latent(*args)),
      joint=joint,
      num_latent_updates=2,
      step_size=1.0,
      hyper_step_size=1.2,
    ),
    10**6,
    SHARE,
  )


_aux = tfpa.proposals.UncalibratedAuxiliaryGradient
_pcn = tfpa.proposals.UncalibratedCrankNicolson
_HYPER = _HyperLaw()

_LATENT_SHORT = dict(law=_LATENT, varying=_is_short)
_walks = _trajectory('has_walked')
CASES = [
  Case('random_walk', _specified('random_walk'), BANANA),
  Case('adaptive_metropolis', _specified('adaptive_metropolis'), BANANA),
  # Many: a slip in short steps alone shows less.
  Case('langevin', mala, BANANA, varying=multiplier, num_replicates=100_000),
  Case(
    'langevin_exact',
    _specified('langevin_exact', short_step_share=SHARE),
    BANANA,
    varying=multiplier,
  ),
  Case(
    'langevin_fisher',
    _specified('langevin_fisher', short_step_share=SHARE),
    BANANA,
    varying=multiplier,
  ),
  Case('hamiltonian', _hamiltonian, BANANA, varying=_trajectory('num_steps')),
  Case('transported', _transported, BANANA),
  Case('kernel_hamiltonian', _kernel_hamiltonian, BANANA, varying=_walks),
  Case('kernel_adaptive', _kernel_adaptive, BANANA),
  Case('auxiliary_langevin', _auxiliary_langevin, BANANA, varying=_is_short),
  Case(
    'marginal',
    _latent(tfpa.proposals.UncalibratedMarginalGradient, 2.5),
    **_LATENT_SHORT,
  ),
  Case('auxiliary_z', _latent(_aux, 1.0), **_LATENT_SHORT),
  Case('auxiliary_u', _latent(_aux, 1.5, auxiliary='u'), **_LATENT_SHORT),
  Case('pcn', _latent(_pcn, 2.0), **_LATENT_SHORT),
  Case('pcnl', _latent(_pcn, 1.0, langevin=True), **_LATENT_SHORT),
  Case(
    'cnl',
    _latent(_pcn, 1.0, langevin=True, preconditioned=False),
    **_LATENT_SHORT,
  ),
  Case(
    'pmala',
    _latent(UncalibratedPriorLangevin, 0.8),
    **_LATENT_SHORT,
  ),
  Case('second_order', _second_order, _LatentLaw(_path_covariance())),
  Case(
    'elliptical_slice',
    lambda temper: tfpa.proposals.EllipticalSlice(
      _likelihood(temper), _field_prior()
    ),
    _LATENT,
    steered=None,
  ),
  Case(
    'joint',
    _hyperparameters,
    _HYPER,
    'hyper_step_size',
    _is_short,
    num_replicates=20_000,
  ),
  Case(
    'gibbs',
    functools.partial(_hyperparameters, joint=False),
    _HYPER,
    'hyper_step_size',
    _is_short,
    num_replicates=20_000,
  ),
]
