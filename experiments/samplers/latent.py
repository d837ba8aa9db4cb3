"""Samplers of latent Gaussian models, most of which tune one delta.

They take `target.latent`, or `target.hierarchy` to sample the hyperparameters
of the prior as well. delta is the `step_size`. A given delta is the first
value, and the only value with `num_adaptation_steps: 0`.
"""

from collections.abc import Callable
from typing import ClassVar
from typing import Literal

import numpy as np
import tensorflow as tf
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from experiments.samplers.base import AcceptProb
from experiments.samplers.base import costs
from experiments.samplers.base import Method
from experiments.samplers.base import MethodParameters
from experiments.targets.registry import METHODS

# Steps after a run whose likelihood calls are counted.
_COUNTED_STEPS = 50


class Latent(MethodParameters):
  """Options of samplers of latent Gaussian models; None is their default."""

  target_accept_prob: AcceptProb | None = Field(
    None, description='wanted mean acceptance'
  )
  step_size: float | None = Field(
    None, gt=0, description='the first delta, the only one without adaptation'
  )

  def default_label(self):
    if self.target_accept_prob is None:
      return self.sampler()
    return f'{self.sampler()}, {self.target_accept_prob:g}'

  # The builder, and the parameters that it takes by their own names.
  builder: ClassVar[Callable]
  of_builder: ClassVar[tuple[str, ...]] = ()

  def sampler(self):
    """Returns the sampler's name in the paper."""
    raise NotImplementedError

  def check_target(self, target):
    if target.latent is None:
      raise ValueError(
        'the method samples a likelihood times a Gaussian prior, but '
        f'{target.name} is given as one density. Write a latent Gaussian '
        'target (gp_regression, gp_classification, log_gaussian_cox ...), or a '
        'sampler of densities such as nuts.'
      )

  def build(self, target, options):
    kernel = self.builder(
      target.latent.log_likelihood_fn,
      options.num_adaptation_steps,
      prior=target.latent.prior,
      **self.given('target_accept_prob', *self.of_builder),
      **({} if self.step_size is None else {'delta': self.step_size}),
    )
    return Method(kernel, **costs(kernel), has_step_size=True)


@METHODS.register('marginal_gradient')
class MarginalGradient(Latent):
  """mGrad: the auxiliary variable is integrated out."""

  builder = staticmethod(tfpa.marginal_gradient)

  def sampler(self):
    return 'mGrad'


@METHODS.register('auxiliary_gradient')
class AuxiliaryGradient(Latent):
  """aGrad-z and aGrad-u: moves given an auxiliary variable."""

  auxiliary: Literal['z', 'u'] = 'z'

  builder = staticmethod(tfpa.auxiliary_gradient)
  of_builder = ('auxiliary',)

  def sampler(self):
    return f'aGrad-{self.auxiliary}'


@METHODS.register('crank_nicolson')
class CrankNicolson(Latent):
  """pCN and pCNL: preconditioned Crank-Nicolson steps of the diffusion."""

  langevin: bool = False

  builder = staticmethod(tfpa.crank_nicolson)
  of_builder = ('langevin',)

  def sampler(self):
    return 'pCNL' if self.langevin else 'pCN'


@METHODS.register('prior_preconditioned_langevin')
class PriorPreconditionedLangevin(Latent):
  """pMALA: an Euler step preconditioned by the prior covariance."""

  builder = staticmethod(baselines.prior_preconditioned_langevin)

  def sampler(self):
    return 'pMALA'


@METHODS.register('elliptical_slice')
class EllipticalSlice(MethodParameters):
  """TFP's elliptical slice sampler: nothing to tune, accepts every move."""

  check_target = Latent.check_target

  def default_label(self):
    return 'Ellipt'

  def build(self, target, options):
    del options
    return elliptical_slice_method(target.latent)


def elliptical_slice_method(latent):
  """Returns TFP's sampler with its calls of the likelihood counted."""
  # Calls are counted outside of compiled loops, where each call is made.
  num_calls = []

  def log_likelihood_fn(x):
    num_calls.append(1)
    return latent.log_likelihood_fn(x)

  kernel = tfpa.elliptical_slice(log_likelihood_fn, prior=latent.prior)

  def sample_fn(**arguments):
    result = tfpa.sample(kernel, **arguments)
    state, results = result.final_state, result.final_kernel_results
    num_calls.clear()
    for step in range(_COUNTED_STEPS):
      state, results = kernel.one_step(state, results, seed=[step, 0])
    extra = {'num_target_calls': np.asarray(len(num_calls) / _COUNTED_STEPS)}
    return result._replace(
      trace={**result.trace, 'extra': extra},
      adaptation_trace={**result.adaptation_trace, 'extra': extra},
    )

  return Method(kernel, None, None, sample_fn=sample_fn)


# The papers' names of the updates of the field.
_NAMES = dict(
  auxiliary_gradient='aGrad-z',
  marginal_gradient='mGrad',
  crank_nicolson_langevin='pCNL',
  elliptical_slice='Ellipt',
)


@METHODS.register('latent_gaussian_hyperparameters')
class LatentGaussianHyperparameters(MethodParameters):
  """Updates of the field, then a move of theta: joint, or at a fixed field."""

  joint: bool = True
  latent: Literal[tuple(_NAMES)] = 'auxiliary_gradient'  # type: ignore[valid-type]

  def default_label(self):
    return f'{_NAMES[self.latent]}-{"joint" if self.joint else "gibbs"}'

  def check_target(self, target):
    if target.hierarchy is None:
      raise ValueError(
        'the method samples the hyperparameters of a Gaussian prior, but '
        f'{target.name} has none. Write gp_hierarchy, '
        'SyntheticLogGaussianCoxProcess, or stochastic_volatility with '
        'parameterization: centered.'
      )

  def build(self, target, options):
    hierarchy = target.hierarchy
    kernel = tfpa.latent_gaussian_hyperparameters(
      hierarchy.log_likelihood_fn,
      options.num_adaptation_steps,
      prior_fn=hierarchy.prior_fn,
      hyperprior=hierarchy.hyper_log_prob_fn,
      joint=self.joint,
      latent=self.latent,
    )

    def sample_fn(init_state, **arguments):
      state = tf.convert_to_tensor(init_state)
      result = tfpa.sample(kernel, hierarchy.split(state), **arguments)
      return result._replace(states=hierarchy.join(*result.states))

    return Method(
      kernel,
      **costs(kernel),
      sample_fn=sample_fn,
      has_step_size=self.latent != 'elliptical_slice',
    )
