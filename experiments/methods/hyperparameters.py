"""A latent field with the hyperparameters of its prior, as one vector."""

from typing import Literal

import tensorflow as tf
from pydantic import Field

import tfp_adaptive as tfpa
from experiments.framework.registry import METHODS
from experiments.methods.base import AcceptProb
from experiments.methods.base import costs
from experiments.methods.base import Method
from experiments.methods.base import MethodParameters

__all__ = ['LatentGaussianHyperparameters']

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
  num_latent_updates: int = Field(1, ge=1)
  target_accept_prob: AcceptProb = 0.55
  hyper_target_accept_prob: float = Field(0.25, gt=0, lt=1)

  def default_label(self):
    label = f'{_NAMES[self.latent]}-{"joint" if self.joint else "gibbs"}'
    if self.num_latent_updates > 1:
      label += f', {self.num_latent_updates} updates'
    return label

  def check_target(self, target):
    if target.hierarchy is None:
      raise ValueError(
        'it samples the hyperparameters of a Gaussian prior, but '
        f'{target.name} names none; take gp_hierarchy, '
        'SyntheticLogGaussianCoxProcess, or stochastic_volatility with '
        'parameterization: centered.'
      )

  def build(self, target, options):
    hierarchy = target.hierarchy
    kernel = tfpa.latent_gaussian_hyperparameters(
      hierarchy.log_likelihood_fn,
      hierarchy.prior_fn,
      hierarchy.hyper_log_prob_fn,
      options.num_adaptation_steps,
      joint=self.joint,
      latent=self.latent,
      num_latent_updates=self.num_latent_updates,
      target_accept_prob=self.target_accept_prob,
      hyper_target_accept_prob=self.hyper_target_accept_prob,
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
