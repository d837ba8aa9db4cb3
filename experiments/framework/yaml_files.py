"""Old path of `experiments.run.yaml_files`, until all rooms have moved."""

from experiments.run.yaml_files import *  # noqa: F403
