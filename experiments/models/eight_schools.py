"""Effects of training in eight schools, and how much they differ.

  mean ~ N(0, 5^2),  spread ~ HalfCauchy(5)
  effect_j ~ N(mean, spread^2),  seen_j ~ N(effect_j, errors_j^2)

Centered: with a smaller spread, effects are narrower. Data: Rubin (1981).
Prior: Gelman (2006).
"""

import numpy as np


def data():
  return dict(
    seen=np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
    errors=np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
  )


def tfp_model(seen, errors):
  import tensorflow_probability as tfp

  tfd = tfp.distributions

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    mean = yield tfd.Normal(0.0, 5.0, name='mean')
    spread = yield tfd.HalfCauchy(0.0, 5.0, name='spread')
    effect = yield tfd.Sample(tfd.Normal(mean, spread), 8, name='effect')
    yield tfd.Normal(effect, np.float32(errors), name='seen')

  return model.experimental_pin(seen=np.float32(seen))


def numpyro_model(seen, errors):
  import numpyro
  from numpyro import distributions as dist

  def model():
    mean = numpyro.sample('mean', dist.Normal(0.0, 5.0))
    spread = numpyro.sample('spread', dist.HalfCauchy(5.0))
    with numpyro.plate('schools', 8):
      effect = numpyro.sample('effect', dist.Normal(mean, spread))
      numpyro.sample('seen', dist.Normal(effect, errors), obs=seen)

  return model


def pymc_model(seen, errors):
  import pymc as pm

  with pm.Model() as model:
    mean = pm.Normal('mean', 0.0, 5.0)
    spread = pm.HalfCauchy('spread', 5.0)
    effect = pm.Normal('effect', mean, spread, shape=8)
    pm.Normal('seen', effect, errors, observed=seen)
  return model


def exact_means():
  """Returns {coordinate: posterior mean}, by quadrature.

  Given the spread, all other unknowns are normal:

    v_j = spread^2 + errors_j^2,  1/V = 1/5^2 + sum_j 1/v_j
    p(spread | seen) ~ p(spread) sqrt(V) prod_j N(seen_j; 0, v_j) exp(m^2 / 2V)

  Here m = V sum_j seen_j / v_j is the conditional expectation of `mean`. The
  conditional expectation of an effect lies between m and seen_j.
  """
  seen, errors = data().values()
  log_spread = np.linspace(np.log(1e-6), np.log(1e5), 20_001)
  squared = np.exp(2.0 * log_spread)[:, np.newaxis]
  variances = squared + errors**2
  precision = 1.0 / 25.0 + np.sum(1.0 / variances, axis=1)
  mean = np.sum(seen / variances, axis=1) / precision
  log_density = (
    log_spread  # The Jacobian of the logarithm.
    - np.log1p(squared[:, 0] / 25.0)
    - 0.5 * np.sum(seen**2 / variances + np.log(variances), axis=1)
    + 0.5 * (mean**2 * precision - np.log(precision))
  )
  weights = np.exp(log_density - log_density.max())
  weights /= weights.sum()
  shares = squared / variances
  effects = shares * seen + (1.0 - shares) * mean[:, np.newaxis]
  return {
    'mean': weights @ mean,
    'spread': weights @ np.exp(log_spread),
    **{f'effect[{j}]': weights @ effects[:, j] for j in range(len(seen))},
  }
