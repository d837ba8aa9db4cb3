"""Old path of `experiments.run.quiet`, until all rooms have moved."""

from experiments.run.quiet import *  # noqa: F403
