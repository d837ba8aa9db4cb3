"""What engines share: what they return, and which one is taken."""

from typing import Any
from typing import NamedTuple

import numpy as np

__all__ = ['Recorded', 'State']


class Recorded(NamedTuple):
  """What an engine recorded.

  Attributes:
    states: [n, chains, d]. Where nothing was drawn, the states reached, n = 1.
    trace: dict of [n, chains].
    seconds_per_step: Of the steps that drew, or 0.
    cut_by: What ended an adaptation, or its first draws; or ''.
  """

  states: np.ndarray
  trace: dict
  seconds_per_step: float = 0.0
  cut_by: str = ''


class State(NamedTuple):
  """What a run hands to an engine that it starts.

  Attributes:
    folder: Of the files from which an adaptation is resumed, or `None`.
    identity: Function that returns what must be equal to resume: dict of JSON
      values; called where there is a folder.
    seconds_left: Function that returns them, or `None`: any.
    progress: Whether to tell on stderr what is going on.
  """

  folder: Any = None
  identity: Any = dict
  seconds_left: Any = None
  progress: bool = False
