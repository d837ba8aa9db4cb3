"""What a process has spent, by the standard library alone."""

import os
import resource
import time

__all__ = ['Clock']

_KIB = 1024


class Clock:
  """Measures CPU and wall seconds from its construction on.

  Children that have ended count, because compilers are processes of their own.
  """

  def __init__(self):
    self._begin = self._now()

  def read(self) -> dict[str, float]:
    """Returns `cpu_seconds`, `wall_seconds` and `peak_bytes` so far.

    The peak is that of the process or of its largest child.
    """
    cpu, wall = (now - then for now, then in zip(self._now(), self._begin))
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    peak = max(resource.getrusage(kind).ru_maxrss for kind in kinds)
    return {
      'cpu_seconds': cpu,
      'wall_seconds': wall,
      'peak_bytes': float(peak * _KIB),
    }

  @staticmethod
  def _now():
    return sum(os.times()[:4]), time.monotonic()
