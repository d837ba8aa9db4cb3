"""Old path of `experiments.papers.starts`, until all rooms have moved."""

from experiments.papers.starts import *  # noqa: F403
