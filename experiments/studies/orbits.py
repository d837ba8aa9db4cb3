"""Trajectories on a plane Gaussian, by its own forces and by learned ones.

References: Strathmann et al. (2015), Figure 1,
https://arxiv.org/abs/1506.02564.
"""

import numpy as np
import tensorflow as tf

import tfp_adaptive as tfpa
from experiments.studies import plain_features
from experiments.studies.growing_history import fitter
from experiments.studies.trajectory_acceptance import follow

__all__ = ['measure']

_STEP_SIZE = 0.1
_NUM_STEPS = 200  # Three turns of the true orbit.
_START = np.array([[1.5, 0.0]])
_MOMENTUM = np.array([[0.0, 1.0]])


def measure(num_draws, seed=0):
  """Returns {name: (path [num_steps + 1, 2], acceptance [num_steps])}.

  Args:
    num_draws: of N(0, I) that the surrogates know; also their features.
    seed: of the draws.
  """
  draws = np.random.default_rng(seed).normal(size=(num_draws, 2))
  lite = tfpa.surrogates.kernel_exponential_family_lite(num_draws)
  params = fitter(lite, jit_compile=False)(draws)
  score = tf.function(lite.score, autograph=False)
  features = plain_features.fit(draws, num_draws, seed)
  scores = {
    'HMC': lambda x: -x,
    'KMC lite': lambda x: score(params, tf.constant(x)).numpy(),
    'KMC, plain features': lambda x: plain_features.score(features, x),
  }
  return {name: _orbit(score) for name, score in scores.items()}


def _orbit(score):
  path = []

  def energy(x, p):
    path.append(x[0])
    return 0.5 * np.sum(x**2 + p**2, axis=-1)

  energies = follow(score, energy, _START, _MOMENTUM, _STEP_SIZE, _NUM_STEPS)
  rates = np.exp(np.minimum(energies[0] - energies[1:], 0.0))[:, 0]
  return np.stack(path), rates
