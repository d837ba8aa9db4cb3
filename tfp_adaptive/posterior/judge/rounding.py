"""Measures the rounding noise of a log density, and checks its gradient.

Acceptance depends on differences of log densities. A float32 sum over many data
may have noise of more than a tenth of a nat. Then rounding decides acceptance,
and draws have wrong deviations although every other check passes. The noise is
therefore measured at the draws. Without rounding, for a short step v,

  r = log p(x + v) - log p(x) - integral of the gradient along v

is zero. Lobatto's rule with five nodes gives the integral. Simpson's rule uses
three of these nodes. If the two rules differ, the density bends too much for a
measurement. A kernel's compiled program sums in another order, so the values
that the kernel recorded are compared with those of the density as well.

Rounding may also tilt the density: the terms of many equal data round alike, so
their error depends on the unknowns. A short path does not show this error. The
recorded values are therefore compared with float64 if the program allows it.
"""

from typing import NamedTuple

import numpy as np

MOST = 0.1  # Largest rounding noise that passes, in nats.
_NUM_PAIRS = 24
_NUM_COMPARED = 500  # At most this many draws are compared with float64.
_LARGEST_DIFFERENCE = 1e-2  # Relative difference of float64 and float32.
# Lengths of paths, as shares of the way between two draws. Rounding noise is
# equal on both paths. The smaller estimate is used, because errors of the
# gradient shrink with the length.
_SHARES = (0.25, 0.025)
_NODES = 0.5 + 0.5 * np.array([-1.0, -np.sqrt(3 / 7), 0.0, np.sqrt(3 / 7), 1.0])
_LOBATTO = np.array([9.0, 49.0, 64.0, 49.0, 9.0]) / 180.0
_SIMPSON = np.array([1.0, 0.0, 4.0, 0.0, 1.0]) / 6.0
_MOST_BENT = 1.0  # Largest difference of the two rules, in nats.
_FEWEST_PATHS = 5  # Fewest smooth paths to estimate a deviation.
_OF_MEDIAN = 1.4826  # Normal deviation / median of |x|.
_WRONG_SHARE = 0.02  # Largest relative error of a predicted change.


class Noise(NamedTuple):
  """Rounding noise of a log density."""

  nats: float  # Standard deviation of the noise of a log density.
  size: float  # Typical size of the log densities.

  def sentence(self, dtype):
    """Returns a sentence on what fails and what to do."""
    advice = (
      'Pass `dtype=tf.float64`, or write the model in float64'
      if dtype.name == 'float32'
      else 'Subtract a constant from the log density, or rescale it'
    )
    return (
      f'the log density, about {self.size:.2g}, has rounding noise of '
      f'{self.nats:.2g} nats in {dtype.name}, which decides acceptance (at '
      f'most {MOST} is allowed). {advice}'
    )


def measured(density, draws, log_prob, seed=0):
  """Returns the `Noise` of a density at draws [n, chains, d].

  `log_prob` are the log densities that the kernel recorded, [n, chains].
  """
  rows = draws.reshape(-1, draws.shape[-1])
  recorded = np.asarray(log_prob, np.float64).reshape(-1)
  keep = np.isfinite(recorded) & np.all(np.isfinite(rows), axis=-1)
  rows, recorded = rows[keep], recorded[keep]
  if len(rows) < 2:
    return Noise(0.0, 0.0)
  generator = np.random.default_rng(seed)
  first, second = generator.integers(len(rows), size=(2, _NUM_PAIRS))
  found = [
    _along(density.evaluate, rows[first], share * (rows[second] - rows[first]))
    for share in _SHARES
  ]
  size = float(np.median(np.abs(recorded)))
  smooth = [way.residuals[way.is_smooth] for way in found]
  known = [_deviation(part) for part in smooth if len(part) >= _FEWEST_PATHS]
  # Noise does not shrink with the path, but errors of the gradient do.
  # Residuals that shrink with the path are therefore no noise. A residual is a
  # difference of two values, so it has twice the variance of the noise.
  of_path = min(known, default=0.0) / np.sqrt(2.0)
  if len(known) == len(_SHARES) and known[1] < 0.3 * known[0]:
    of_path = 0.0
  of_program = _deviation(_centered(found[0].values - recorded[first]))
  # If rounding hides every change, residuals are zero. The noise is therefore
  # at least that of a uniform variable on one spacing, eps |log p| / 2.
  eps = np.finfo(density.dtype.as_numpy_dtype).eps
  spacing = 0.5 * eps * size / np.sqrt(12.0)
  nats = float(np.hypot(max(of_path, spacing), of_program))
  nats = max(nats, _against_float64(density, rows, recorded))
  return Noise(nats if np.isfinite(nats) else np.inf, size)


def wrong_gradient(density, starts, seed=0):
  """Returns a sentence if gradients are wrong at starts [chains, d], or ''."""
  generator = np.random.default_rng(seed)
  # Paths lead between points that the density's dtype has.
  starts = np.asarray(starts, density.dtype.as_numpy_dtype)
  steps = 1e-2 * generator.normal(size=starts.shape)
  found = _along(density.evaluate, starts, steps)
  eps = np.finfo(density.dtype.as_numpy_dtype).eps
  rounding = 64.0 * eps * np.abs(found.values) + 1e-9
  bend = np.abs(found.bend)
  scale = np.abs(found.change) + np.abs(found.integral)
  is_known = np.isfinite(found.residuals) & (scale > 4.0 * (rounding + bend))
  is_wrong = is_known & (
    np.abs(found.residuals) > _WRONG_SHARE * scale + rounding + bend
  )
  if np.sum(is_wrong) <= 0.5 * len(starts):
    return ''
  worst = int(np.argmax(np.where(is_wrong, np.abs(found.residuals), -np.inf)))
  return (
    'The gradient is not that of the log density: along a short way from the '
    f'start of chain {worst} the density changes by {found.change[worst]:.3g} '
    f'and its gradient says {found.integral[worst]:.3g}. The draws stay exact, '
    'because acceptance uses the density, but the run may never converge. '
    'Check `tf.custom_gradient` and `tf.stop_gradient` in the model.'
  )


def _against_float64(density, rows, recorded):
  """Returns the deviation of recorded values from float64, in nats.

  The result is 0 if float64 is impossible. If most values differ much, it is 0
  too, because the density itself then depends on its dtype.
  """
  rows, recorded = (x[:: -(-len(x) // _NUM_COMPARED)] for x in (rows, recorded))
  known = density.values_in_float64(rows)
  if known is None:
    return 0.0
  with np.errstate(invalid='ignore'):
    error = recorded - known
  is_alike = np.abs(error) <= _LARGEST_DIFFERENCE * (1.0 + np.abs(known))
  if np.mean(is_alike) < 0.5:
    return 0.0
  return float(np.std(error[is_alike]))


class _Along(NamedTuple):
  """Values at the beginning of n paths, and changes along the paths, [n].

  `bend` is the integral by Lobatto's rule minus that by Simpson's rule.
  """

  values: np.ndarray
  change: np.ndarray
  integral: np.ndarray
  bend: np.ndarray

  @property
  def residuals(self):
    return self.change - self.integral

  @property
  def is_smooth(self):
    with np.errstate(invalid='ignore'):
      return np.isfinite(self.residuals) & (np.abs(self.bend) < _MOST_BENT)


def _along(evaluate, begin, steps):
  """Returns `_Along` for paths from points [n, d] along steps [n, d]."""
  dtype = begin.dtype
  rows = (begin + _NODES[:, None, None] * steps).astype(dtype)
  steps = (rows[-1].astype(np.float64)) - rows[0]  # Steps after rounding.
  values, gradients = evaluate(rows.reshape(-1, rows.shape[-1]))
  values = np.asarray(values, np.float64).reshape(rows.shape[:2])
  gradients = np.asarray(gradients, np.float64).reshape(rows.shape)
  with np.errstate(invalid='ignore', over='ignore'):
    slopes = np.sum(gradients * steps, axis=-1)
    integral = np.tensordot(_LOBATTO, slopes, 1)
    bend = integral - np.tensordot(_SIMPSON, slopes, 1)
    return _Along(values[0], values[-1] - values[0], integral, bend)


def _centered(values):
  return values - np.median(values) if len(values) else values


def _deviation(values):
  """Returns a robust standard deviation around 0; 0 without values."""
  if not len(values):
    return 0.0
  return _OF_MEDIAN * float(np.median(np.abs(values)))
