"""Old import path of `experiments.run.errors`."""

from experiments.run.errors import *  # noqa: F403
