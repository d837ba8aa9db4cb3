"""The exact moments of inference_gym's 100 days of S&P 500 returns.

  p = (phi + 1)/2 ~ Beta(20, 1.5),  mu ~ Cauchy(0, 5),  sigma ~ HalfCauchy(0, 2)
  h_1 ~ N(mu, sigma^2/(1 - phi^2)),  h_t ~ N(mu + phi (h_{t-1} - mu), sigma^2)
  y_t ~ N(0, e^{h_t})

A grid over (logit p, log sigma, mu), and at each of its points the path by
importance sampling from a Gaussian near it, all points and draws weighted in
one sum. Toward phi = 1 the mean mu spreads: 1 % of the mass has
60 % of its variance, which runs of ten thousand effective draws miss.
"""

from typing import NamedTuple

import numpy as np
from inference_gym.internal import data as gym_data

__all__ = ['Points', 'exact_moments', 'grid', 'moments_of']

_NUM_DAYS = 100
_SHAPE = (55, 37, 61)
_LOGITS, _LOG_SCALES = (-1.5, 12.0), (-4.0, 1.4)
_LARGEST, _UNIT = 5.2, 0.6  # mu = centre + unit sinh(v), |v| at most ...
_NUM_BATCHES, _PAIRS_OF_A_BATCH = 8, 100
_NUM_NEWTON, _LONGEST_NEWTON = 20, 2.0
# Points with less than e^-25 of the largest weight, about, are left out.
_LEAST, _CHUNK = -25.0, 20_000
_POWERS = np.array([1, 2, 4])


class Points(NamedTuple):
  """Of the grid, [n] each."""

  persistence: np.ndarray
  scale: np.ndarray
  mean: np.ndarray
  log_prior: np.ndarray
  is_coarse: np.ndarray  # Whether half the grid has the point.

  def some(self, which):
    return Points(*(part[which] for part in self))


def exact_moments():
  """Returns the moments as the file of a reference has them, a dict.

  `standard_error` is that of the means, from independent batches of draws and
  from half the grid; `deviation_standard_error` that of the deviations.
  """
  data = gym_data.sp500_returns(num_points=_NUM_DAYS)
  squares = np.asarray(data['centered_returns'], np.float64) ** 2
  points = grid(_SHAPE, np.log(squares.mean()))
  sums, num_points = moments_of(
    squares, points, _NUM_BATCHES, _PAIRS_OF_A_BATCH
  )
  first, second, fourth = np.moveaxis(sums, 2, 0)
  # [mean or deviation, batch, grid or its half, coordinate].
  found = np.stack([first, np.sqrt(second - first**2)])
  noise = found[:, :, 0].std(axis=1, ddof=1) / np.sqrt(_NUM_BATCHES)
  halving = (found[:, :, 0] - found[:, :, 1]).mean(axis=1)
  mean, deviation = found[:, :, 0].mean(axis=1)
  errors = np.hypot(noise, halving)
  return {
    'source': 'quadrature',
    'is_converged': True,
    'num_points': num_points,
    'num_draws_of_a_point': 2 * _NUM_BATCHES * _PAIRS_OF_A_BATCH,
    'mean': mean.tolist(),
    'deviation': deviation.tolist(),
    'standard_error': errors[0].tolist(),
    'deviation_standard_error': errors[1].tolist(),
    'variance_of_square': (fourth - second**2)[:, 0].mean(axis=0).tolist(),
  }


def grid(shape, centre):
  """Returns the `Points` of a grid, with its spacing in the prior.

  Args:
    shape: Sizes along logit p, log sigma and mu, three odd ints.
    centre: Of the grid of mu, a float.
  """
  lines = [
    np.linspace(*ends, size)
    for ends, size in zip(
      (_LOGITS, _LOG_SCALES, (-_LARGEST, _LARGEST)), shape, strict=True
    )
  ]
  logit, log_scale, v = np.meshgrid(*lines, indexing='ij')
  even = np.ix_(*(np.arange(size) % 2 == 0 for size in shape))
  is_coarse = np.zeros(shape, bool)
  is_coarse[even] = True
  scale, mean = np.exp(log_scale), centre + _UNIT * np.sinh(v)
  log_p, log_rest = -np.logaddexp(0.0, -logit), -np.logaddexp(0.0, logit)
  log_prior = (
    20.0 * log_p
    + 1.5 * log_rest
    - np.log1p((scale / 2.0) ** 2)
    + log_scale
    - np.log1p((mean / 5.0) ** 2)
    + np.log(np.cosh(v))
  )
  parts = (2.0 * np.exp(log_p) - 1.0, scale, mean, log_prior, is_coarse)
  return Points(*(part.ravel() for part in parts))


def moments_of(squares, points, num_batches, num_pairs, seed=0):
  """Returns E[v], E[v^2], E[v^4] of v = (path, mu, phi, sigma), and a number.

  Args:
    squares: Of the returns, [num_days].
    points: The `Points` of a grid.
    num_batches: Independent estimates.
    num_pairs: Antithetic pairs of draws at each point, for each of them.
    seed: Of the draws, int.

  Returns:
    Moments [num_batches, 2, 3, num_days + 3], by the grid and by half of it;
    and how many points had a weight.
  """
  rng = np.random.default_rng(seed)
  level = np.concatenate(
    [
      _Paths(squares, points.some(which)).log_evidence()
      for which in _chunks(len(points.mean))
    ]
  )
  kept = np.flatnonzero(level - level.max() > _LEAST)
  totals = np.zeros([num_batches, 2])
  sums = np.zeros([num_batches, 2, 3, len(squares) + 3])
  for which in _chunks(len(kept)):
    part = points.some(kept[which])
    paths = _Paths(squares, part)
    rest = np.stack([part.mean, part.persistence, part.scale])
    for batch in range(num_batches):
      for _ in range(num_pairs):
        noise = rng.normal(size=paths.centre.shape)
        for path, log_weight in paths.draws(noise):
          weight = np.exp(log_weight - level.max())
          values = np.concatenate([path, rest])
          for half, chosen in enumerate((slice(None), part.is_coarse)):
            totals[batch, half] += weight[chosen].sum()
            sums[batch, half] += [
              values[:, chosen] ** power @ weight[chosen] for power in _POWERS
            ]
  return sums / totals[..., None, None], len(kept)


class _Paths:
  """Gaussians near the paths given (phi, sigma, mu), [days, n].

  The mean and the precision solve the equations of the closest Gaussian below,

    m:  Q (m - mu) = E[w] - 1/2,   precision Q + diag(E[w]),  w = y^2 e^-h / 2

  from the Laplace approximation on. Log weights spread by 0.6 where those of
  the Laplace approximation spread by 1.6.
  """

  def __init__(self, squares, points):
    self._squares, self._points = squares[:, None], points
    num_days, precision = len(squares), points.scale**-2.0
    self._off = -points.persistence * precision
    inner = (1.0 + points.persistence**2) * precision
    self._diagonal = np.tile(inner, [num_days, 1])
    self._diagonal[[0, -1]] = precision
    self.centre = np.full_like(self._diagonal, np.log(squares.mean()))
    for has_variances in (False, True):
      for _ in range(_NUM_NEWTON):
        self._newton_step(self._variances() if has_variances else 0.0)

  def log_evidence(self):
    """Returns it about, [n], but for a constant."""
    return self._log_joint(self.centre) - np.log(self._factor[0]).sum(axis=0)

  def draws(self, noise):
    """Yields paths and their log weights of a pair, [days, n] and [n]."""
    log_density = np.log(self._factor[0]).sum(0) - 0.5 * (noise**2).sum(0)
    offset = self._solve_upper(noise)
    for path in (self.centre + offset, self.centre - offset):
      yield path, self._log_joint(path) - log_density

  def _log_joint(self, path):
    points, gap = self._points, path - self._points.mean
    return (
      points.log_prior
      - 0.5 * (gap * self._prior_times(gap)).sum(axis=0)
      + 0.5 * np.log1p(-(points.persistence**2))
      - len(path) * np.log(points.scale)
      - 0.5 * (path + self._squares * np.exp(-path)).sum(axis=0)
    )

  def _prior_times(self, x):
    product = self._diagonal * x
    product[:-1] += self._off * x[1:]
    product[1:] += self._off * x[:-1]
    return product

  def _newton_step(self, variances):
    curvature = 0.5 * self._squares * np.exp(0.5 * variances - self.centre)
    gradient = curvature - 0.5
    gradient -= self._prior_times(self.centre - self._points.mean)
    self._factor = self._cholesky(self._diagonal + curvature)
    step = self._solve_upper(self._solve_lower(gradient))
    longest = np.abs(step).max(axis=0)
    self.centre += step / np.maximum(1.0, longest / _LONGEST_NEWTON)

  def _cholesky(self, root):
    """Returns diagonal and lower band of the factor of a precision."""
    below = []
    root[0] = np.sqrt(root[0])
    for t in range(1, len(root)):
      below.append(self._off / root[t - 1])
      root[t] = np.sqrt(root[t] - below[-1] ** 2)
    return root, below

  def _variances(self):
    root, below = self._factor
    variances = root**-2.0
    for t in range(len(root) - 2, -1, -1):
      variances[t] += (below[t] / root[t]) ** 2 * variances[t + 1]
    return variances

  def _solve_lower(self, x):
    root, below = self._factor
    x = x / root
    for t in range(1, len(x)):
      x[t] -= below[t - 1] * x[t - 1] / root[t]
    return x

  def _solve_upper(self, x):
    root, below = self._factor
    x = x / root
    for t in range(len(x) - 2, -1, -1):
      x[t] -= below[t] * x[t + 1] / root[t]
    return x


def _chunks(size):
  return [slice(i, i + _CHUNK) for i in range(0, size, _CHUNK)]
