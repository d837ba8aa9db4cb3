"""Hamiltonian steps for a density that is called from Python.

The density computes outside of TensorFlow, for example in C++ or JAX. Each
gradient is one call of the density for all chains.
"""

from collections.abc import Callable

import numpy as np

from tfp_adaptive.fits import conditional
from tfp_adaptive.posterior.engines.program import Point
from tfp_adaptive.posterior.engines.program import Taken


class PythonProgram:
  """Takes steps of a density in NumPy, by the methods of `program.Program`."""

  most_steps = 1  # More steps save no time and would delay an interrupt.

  def __init__(self, value_and_gradient: Callable):
    """Takes the density: function of rows [n, d] to [n] and [n, d]."""
    self._density = value_and_gradient

  def as_data(self, params: conditional.Params) -> conditional.Params:
    """Returns a map as the argument of `run`."""
    return params

  def evaluate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns values [n, chains] and gradients of rows [n, chains, d]."""
    found = [self._density(x) for x in rows]
    values, gradients = (np.stack(parts) for parts in zip(*found))
    return values, gradients

  def run(self, data, point, step_size, lengths, momenta, uniforms):
    """Takes steps, see `program.Program.run`."""
    places = []
    with np.errstate(all='ignore'):  # A proposal that overflows is rejected.
      for count, momentum, uniform in zip(lengths, momenta, uniforms):
        end, ratio = self._trajectory(data, point, step_size, count, momentum)
        is_accepted = uniform < np.exp(np.minimum(ratio, 0.0))
        found = end.rows, end.states, end.gradients, end.values, end.log_det
        places.append((*found, ratio, is_accepted))
        point = Point(
          *(
            np.where(
              is_accepted[:, np.newaxis] if x.ndim > 1 else is_accepted, x, y
            )
            for x, y in zip(end, point)
          )
        )
    taken = (np.stack(rows) for rows in zip(*places))
    return point, Taken(*taken, np.array(lengths))

  def _trajectory(self, params, point, step_size, num_steps, momentum):
    """Returns the end of a leapfrog trajectory and its log acceptance ratio."""
    end, velocity = point, momentum + 0.5 * step_size * point.forces
    for step in range(num_steps):
      rows = end.rows + step_size * velocity
      states, log_det, pull = params.forward(rows)
      values, gradients = self._density(states)
      end = Point(rows, states, values, gradients, log_det, pull(gradients))
      share = 0.5 if step == num_steps - 1 else 1.0
      velocity = velocity + share * step_size * end.forces
    kinetic = 0.5 * np.sum(momentum**2 - velocity**2, axis=-1)
    ratio = end.values - point.values + end.log_det - point.log_det + kinetic
    return end, np.where(np.isfinite(ratio), ratio, -np.inf)
