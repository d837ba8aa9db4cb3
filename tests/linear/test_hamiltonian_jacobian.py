"""The theory behind the entropy: D_L against exact Jacobians of v -> x_L.

D x_L(v) = L C (I + DS_L(v)),   DS_L ~ D_L = -(L^2 - 1)/6 C^T H C
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import targets
from tests.contracts import trajectories
from tfp_adaptive.linear import trajectory

_EVENT_SIZE = 3


def _exact(target, x, velocity, factor, num_steps, width):
  """Returns DS_L at one point by central differences of the trajectory."""

  def end(velocity):
    path = trajectories.Trajectory(target, x, velocity, factor, num_steps)
    return path.positions[-1]

  columns = [
    (end(velocity + width * e) - end(velocity - width * e)) / (2.0 * width)
    for e in np.eye(len(x))
  ]
  whitened = np.linalg.solve(factor, np.stack(columns, axis=1))
  return whitened / num_steps - np.eye(len(x))


def _approximation(hessian, factor, num_steps):
  kappa = trajectory.curvature_weight(
    tf.constant(num_steps), tf.float64
  ).numpy()
  return -kappa * factor.T @ hessian @ factor


@pytest.mark.parametrize('num_steps', [2, 3, 5])
def test_on_a_gaussian_the_error_falls_as_the_fourth_power_of_the_step(
  num_steps,
):
  # The map is linear in v there: a difference of any width is its Jacobian.
  target = trajectories.Quartic(_EVENT_SIZE, coefficient=0.0)
  base = 0.3 * targets.correlated_factor(_EVENT_SIZE, 3.0)
  x = np.ones(_EVENT_SIZE)
  errors, sizes = [], []
  for step_size in (0.4, 0.2, 0.1):
    factor = step_size * base
    exact = _exact(target, x, np.zeros_like(x), factor, num_steps, 1.0)
    approximation = _approximation(target.hessian(x), factor, num_steps)
    errors.append(np.linalg.norm(exact - approximation))
    sizes.append(np.linalg.norm(exact))
  if num_steps == 2:  # One Hessian, one term: nothing is left out.
    assert np.all(np.array(errors) < 1e-9 * np.array(sizes))
    return
  np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 16.0, rtol=0.1)
  # The negative control: of D_L itself only the square falls so.
  np.testing.assert_allclose(np.divide(sizes[:-1], sizes[1:]), 4.0, rtol=0.1)
