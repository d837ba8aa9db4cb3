"""Old import path of `experiments.run.yaml_files`."""

from experiments.run.yaml_files import *  # noqa: F403
