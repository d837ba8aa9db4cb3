"""Old path of `experiments.targets.registry`, until all rooms have moved."""

from experiments.targets.registry import *  # noqa: F403
