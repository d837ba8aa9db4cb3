"""Options and results of an engine's run."""

from typing import Any
from typing import NamedTuple

import numpy as np

from tfp_adaptive.driver import progress


class Recorded(NamedTuple):
  """Draws and trace of an engine."""

  # Draws, [n, chains, d]; without draws the last states, n = 1.
  states: np.ndarray
  trace: dict  # Arrays [n, chains] by name.
  seconds_per_step: float = 0.0  # After the adaptation; 0 if unknown.
  # What interrupted the adaptation or the first block, or ''.
  cut_by: str = ''
  are_draws: bool = True  # `False` for last states, see above.


class Options(NamedTuple):
  """Options of an adaptation."""

  folder: Any = None  # From which an adaptation is resumed, or `None`.
  # Function that returns a dict of JSON values. If there is a folder, the host
  # engine calls it, and resumes an adaptation only if these values are equal.
  # The compiled engine does not call it, because `driver.sample` has its own.
  identity: Any = dict
  # Function that returns how many seconds are left. `None` sets no limit.
  seconds_left: Any = None
  reports: progress.Reports = progress.SILENT
  # Share of the steps after the adaptation that `start` may try again, see
  # `retries`. Only the host engine tries steps again.
  share_tried: float = 1.0
