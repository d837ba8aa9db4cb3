"""An entry is one decorated class; nothing else lists it."""

import pytest
from pydantic import Field

from experiments.papers import config as configs
from experiments.run.errors import ConfigError
from experiments.targets.registry import Parameters
from experiments.targets.registry import Registry


def _registry():
  registry = Registry('thing')

  @registry.register('circle')
  class Circle(Parameters):
    """A round thing."""

    radius: float = Field(gt=0)

  del Circle
  return registry


def test_one_decorator_enters_a_name_with_its_parameters():
  registry = _registry()
  assert registry.names() == ['circle']
  assert list(registry.parameters('circle')) == ['radius']
  assert registry.summary('circle') == 'A round thing.'


def test_unknown_and_refused_names_say_why():
  registry = _registry()
  registry.refuse('ellipse', 'it needs a download.')
  with pytest.raises(ConfigError, match="did you mean 'circle'"):
    registry.check_name('circel', 'target.name')
  with pytest.raises(ConfigError, match='needs a download'):
    registry.check_name('ellipse', 'target.name')


def test_self_contained_gym_models_are_targets_by_their_class_name():
  names = set(configs.TARGETS.names())
  assert {'Banana', 'EightSchools', 'SyntheticItemResponseTheory'} <= names
  assert 'VectorizedStochasticVolatilitySP500Small' in names
  assert 'GermanCreditNumericLogisticRegression' not in names
  # Models that need data given by hand cannot be named in YAML.
  assert 'ProbitRegression' not in names
