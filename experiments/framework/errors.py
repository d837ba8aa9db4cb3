"""Old path of `experiments.run.errors`, until all rooms have moved."""

from experiments.run.errors import *  # noqa: F403
