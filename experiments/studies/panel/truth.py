"""Known moments of the coordinates of a target and of their squares.

  E[x^2] = m^2 + s^2
  Var[x^2]  in closed form, from a reference run, or as for a Gaussian,
            2 s^4 + 4 m^2 s^2

The coordinates are those of the model's own space, all quantities in a row.
Exact moments come first, then those of inference_gym, then a reference run. For
Var[x^2], which is only a scale, the reference run comes first.
"""

from typing import NamedTuple
from typing import Optional

import numpy as np

from experiments.targets.base import Target

_GYM = 'inference_gym'
# Source of an exact reference.
_EXACT = 'quadrature'


class Truth(NamedTuple):
  """Known moments, [num_coordinates] float64 each."""

  mean: np.ndarray
  deviation: np.ndarray
  # Standard error of the mean; 0 if the mean is exact.
  standard_error: np.ndarray
  mean_of_square: np.ndarray
  variance_of_square: np.ndarray
  # Sources of the moments and of Var[x^2].
  source: str
  square_source: str
  # Whether a run may be judged by these moments.
  is_converged: bool = True
  # The largest difference of the reference's means to inference_gym's, in
  # standard errors; None if one of them is missing.
  gym_z: Optional[float] = None


def coordinates(target: Target, states) -> np.ndarray:
  """Returns states in the model's own space, [..., num_coordinates] float64."""
  states = np.asarray(states)
  if target.constrain is None:
    return states.astype(np.float64)
  values = target.constrain(states)
  batch = states.shape[:-1]
  parts = [
    np.reshape(values[name], [*batch, -1]).astype(np.float64)
    for name in sorted(values)
  ]
  return np.concatenate(parts, axis=-1)


def load_truth(
  target: Target, label: str, reference: dict | None
) -> Optional[Truth]:
  """Returns the `Truth`, or None if no moments are known.

  Args:
    reference: Reference moments, or None without any.
  """
  moments = None
  if reference is not None:
    names = ('mean', 'deviation', 'standard_error')
    moments = [np.asarray(reference[n], np.float64) for n in names]
    moments.append(reference['source'])
  if moments is None or moments[-1] != _EXACT:
    moments = _gym_moments(target) or moments
  if moments is None:
    return None
  mean, deviation, standard_error, source = moments
  variance, square_source = _variance_of_square(
    label, mean, deviation, reference
  )
  return Truth(
    mean,
    deviation,
    standard_error,
    mean**2 + deviation**2,
    variance,
    source,
    square_source,
    is_converged=source == _GYM or reference['is_converged'],
    gym_z=reference and reference.get('worst_mean_z_against_gym'),
  )


def gaussian_variance_of_square(mean, deviation):
  return 2 * deviation**4 + 4 * mean**2 * deviation**2


def _gym_moments(target):
  if target.ground_truth is None:
    return None
  names = sorted(target.ground_truth)
  parts = [
    np.concatenate([np.ravel(target.ground_truth[name][i]) for name in names])
    for i in range(3)
  ]
  return (*parts, _GYM)


def _variance_of_square(label, mean, deviation, reference):
  if label in _CLOSED_FORM:
    return _CLOSED_FORM[label](mean, deviation), 'closed form'
  if reference is not None:
    found = np.asarray(reference['variance_of_square'], np.float64)
    return found, reference['source']
  return gaussian_variance_of_square(mean, deviation), 'as of a Gaussian'


def _banana(mean, deviation):
  """x_1 = c (z^2 - 100) + e, z ~ N(0, 100), e ~ N(0, 1), c = 0.03."""
  spread = 0.03 * 100.0
  # The fourth central moment of a chi-squared with one degree is 60.
  fourth = 60 * spread**4 + 6 * 2 * spread**2 + 3
  variance = gaussian_variance_of_square(mean, deviation)
  return np.array([variance[0], fourth - (2 * spread**2 + 1) ** 2])


def _funnel(mean, deviation):
  """z ~ N(0, 9), the others N(0, e^z): E[x^4] = 3 E[e^(2z)]."""
  variance = gaussian_variance_of_square(mean, deviation)
  variance[1:] = 3 * np.exp(2 * 9.0) - np.exp(9.0)
  return variance


_CLOSED_FORM = {
  'Banana': _banana,
  'IllConditionedGaussian': gaussian_variance_of_square,
  'NealsFunnel': _funnel,
}
