"""Old path of `experiments.run.devices`, until all rooms have moved."""

from experiments.run.devices import *  # noqa: F403
