"""Old import path of `experiments.run.devices`."""

from experiments.run.devices import *  # noqa: F403
