"""Options and results of an engine's run."""

from typing import Any
from typing import NamedTuple

import numpy as np

from tfp_adaptive.driver import progress

__all__ = ['Options', 'Recorded']


class Recorded(NamedTuple):
  """Draws and trace of an engine.

  Attributes:
    states: Draws, [n, chains, d]; without draws the last states, n = 1.
    trace: dict of [n, chains].
    seconds_per_step: Seconds of a step after the adaptation, or 0 if unknown.
    cut_by: What interrupted the adaptation or the first block, or ''.
  """

  states: np.ndarray
  trace: dict
  seconds_per_step: float = 0.0
  cut_by: str = ''


class Options(NamedTuple):
  """Options of an adaptation.

  Attributes:
    folder: Folder from which an adaptation is resumed, or `None`.
    identity: Function that returns a dict of JSON values. It is called only
      with a folder. An adaptation is resumed only if these values are equal.
    seconds_left: Function that returns how many seconds are left. `None` sets
      no limit.
    reports: `progress.Reports`.
  """

  folder: Any = None
  identity: Any = dict
  seconds_left: Any = None
  reports: progress.Reports = progress.SILENT
