"""Which chains have not arrived at the posterior, told by their log density.

Draws of a posterior have log densities that differ by some nats for every
coordinate. A chain that lies far below the others holds a region without mass,
and no step of the others' size leads it away. It is no mode of its own.
"""

import numpy as np

__all__ = ['gap', 'lost', 'replaced']

_GAP, _GAP_PER_COORDINATE = 100.0, 10.0


def gap(event_size):
  """Returns how many nats below the others no chain of a posterior stays.

  A factor of e^10 in the scale of every coordinate makes up for so many.
  """
  return _GAP + _GAP_PER_COORDINATE * event_size


def lost(log_prob, event_size):
  """Returns which chains have not arrived, [chains] bool.

  Args:
    log_prob: Log densities, the last draws at the end, [n, chains].
    event_size: Number of coordinates.
  """
  recent = np.asarray(log_prob, np.float64)[len(log_prob) // 2 :]
  typical = np.median(np.nan_to_num(recent, nan=-np.inf), axis=0)
  return ~(typical >= np.max(typical) - gap(event_size))


def replaced(rows, is_lost):
  """Returns rows [chains, d] in which chains that are lost have others' rows.

  Args:
    rows: States.
    is_lost: [chains] bool, not all of them.
  """
  others = np.flatnonzero(~is_lost)
  rows = np.array(rows)
  rows[is_lost] = rows[others[np.arange(np.sum(is_lost)) % len(others)]]
  return rows
