"""Arguments and results that both engines share."""

from typing import Any
from typing import NamedTuple

import numpy as np

from tfp_adaptive.driver import progress

__all__ = ['Options', 'Recorded']


class Recorded(NamedTuple):
  """Draws and trace of an engine.

  Attributes:
    states: Draws, [n, chains, d]. If there are none, the last states, n = 1.
    trace: dict of [n, chains].
    seconds_per_step: Time of a step that drew, or 0.
    cut_by: What interrupted the adaptation or its first draws, or ''.
  """

  states: np.ndarray
  trace: dict
  seconds_per_step: float = 0.0
  cut_by: str = ''


class Options(NamedTuple):
  """Options of an adaptation.

  Attributes:
    folder: Folder from which an adaptation is resumed, or `None`.
    identity: Function that returns a dict of JSON values, called if there is a
      folder. An adaptation is resumed only if these values are equal.
    seconds_left: Function that returns how many seconds are left. `None` sets
      no limit.
    reports: `progress.Reports`.
  """

  folder: Any = None
  identity: Any = dict
  seconds_left: Any = None
  reports: progress.Reports = progress.SILENT
