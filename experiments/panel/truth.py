"""What is known of a target: moments of its coordinates and of their squares.

  E[x^2] = m^2 + s^2
  Var[x^2]  in closed form, from a reference run, or as of a Gaussian,
            2 s^4 + 4 m^2 s^2

The coordinates are those of the model's own space, all quantities in a row.
Exact moments come first, then inference_gym's, then those of a reference run.
For Var[x^2], a scale only, the reference is taken first.
"""

from typing import NamedTuple
from typing import Optional

import numpy as np

from experiments.framework.json_files import read_json

__all__ = [
  'Truth',
  'coordinates',
  'gaussian_variance_of_square',
  'load_truth',
]

_GYM = 'inference_gym'
# The source of references that are no runs.
_EXACT = 'quadrature'


class Truth(NamedTuple):
  """Known moments, [num_coordinates] float64 each."""

  mean: np.ndarray
  deviation: np.ndarray
  # Of the mean; 0 where that is exact.
  standard_error: np.ndarray
  mean_of_square: np.ndarray
  variance_of_square: np.ndarray
  # 'inference_gym', 'reference run'; and where Var[x^2] is from.
  source: str
  square_source: str
  # Whether a run may be judged by it.
  is_converged: bool = True
  # The largest difference of the reference's means to inference_gym's, in
  # standard errors; None where there are not both.
  gym_z: Optional[float] = None


def coordinates(target, states):
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


def load_truth(target, label, path):
  """Returns the `Truth`, or None where nothing is known.

  Args:
    target: the `Target`.
    label: of the target in the panel.
    path: of the reference's file, there or not.
  """
  reference = None
  if path.is_file():
    reference = read_json(path)
  moments = _reference_moments(reference)
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


def _reference_moments(reference):
  if reference is None:
    return None
  names = ('mean', 'deviation', 'standard_error')
  parts = [np.asarray(reference[name], np.float64) for name in names]
  return (*parts, reference['source'])


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
