"""The papers' experiments: a YAML config, its methods as cases, its tables."""

from collections.abc import Sequence

from experiments.run.study import Study


def load(path, overrides: Sequence[str] = (), is_smoke: bool = False) -> Study:
  """Returns the study of a config; its methods are cases, its repeats seeds.

  Args:
    is_smoke: Whether the run should take seconds only.

  Raises:
    ConfigError: If anything is wrong with the config.
  """
  # TensorFlow is imported only if a config is run.
  from experiments.papers import config_study

  return config_study.load(path, overrides, is_smoke)
