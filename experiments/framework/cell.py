"""Old path of `experiments.papers.cell`, until all rooms have moved."""

from experiments.papers.cell import *  # noqa: F403
