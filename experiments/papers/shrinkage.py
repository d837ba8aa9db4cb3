"""Directions of the prior that a sampler's proposal explores.

An eigenvalue gamma of the prior covariance is the variance of a direction. At
f = 0 a proposal moves along this direction with variance

  m(gamma) = delta (delta + 4 gamma) / (delta + 2 gamma)^2 gamma      mGrad
  p(gamma) = delta (delta + 4) / (delta + 2)^2 gamma                  pCN, pCNL

m saturates at delta for large gamma. In the same way, the variance of the
posterior, t(gamma) = gamma noise / (gamma + noise), saturates at that of the
noise.

References: Titsias and Papaspiliopoulos (2018), 3.4,
https://arxiv.org/abs/1610.09641.
"""

import numpy as np
import tensorflow as tf

# With more coordinates, draws are not turned into the prior's basis.
_MAX_SIZE = 2000
# Smaller eigenvalues, relative to the largest, are rounding.
_SMALLEST = 1e-12


def marginal_variance(gamma, delta):
  """Returns m(gamma)."""
  return delta * (delta + 4.0 * gamma) / (delta + 2.0 * gamma) ** 2 * gamma


def crank_nicolson_variance(gamma, delta):
  """Returns p(gamma)."""
  return delta * (delta + 4.0) / (delta + 2.0) ** 2 * gamma


def posterior_variance(gamma, noise_variance):
  """Returns t(gamma)."""
  return gamma * noise_variance / (gamma + noise_variance)


# Name of the method: its formula.
_FORMULAS = {
  'marginal_gradient': marginal_variance,
  'crank_nicolson': crank_nicolson_variance,
}


def spectrum(target, states):
  """Returns the arrays that the figure needs, {} if it is not drawn.

  Args:
    states: [num_draws, num_chains, event_size].

  Returns:
    {'prior_eigenvalues': [d], 'sampled_variances': [d]}, the variance of the
    draws along every eigenvector of the prior covariance.
  """
  latent = target.latent
  is_drawn = (
    latent is not None
    and latent.noise_variance is not None
    and target.event_size <= _MAX_SIZE
    and hasattr(latent.prior.params, 'eigenvalues')
  )
  if not is_drawn:
    return {}
  params = latent.prior.params
  rows = tf.constant(states.reshape(-1, states.shape[-1]))
  coordinates = latent.prior.to_coordinates(params, rows).numpy()
  return {
    'prior_eigenvalues': np.asarray(params.eigenvalues, np.float64),
    'sampled_variances': coordinates.astype(np.float64).var(axis=0),
  }


def draw(cells, target, grid):
  """Returns the figure, or None if the noise or the spectrum is unknown."""
  shown = {k: v for k, v in cells.items() if 'prior_eigenvalues' in v[1]}
  if not shown:
    return None
  figure, axes = grid(2)
  noise_variance = target.latent.noise_variance
  for number, (label, (record, arrays)) in enumerate(shown.items()):
    gamma = arrays['prior_eigenvalues']
    kept = gamma > _SMALLEST * gamma.max()
    gamma = gamma[kept]
    color = f'C{number}'
    formula = _FORMULAS.get(record['method'])
    if formula is not None and record.get('step_size') is not None:
      explored = formula(gamma, record['step_size'])
      axes[0].loglog(gamma, explored, color=color, label=label)
    sampled = arrays['sampled_variances'][kept]
    axes[1].loglog(gamma, sampled, '.', markersize=3, color=color, label=label)
  for axis in axes:
    exact = posterior_variance(gamma, noise_variance)
    axis.loglog(gamma, exact, 'k--', linewidth=1, label='posterior')
    axis.set_xlabel('prior eigenvalue')
    axis.legend(fontsize='x-small')
  axes[0].set_title('variance of the proposal', fontsize='small')
  axes[1].set_title('variance of the draws', fontsize='small')
  return figure
