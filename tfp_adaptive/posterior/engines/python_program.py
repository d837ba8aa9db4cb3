"""Hamiltonian steps for a density that is called from Python.

The density computes outside of TensorFlow, for example in C++ or JAX. Each
gradient is one call of the density for all chains.
"""

from collections.abc import Callable

import numpy as np

from tfp_adaptive.fits import conditional
from tfp_adaptive.posterior.engines import retries
from tfp_adaptive.posterior.engines.program import Noise
from tfp_adaptive.posterior.engines.program import Point
from tfp_adaptive.posterior.engines.program import renewed
from tfp_adaptive.posterior.engines.program import Taken


class PythonProgram:
  """Steps of a density in NumPy, with the methods of `program.Program`."""

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

  def run(self, data, point, step_size, noise):
    """Takes steps, see `program.Program.run`."""
    places = []
    with np.errstate(all='ignore'):  # A proposal that overflows is rejected.
      for length, *numbers in zip(*noise):
        of_step = Noise(length, *numbers)
        start = renewed(point, of_step, np)
        *ends, count = self._trajectories(data, start, step_size, of_step)
        proposal, is_accepted = retries.decided(
          start, *ends, of_step.retries, np
        )
        end, first = proposal.point, ends[0]
        energy = _kinetic(start) - start.values - start.log_det
        told = end.rows, end.states, end.gradients, end.values, end.log_det
        told = *told, proposal.ratio, is_accepted, energy, first.ratio
        places.append((*told, count))
        stay = start._replace(velocities=-start.velocities)
        point = retries.chosen(is_accepted, end, stay, np)
    return point, Taken(*map(np.stack, zip(*places)))

  def _trajectories(self, params, start, step_size, noise):
    """Returns the trajectories of a step, as `program.Program` does."""
    length, numbers = noise.lengths, noise.retries
    first = second = self._trajectory(params, start, step_size, length)
    if not np.any(retries.are_tried(start, first, numbers, np)):
      return first, second, first.ratio, length
    shorter, more = step_size / retries.DIVISOR, length * retries.DIVISOR
    second = self._trajectory(params, start, shorter, more)
    count = length + more
    is_open = retries.may_be_accepted(start, first, second, numbers, np)
    if not np.any(is_open):
      return first, second, first.ratio, count
    end = second.point
    back = end._replace(velocities=-end.velocities)
    third = self._trajectory(params, back, step_size, length)
    return first, second, third.ratio, count + length

  def _trajectory(self, params, start, step_size, num_steps):
    """Returns the `retries.End` of a leapfrog trajectory."""
    end, velocities = start, start.velocities + 0.5 * step_size * start.forces
    for step in range(num_steps):
      rows = end.rows + step_size * velocities
      states, log_det, pull = params.forward(rows)
      values, gradients = self._density(states)
      forces = pull(gradients)
      share = 0.5 if step == num_steps - 1 else 1.0
      velocities = velocities + share * step_size * forces
      place = rows, states, values, gradients, log_det, forces, velocities
      end = Point(*place, start.uniforms)
    ratio = end.values - start.values + end.log_det - start.log_det
    ratio = ratio + _kinetic(start) - _kinetic(end)
    return retries.End(end, np.where(np.isfinite(ratio), ratio, -np.inf))


def _kinetic(point):
  return 0.5 * np.sum(point.velocities**2, axis=-1)
