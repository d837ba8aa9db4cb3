"""Old path of `experiments.papers.diagnostics`, until all rooms have moved."""

from experiments.papers.diagnostics import *  # noqa: F403
