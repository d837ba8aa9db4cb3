"""A panel: many targets, every method, one budget.

The cases of a panel are `target | method`. Its checks are fixed before any run.
The errors of a run are measured against a truth or a reference.
"""

from experiments.run.study import Study


def load(path, overrides=(), is_smoke: bool = False) -> Study:
  """Returns the study of a panel's YAML file.

  Args:
    is_smoke: Whether the run should take seconds only.

  Raises:
    ConfigError: If anything is wrong with the config or its checks.
  """
  # TensorFlow is imported only if a panel is run.
  from experiments.studies.panel import cells

  return cells.study(path, overrides, is_smoke)
