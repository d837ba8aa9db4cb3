"""Old path of `experiments.targets.random_draws`."""

from experiments.targets.random_draws import *  # noqa: F403
