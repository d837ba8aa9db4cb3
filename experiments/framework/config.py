"""Old path of `experiments.papers.config`, until all rooms have moved."""

from experiments.papers.config import *  # noqa: F403
