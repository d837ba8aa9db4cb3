"""Sampled means and deviations against known ones, in standard errors.

  z of the mean       (m - m*) / sqrt(s^2 / ESS(x) + se*^2)
  z of the deviation  (s - s*) / sqrt(sd((x - m)^2)^2 / ESS((x - m)^2) / (2 s)^2
                                      + (se* sd((x - m)^2) / (2 s^2))^2)

The star marks the known posterior, which is itself a run. Its mean has the
standard error se*, and its deviation has se* sd((x - m)^2) / (2 s^2), which is
se* / sqrt(2) for a Gaussian.
"""

from typing import NamedTuple

import numpy as np

from experiments.papers import diagnostics

# Most elements of a vector that are compared, evenly spaced.
_MAX_ELEMENTS = 100


class ZScores(NamedTuple):
  """Scores of every element of a quantity, numpy arrays of its shape."""

  mean: np.ndarray
  deviation: np.ndarray
  mean_z: np.ndarray
  deviation_z: np.ndarray


def z_scores(draws, mean, deviation, standard_error):
  """Returns the `ZScores` of draws against known moments.

  Args:
    draws: [num_draws, num_chains, ...].
    mean: [...], known.
    deviation: [...], known standard deviation.
    standard_error: [...], error of `mean`; 0 if the mean is exact.
  """
  draws = np.asarray(draws, np.float64)
  own_mean = draws.mean(axis=(0, 1))
  squares = np.square(draws - own_mean)
  own_deviation = np.sqrt(squares.mean(axis=(0, 1)))
  ess = np.maximum(diagnostics.geyer_ess(draws).sum(axis=0), 1.0)
  ess_of_squares = np.maximum(diagnostics.geyer_ess(squares).sum(axis=0), 1.0)
  error_of_mean = np.hypot(own_deviation / np.sqrt(ess), standard_error)
  spread_of_squares = squares.std(axis=(0, 1))
  scale = 2.0 * np.maximum(own_deviation, 1e-30)
  error_of_deviation = np.hypot(
    spread_of_squares / np.sqrt(ess_of_squares) / scale,
    standard_error * spread_of_squares / (scale * scale / 2.0),
  )
  return ZScores(
    own_mean,
    own_deviation,
    (own_mean - mean) / np.maximum(error_of_mean, 1e-30),
    (own_deviation - deviation) / np.maximum(error_of_deviation, 1e-30),
  )


def compare(target, states):
  """Returns {quantity: summary} for the record of a cell; {} if none is known.

  Args:
    states: [num_draws, num_chains, event_size].
  """
  if target.ground_truth is None:
    return {}
  values = target.constrain(states)
  summaries = {}
  for name, known in target.ground_truth.items():
    draws = values[name]
    if np.ndim(known[0]):
      draws = np.reshape(draws, [*draws.shape[:2], -1])
      size = draws.shape[-1]
      shown = np.linspace(0, size - 1, min(size, _MAX_ELEMENTS)).astype(int)
      draws = draws[..., shown]
      known = [np.ravel(part)[shown] for part in known]
    summaries[name] = _summary(z_scores(draws, *known), *known[:2])
  return summaries


def _summary(scores, mean, deviation):
  """Returns moments and scores for a scalar, only the worst for a vector."""
  summary = {
    'size': int(np.size(mean)),
    'worst_mean_z': _worst(scores.mean_z),
    'worst_deviation_z': _worst(scores.deviation_z),
  }
  if np.size(mean) == 1:
    summary.update(
      mean=float(scores.mean),
      deviation=float(scores.deviation),
      known_mean=float(mean),
      known_deviation=float(deviation),
    )
  return summary


def _worst(scores):
  scores = np.ravel(scores)
  scores = scores[~np.isnan(scores)]
  worst = scores[np.argmax(np.abs(scores))] if len(scores) else np.nan
  return float(worst) if np.isfinite(worst) else None
