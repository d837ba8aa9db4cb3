"""Many targets, every method, one budget: what a panel's config runs.

The cases of a panel are `target | method`. Its gates are fixed before any run,
and truths and references say how far off a run is.
"""

from experiments.run.study import Study


def load(path, overrides=(), is_smoke: bool = False) -> Study:
  """Returns the study of a panel's YAML file.

  Args:
    is_smoke: Whether the run should take seconds only.

  Raises:
    ConfigError: If anything is wrong with the config or its gates.
  """
  # TensorFlow is imported only where a panel is run.
  from experiments.studies.panel import cells

  return cells.study(path, overrides, is_smoke)
